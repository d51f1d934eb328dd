"""What a row of cells shares, found by content: checkpoint, ONNX export, inputs, reference."""

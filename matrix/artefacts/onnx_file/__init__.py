"""A user's ONNX file, looked at before anything is built for it.

`inspect` reads the file and says what is in it, or refuses it with a reason of its own
(`OnnxRefused.reason`): a pointer instead of a model, a missing side file, a misspelt
operator, shapes that contradict each other. `resolve_inputs` and `resolve_outputs` bring
together what the file says and what the configuration says. Nothing of the file is run,
and no file outside the model's own folder is opened.
"""

from matrix.artefacts.onnx_file.facts import OnnxFacts, OnnxRefused, TensorInfo
from matrix.artefacts.onnx_file.inputs import resolve_inputs, resolve_outputs
from matrix.artefacts.onnx_file.inspection import inspect

__all__ = ["OnnxFacts", "OnnxRefused", "TensorInfo", "inspect", "resolve_inputs", "resolve_outputs"]

"""A planted fault: PyTorch, asked for CUDA, that silently computes on the CPU."""

from matrix_adapters import pytorch


class Adapter(pytorch.Adapter):
    """Everything as it should be but the device."""

    def _find_device(self):
        import torch

        return torch.device("cpu")

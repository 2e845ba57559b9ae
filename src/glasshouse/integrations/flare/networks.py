"""The network that a client agreed to train, and tensors in its places."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from glasshouse.learning.layout import Layout
from glasshouse.models.loading import load_model


def agreed(model: str, shape: tuple[int, int, int], classes: int) -> nn.Module:
    """The network, in eval mode; shapes come as lists from a job's configuration."""
    channels, height, width = shape
    return load_model(model, (channels, height, width), classes).eval()


def vector_of(layout: Layout, arrays: Mapping[str, np.ndarray]) -> Tensor:
    """The tensors that a federation sends, one after the other, shape (P,)."""
    return torch.cat([torch.from_numpy(arrays[name]).float().reshape(-1) for name in layout.names])


def arrays_of(layout: Layout, vector: Tensor) -> dict[str, np.ndarray]:
    """What `vector_of` put into `vector`."""
    return {name: tensor.numpy() for name, tensor in layout.named(vector).items()}

"""Batch norm's statistics: recomputed, or left alone."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from glasshouse.data.images import Images
from glasshouse.learning.cpu import channels_last
from glasshouse.learning.evaluate import CHUNK


def recount_statistics(model: nn.Module, images: Images) -> bool:
    """Replace batch norm's statistics by their mean over chunks of `images`; says whether there were any.

    Running averages lag behind by tens of steps: after a short training with large batches they are still
    close to their initial values, and the model in eval mode differs from the one that was trained.
    """
    layers = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not layers:
        return False
    momenta = [layer.momentum for layer in layers]
    model.eval()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a plain average over all chunks
        layer.train()
    with torch.inference_mode():
        for chunk in images.x.split(CHUNK):
            model(channels_last(chunk))
    for layer, momentum in zip(layers, momenta):
        layer.momentum = momentum
    model.eval()
    return True


@contextmanager
def unrecorded(model: nn.Module) -> Iterator[None]:
    """A context in which batches pass through `model` in train mode without changing its statistics."""
    layers = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    try:
        yield
    finally:
        for layer, momentum in zip(layers, momenta):
            layer.momentum = momentum

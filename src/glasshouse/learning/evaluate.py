"""What a model answers, in eval mode and without gradients."""

import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.learning.cpu import channels_last

CHUNK = 500
"""Images a forward pass takes at once: large enough to be fast, small enough to stay in cache."""


def predict(model: nn.Module, x: Tensor) -> Tensor:
    """Logits for the images `x`, shape (N, classes); leaves the model in eval mode."""
    model.eval()
    with torch.inference_mode():
        logits = torch.cat([model(channels_last(chunk)) for chunk in x.split(CHUNK)])
    assert not any(module.training for module in model.modules())
    return logits.clone()


def hits(model: nn.Module, images: Images) -> Tensor:
    """Which images the model classifies correctly, bool of shape (N,)."""
    return predict(model, images.x).argmax(1) == images.y


def accuracy(model: nn.Module, images: Images) -> float:
    """The share of images the model classifies correctly."""
    return hits(model, images).double().mean().item()

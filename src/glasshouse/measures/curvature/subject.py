"""Whose curvature is asked for: a copy of the model in eval mode, and the images, checked at the door."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.cpu import channels_last


def frozen_copy(model: nn.Module, images: Images) -> nn.Module:
    """A copy of `model` in eval mode and float32, whose parameters ask for gradients, all of them.

    Dropout is off and batch norm uses its running statistics. Frozen parameters count: whether they
    are trained says nothing about how curved the loss is.
    """
    if not len(images):
        raise BadInput("curvature: no images; give at least one")
    copy = deepcopy(model).float().eval()
    parameters = list(copy.parameters())
    if not parameters:
        raise BadInput("curvature: the model has no parameters; give one that has")
    for name, parameter in copy.named_parameters():
        if not parameter.isfinite().all():
            raise BadInput(
                f"curvature: parameter {name!r} is not finite; the training diverged: lower its lr"
            )
        parameter.requires_grad_(True).grad = None
    assert not any(module.training for module in copy.modules())
    _check_answer(copy, images)
    return copy


@contextmanager
def differentiable() -> Iterator[None]:
    """Where answers can be differentiated more than once: torch's fused attention cannot, on a CPU."""
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        yield


def _check_answer(model: nn.Module, images: Images) -> None:
    with torch.enable_grad():
        logits = model(channels_last(images.x[:1]))
    highest = int(images.y.max())
    if logits.ndim != 2 or logits.shape[1] <= highest:
        raise BadInput(
            f"curvature: the model answers an image with shape {tuple(logits.shape)}, but labels go up to "
            f"{highest}; give a model with a logit for each class"
        )
    if not logits.isfinite().all():
        raise BadInput("curvature: the model's answers are not finite; give a model that works")
    check_gradient(logits, "parameters")


def check_gradient(answers: Tensor, inputs: str) -> None:
    """Refuse `answers` that cannot be differentiated by the `inputs`."""
    if not answers.requires_grad:
        raise BadInput(
            f"curvature: the model's answers have no gradient in its {inputs}; "
            "give a model that neither detaches tensors nor turns gradients off"
        )

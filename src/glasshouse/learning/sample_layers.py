"""The gradient of each sample by the tensors of one layer.

With a the layer's input at one sample and d the derivative of that sample's loss by its output:

    linear layer    dL/dW = d a', summed over places (tokens) where there are several
    convolution     the same, with the patches under the kernel for a, and pixels for places
    norms           dL/dW = d times the normalised input, summed over places
    bias            dL/db = d, summed over places
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDE = 10_000_000
"""Products a sample from which oneDNN's own convolution beats patches and a matrix product."""

PATCH_BYTES = 1 << 20
"""Memory that the patches of some samples may take at once: little enough to stay near the cache."""


def known(layer: nn.Module) -> bool:
    """Whether `derivative` knows the layer."""
    if isinstance(layer, nn.Conv2d):
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
        return layer.running_mean is not None
    return isinstance(layer, nn.Linear | nn.LayerNorm | nn.GroupNorm)


@torch.no_grad()
def derivative(layer: nn.Module, kind: str, a: Tensor, d: Tensor) -> Tensor:
    """The gradients by the layer's tensor `kind`, weight or bias, shape (N, *its own) and its type.

    `a`, shape (N, ...), are inputs and `d`, shape (N, ...), derivatives by outputs. Both may be of a lower
    precision, in which the products are then taken.
    """
    parameter: Tensor = getattr(layer, kind)
    if kind == "weight":
        if isinstance(layer, nn.Conv2d):
            gradients = _convolution(layer, a.to(d.dtype), d)
        elif isinstance(layer, nn.Linear):
            gradients = _linear(a.to(d.dtype), d)
        else:
            gradients = _over_places(layer, d.to(parameter.dtype) * _normalised(layer, a.to(parameter.dtype)))
    else:
        gradients = _over_places(layer, d.to(parameter.dtype))
    return gradients.to(parameter.dtype).reshape(len(a), *parameter.shape)


def _over_places(layer: nn.Module, values: Tensor) -> Tensor:
    """The sum over all axes but that of samples and those of the layer's bias."""
    if isinstance(layer, nn.Linear | nn.LayerNorm):
        kept = 1 if isinstance(layer, nn.Linear) else len(layer.normalized_shape)
        places = tuple(range(1, values.ndim - kept))
    else:
        places = tuple(range(2, values.ndim))
    return values.sum(places) if places else values


def _linear(a: Tensor, d: Tensor) -> Tensor:
    if a.ndim == 2:
        return d[:, :, None] * a[:, None, :]
    return d.flatten(1, -2).mT @ a.flatten(1, -2)


def _normalised(layer: nn.Module, a: Tensor) -> Tensor:
    """What the layer multiplies by its weight."""
    if isinstance(layer, nn.LayerNorm):
        return F.layer_norm(a, layer.normalized_shape, eps=layer.eps)
    if isinstance(layer, nn.GroupNorm):
        return F.group_norm(a, layer.num_groups, eps=layer.eps)
    assert isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)
    return F.batch_norm(a, layer.running_mean, layer.running_var, eps=layer.eps)


def _convolution(layer: nn.Conv2d, a: Tensor, d: Tensor) -> Tensor:
    products = layer.weight.numel() * math.prod(d.shape[2:])
    by_sample = _whole_kernel if products >= WIDE else _patches
    taps = layer.weight[0].numel() * layer.groups
    together = max(1, PATCH_BYTES // (taps * math.prod(d.shape[2:]) * d.element_size()))
    gradients = layer.weight.new_empty(len(a), *layer.weight.shape)
    for part, one_a, one_d in zip(gradients.split(together), a.split(together), d.split(together)):
        part.copy_(by_sample(layer, one_a, one_d))
    return gradients


def _patches(layer: nn.Conv2d, a: Tensor, d: Tensor) -> Tensor:
    """By a product of matrices for each sample and group: (outputs, places) with (places, taps x inputs).

    With the channels last, what lies under a row of the kernel is one piece of memory.
    """
    assert not isinstance(layer.padding, str)
    (above, left), (height, width), groups = layer.padding, layer.kernel_size, layer.groups
    padded = F.pad(a.permute(0, 2, 3, 1), (0, 0, left, left, above, above)).contiguous()
    sample, row, column, _ = padded.stride()
    (down, right), (between_rows, between_columns) = layer.stride, layer.dilation
    patches = padded.as_strided(
        (len(a), *d.shape[2:], height, width, padded.shape[3]),
        (sample, row * down, column * right, row * between_rows, column * between_columns, 1),
    )
    by_group = patches.reshape(len(a), -1, height * width, groups, padded.shape[3] // groups)
    inputs = by_group.permute(0, 3, 1, 2, 4).reshape(len(a), groups, by_group.shape[1], -1)
    outputs = d.permute(0, 2, 3, 1).reshape(len(a), -1, groups, d.shape[1] // groups)
    gradients = outputs.permute(0, 2, 3, 1) @ inputs
    return gradients.view(len(a), d.shape[1], height, width, -1).permute(0, 1, 4, 2, 3)


def _whole_kernel(layer: nn.Conv2d, a: Tensor, d: Tensor) -> Tensor:
    """By the backward pass of the convolution, sample by sample."""
    weight = layer.weight.to(d.dtype)
    shape = (layer.stride, layer.padding, layer.dilation, False, (0, 0), layer.groups)
    back = torch.ops.aten.convolution_backward
    wanted = (False, True, False)
    return torch.stack(
        [back(one_d, one_a, weight, None, *shape, wanted)[1] for one_a, one_d in zip(a.split(1), d.split(1))]
    )

"""The same network with less work for a CPU: memory order, order of layers, masks and matrix products."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

LARGE = 100_000
"""Weights from which a matrix product gains more by oneDNN than the detour costs."""


def channels_last(x: Tensor) -> Tensor:
    """`x` in the memory order that makes convolutions faster on a CPU."""
    return x.contiguous(memory_format=torch.channels_last)


def laid_out(model: nn.Module) -> nn.Module:
    """`model` laid out for training: the same function of the same parameters, faster.

    Changes `model`, and only layers of torch's own types, whose meaning is known.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        elif type(module) is nn.MaxPool2d and not module.return_indices:
            module.register_forward_hook(_keep_order)
        elif type(module) is nn.Dropout:
            module.__class__ = _Dropout
        elif type(module) is nn.Linear and module.weight.numel() >= LARGE and _has_onednn():
            module.__class__ = _Linear
        elif type(module) is nn.Sequential:
            _pool_first(module)
    return model


def _keep_order(pooling: nn.Module, inputs: tuple[Tensor, ...], pooled: Tensor) -> None:
    """Have the gradient of `pooled` arrive in its order: else pooling copies its large input's twice."""
    if pooled.requires_grad and pooled.is_contiguous(memory_format=torch.channels_last):
        pooled.register_hook(channels_last)


def _pool_first(layers: nn.Sequential) -> None:
    """Pool before ReLU: both are monotone, so the numbers are the same, on fewer pixels."""
    for place, (rectify, pool) in enumerate(pairwise(list(layers))):
        if type(rectify) is nn.ReLU and type(pool) is nn.MaxPool2d and not pool.return_indices:
            layers[place], layers[place + 1] = pool, rectify


class _Dropout(nn.Dropout):
    """Dropout with a mask from uniform numbers, which a CPU draws in half the time of Bernoulli ones."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 1:
            return super().forward(x)
        return x * torch.rand_like(x).ge(self.p).to(x.dtype).div_(1 - self.p)


class _Linear(nn.Linear):
    """A linear layer by oneDNN, which knows CPUs for which torch's BLAS has no kernels."""

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 2 or x.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
            return super().forward(x)
        product: Tensor = _Product.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    """x W^T + b for x of shape (N, I), W of shape (O, I) and b of shape (O,) or None."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _onednn(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        x, weight, bias = inputs
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        # The gradient can itself be differentiated only through products that torch knows.
        product = torch.nn.functional.linear if torch.is_grad_enabled() else _onednn
        to_x, to_weight, to_bias = ctx.needs_input_grad
        return (
            product(grad, weight.t(), None) if to_x else None,
            product(grad.t(), x.t(), None) if to_weight else None,
            grad.sum(0) if to_bias and ctx.biased else None,
        )


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")

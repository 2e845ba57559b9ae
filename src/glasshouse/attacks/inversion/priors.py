"""What images look like, whatever the gradient: penalties that a search for them adds to its objective.

All are differentiable scalars of images of shape (..., C, H, W), with any number of channels.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.attacks.inversion.updates import BatchNorm
from glasshouse.errors import CannotRun


def total_variation(x: Tensor) -> Tensor:
    """The mean difference of neighbouring pixels, along both axes."""
    across = (x[..., 1:] - x[..., :-1]).abs().mean() if x.shape[-1] > 1 else x.new_zeros(())
    down = (x[..., 1:, :] - x[..., :-1, :]).abs().mean() if x.shape[-2] > 1 else x.new_zeros(())
    return across + down


def energy(x: Tensor) -> Tensor:
    """The mean over images of the length of an image's pixel vector."""
    length: Tensor = x.flatten(-3).norm(dim=-1)
    return length.mean()


def patch_seams(x: Tensor, side: int) -> Tensor:
    """The mean over images of how much pixels differ across the borders of patches, `side` pixels wide."""
    height, width = x.shape[-2:]
    rows, columns = torch.arange(side, height, side), torch.arange(side, width, side)
    down = (x[..., rows, :] - x[..., rows - 1, :]).square().sum((-3, -2, -1))
    across = (x[..., columns] - x[..., columns - 1]).square().sum((-3, -2, -1))
    return (down + across).mean()


@dataclass(frozen=True, eq=False)
class LayerStatistics:
    """Mean and variance of each channel that enters a batch norm layer, both of shape (channels,)."""

    mean: Tensor
    var: Tensor


Statistics = Mapping[str, LayerStatistics]
"""Those of every batch norm layer, by its name."""


@dataclass(frozen=True, eq=False)
class StatisticsPrior:
    """The statistics that images are expected to have on their way through `network`."""

    network: nn.Module
    expected: Statistics


def check_batch_norm(network: nn.Module) -> None:
    """Raise `CannotRun` where the network has no batch norm."""
    if not any(_layers(network)):
        raise CannotRun("the network has no batch norm whose statistics images could have")


def running_statistics(network: nn.Module) -> dict[str, LayerStatistics]:
    """Those that the network carries: of all the batches that it was trained on."""
    return {
        name: LayerStatistics(layer.running_mean.clone(), layer.running_var.clone())
        for name, layer in _layers(network)
        if layer.running_mean is not None and layer.running_var is not None
    }


def passing_statistics(network: nn.Module, x: Tensor) -> dict[str, LayerStatistics]:
    """Those of images of shape (N, C, H, W) on their way through the network, in its present mode."""
    with watching_statistics(network) as seen:
        network(x)
    return dict(seen)


@contextmanager
def watching_statistics(network: nn.Module) -> Iterator[dict[str, LayerStatistics]]:
    """A mapping that holds, after each pass through the network, the statistics of the batch that passed."""
    seen: dict[str, LayerStatistics] = {}

    def note(name: str, entering: Tensor) -> None:
        others = [axis for axis in range(entering.ndim) if axis != 1]
        seen[name] = LayerStatistics(entering.mean(others), entering.var(others, unbiased=False))

    hooks = [
        layer.register_forward_pre_hook(lambda _, inputs, name=name: note(name, inputs[0]))
        for name, layer in _layers(network)
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def statistics_distance(statistics: Statistics, expected: Statistics) -> Tensor:
    """The sum over layers of the lengths of the differences of means, and of those of variances."""
    return torch.stack(
        [
            (statistics[name].mean - layer.mean).norm() + (statistics[name].var - layer.var).norm()
            for name, layer in expected.items()
        ]
    ).sum()


def _layers(network: nn.Module) -> Iterable[tuple[str, nn.modules.batchnorm._BatchNorm]]:
    return ((name, layer) for name, layer in network.named_modules() if isinstance(layer, BatchNorm))

"""A classifier's linear layers turned into a sorting machine for its latents.

The rows of the first linear layer are shared among a few feature directions, each with thresholds that cut
its values into bins (see `leakage`). All further layers give each row the same say, so that a sample has the
same loss weight in every row it activates. With the rows scaled down until the softmax hardly moves, this
weight is set by the sample's label alone, and the server chooses it: each class gets a number of its own,
with magnitudes between 5/7 and 9/7 and either sign. Two samples in one bin then add up to less than 4/7 or
more than 10/7, so that a bin's weight tells whether a sample is alone there, and of which class it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glasshouse.attacks.crafted.leakage import Law, thresholds

FLOOR = 1e-3
"""The bias that keeps hidden layers behind the first one active."""


@dataclass(frozen=True, eq=False)
class Sorter:
    """Directions in latent space, shape (D, d), and for each the rising thresholds of its rows."""

    directions: Tensor
    cuts: tuple[Tensor, ...]

    @property
    def rows(self) -> list[slice]:
        """Where each direction's rows lie in the first layer."""
        ends = np.cumsum([len(cut) for cut in self.cuts])
        return [slice(int(end) - len(cut), int(end)) for end, cut in zip(ends, self.cuts)]

    def bins(self, latents: Tensor) -> Tensor:
        """The bin of each latent, shape (N, d), in each direction, shape (N, D); -1 below all thresholds."""
        features = latents.double() @ self.directions.double().T
        columns = [
            torch.searchsorted(cut, features[:, place].contiguous(), right=True) - 1
            for place, cut in enumerate(self.cuts)
        ]
        return torch.stack(columns, dim=1)


def make_sorter(latents: Tensor, rows: int, directions: int, law: Law) -> Sorter:
    """A sorter for latents like those given, shape (N, d).

    One direction is the latents' mean, their brightness; several are their principal components, which are
    uncorrelated, so that samples that meet in a bin of one part in the others.
    """
    width = latents.shape[1]
    if directions == 1:
        axes = torch.full((1, width), 1 / width, dtype=torch.double)
    else:
        centred = latents.double() - latents.double().mean(0)
        _, vectors = torch.linalg.eigh(centred.T @ centred)
        axes = vectors[:, -directions:].T.flip(0).contiguous()
    share = [rows // directions + (place < rows % directions) for place in range(directions)]
    features = latents.double() @ axes.T
    cuts = tuple(thresholds(features[:, place], count, law) for place, count in enumerate(share))
    return Sorter(axes, cuts)


def class_weights(classes: int) -> tuple[Tensor, Tensor]:
    """For each class its loss weight, and the probability that the network must give it, both (classes,).

    With these probabilities the expected weight is zero, so that a sample's weight is its own class's.
    """
    magnitudes = torch.linspace(5, 9, classes, dtype=torch.double) / 7
    weights = magnitudes * torch.tensor([1.0 if place % 2 else -1.0 for place in range(classes)])
    positive = weights > 0
    up, down = weights[positive].mean(), -weights[~positive].mean()
    share = torch.where(positive, down, up) / (up + down)
    counts = torch.where(positive, positive.sum(), (~positive).sum())
    return weights, share / counts


def write_sorter(
    named: dict[str, Tensor], linear: Sequence[str], sorter: Sorter, gain: float, tilt: float
) -> None:
    """Write `sorter` into the linear layers of a model, given as views of its vector by name.

    A sample of class c adds -`gain` times the class's weight to the gradient of each row it activates. The
    logits move by at most about `tilt`.
    """
    first, *hidden, last = linear
    weights, probabilities = class_weights(len(named[f"{last}.bias"]))
    reach = sum(float((cut[-1] - cut).sum()) for cut in sorter.cuts)
    scale = tilt / (gain * reach * float(weights.abs().max()))
    for rows, direction, cut in zip(sorter.rows, sorter.directions, sorter.cuts):
        named[f"{first}.weight"][rows] = (scale * direction).float()
        named[f"{first}.bias"][rows] = (-scale * cut).float()
    width, floor = named[f"{first}.weight"].shape[0], 0.0
    for name in hidden:
        # The first hidden layer adds the rows up, each further one passes the same sum on.
        named[f"{name}.weight"].fill_(gain if name == hidden[0] else 1 / width)
        named[f"{name}.bias"].fill_(FLOOR)
        floor += FLOOR
        width = named[f"{name}.weight"].shape[0]
    say = weights / width if hidden else weights * gain
    named[f"{last}.weight"][:] = say.float()[:, None]
    named[f"{last}.bias"][:] = (probabilities.log() - weights * floor).float()

"""A classifier's linear layers turned into a sorting machine for its latents.

The rows of the first linear layer are shared among a few feature directions, each with thresholds that cut
its values into bins (see `leakage`). All further layers treat the rows alike but for their signs, which run
+ - - + and are known, so that a sample has the same loss weight in every row it activates, while the sum over
the rows stays within a few bins' width however many there are: the softmax hardly moves.

So the loss weight is set by the sample's label alone, and the server chooses it: each class gets a number
of its own, with magnitudes between 5/7 and 9/7 and either sign. Two samples in one bin then add up to less
than 4/7 or more than 10/7: a bin's weight tells whether a sample is alone there, and of which class it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glasshouse.attacks.crafted.leakage import Law, thresholds

MARGIN = 4.0
"""How far hidden layers stay from closing, in units of how far auxiliary latents move them."""


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

    @property
    def signs(self) -> Tensor:
        """The sign with which the further layers take each row, shape (k,)."""
        pattern = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.double)
        return torch.cat([pattern.repeat(-(-len(cut) // 4))[: len(cut)] for cut in self.cuts])

    def answers(self, latents: Tensor) -> Tensor:
        """The signed sum of all rows for each latent, shape (N,)."""
        features = latents.double() @ self.directions.T
        rows = [(features[:, [place]] - cut).relu() for place, cut in enumerate(self.cuts)]
        return torch.cat(rows, dim=1) @ self.signs

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
    named: dict[str, Tensor], linear: Sequence[str], sorter: Sorter, latents: Tensor, gain: float, tilt: float
) -> None:
    """Write `sorter` into the linear layers of a model, given as views of its vector by name.

    A sample of class c adds -`gain` times the class's weight to the gradient of each row it activates. The
    logits of `latents`, shape (N, d), move by at most `tilt`.
    """
    first, *hidden, last = linear
    weights, probabilities = class_weights(len(named[f"{last}.bias"]))
    answers = sorter.answers(latents)
    middle = float(answers.mean())
    reach = float((answers - middle).abs().max())
    scale = tilt / (gain * reach * float(weights.abs().max()))
    for rows, direction, cut in zip(sorter.rows, sorter.directions, sorter.cuts):
        named[f"{first}.weight"][rows] = (scale * direction).float()
        named[f"{first}.bias"][rows] = (-scale * cut).float()
    columns = gain * sorter.signs
    offset = -gain * scale * middle
    if hidden:
        offset += MARGIN * gain * scale * reach  # keeps the ReLU of the hidden layers open
        named[f"{hidden[0]}.weight"][:] = columns.float()
        named[f"{hidden[0]}.bias"].fill_(offset)
        offset = MARGIN * gain * scale * reach
    for name in hidden[1:]:
        named[f"{name}.weight"].fill_(1 / named[f"{name}.weight"].shape[1])
        named[f"{name}.bias"].zero_()
    width = named[f"{last}.weight"].shape[1]
    say = weights[:, None] / width if hidden else weights[:, None] * columns
    named[f"{last}.weight"][:] = say.float()
    named[f"{last}.bias"][:] = (probabilities.log() + weights * (-offset if hidden else offset)).float()

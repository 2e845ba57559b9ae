"""A classifier's linear layers turned into a sorting machine for its latents.

The rows of the first linear layer are shared among a few feature directions, each with thresholds that cut
its values into bins (see `leakage`). All further layers treat the rows alike but for their signs, which run
+ - - + and are known, so that a sample has the same loss weight in every row it activates, while the sum over
the rows stays within a few bins' width however many there are: the softmax hardly moves.

So the loss weight is set by the sample's label alone, and the server chooses it. With several directions, or
several local steps, each class gets a number with a magnitude between 5/7 and 9/7 and either sign: two
samples in one bin add up to less than 4/7 or more than 10/7, so a bin's weight tells whether a sample is
alone there, and of which class it is. With one direction, where mixtures cannot be resolved, all classes but
one get positive numbers that differ by steady factors: the heavier of two samples stands out in a mixture.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from glasshouse.attacks.crafted.leakage import Law, bin_sums, signs, thresholds
from glasshouse.attacks.crafted.surrogate import Surrogate
from glasshouse.learning.layout import Layout

TILT = 1e-3
"""How far the logits may move where nothing else limits the rows."""

HEAVIEST, LIGHTEST = 20.0, 0.3
"""The largest positive weight of a class where the least is 1, and the weight of the one class against it.

Chosen on auxiliary images, by benchmarks/scale_mia_constants.py.
"""

SPARE, SWEEPS = 8, 12
"""For principal axes: directions beyond those asked for, which speed the iteration up, and its length."""

ENOUGH = 2_000
"""As many auxiliary latents show how far they move the logits."""

MARGIN = 4.0
"""How far hidden layers stay from closing, in units of how far auxiliary latents move them."""


@dataclass(frozen=True, eq=False)
class Sorter:
    """Directions in latent space, shape (D, d), and for each the rising thresholds of its rows.

    The rows of all directions, one after the other, may be more than the layer has: a sorter then takes
    several rounds, each with a page of its rows.
    """

    directions: Tensor
    cuts: tuple[Tensor, ...]

    @property
    def rows(self) -> list[slice]:
        """Where each direction's rows lie among all rows."""
        ends = np.cumsum([len(cut) for cut in self.cuts])
        return [slice(int(end) - len(cut), int(end)) for end, cut in zip(ends, self.cuts)]

    @cached_property
    def closing(self) -> Tensor:
        """Which rows are the last of their direction, shape (K,)."""
        return torch.cat([torch.arange(len(cut)) == len(cut) - 1 for cut in self.cuts])

    def pages(self, width: int) -> list[Tensor]:
        """The rows of each round, `width` at a time; the last of a page comes again as first of the next."""
        total = len(self.closing)
        starts = range(0, max(total - 1, 1), width - 1)
        return [torch.arange(start, min(start + width, total)) for start in starts]

    def layer(self, page: Tensor) -> tuple[Tensor, Tensor]:
        """Weights, shape (k, d), and biases, shape (k,), that give each row's feature less its threshold."""
        owner = torch.cat([torch.full((len(cut),), place) for place, cut in enumerate(self.cuts)])
        return self.directions[owner[page]], -torch.cat(self.cuts)[page]

    def bins(self, latents: Tensor) -> Tensor:
        """The bin of each latent, shape (N, d), in each direction, shape (N, D); -1 below all thresholds."""
        features = latents.double() @ self.directions.T
        columns = [
            torch.searchsorted(cut, features[:, place].contiguous(), right=True) - 1
            for place, cut in enumerate(self.cuts)
        ]
        return torch.stack(columns, dim=1)

    def read(self, page: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The bins that a page shows, their weighted inputs and their weights.

        Takes what its rows' weights, shape (k, d), and biases, shape (k,), moved by.
        """
        sums, weights = bin_sums(weight, bias)
        closing = self.closing[page]
        sums[closing], weights[closing] = weight[closing], bias[closing]
        complete = len(page) if closing[-1] else len(page) - 1
        return page[:complete], sums[:complete], weights[:complete]


def make_sorter(latents: Tensor, rows: int, directions: int, law: Law) -> Sorter:
    """A sorter for latents like these, shape (N, d).

    One direction is the latents' mean, their brightness; several are their principal components, which are
    uncorrelated, so that samples that meet in a bin of one part in the others.
    """
    width = latents.shape[1]
    if directions == 1:
        axes = torch.full((1, width), 1 / width, dtype=torch.double)
    else:
        axes = principal_axes(latents, directions)
    share = [rows // directions + (place < rows % directions) for place in range(directions)]
    features = latents.double() @ axes.T
    cuts = tuple(thresholds(features[:, place], count, law) for place, count in enumerate(share))
    return Sorter(axes, cuts)


def principal_axes(latents: Tensor, count: int) -> Tensor:
    """The first `count` principal components of latents (N, d) as unit vectors, strongest first, (count, d).

    Found by subspace iteration: a few products with the latents instead of all d eigenvectors, which would
    take minutes where d is thousands.
    """
    centred = latents - latents.mean(0)
    width = latents.shape[1]
    start = torch.randn(width, min(count + SPARE, width), generator=torch.Generator().manual_seed(0))
    basis = torch.linalg.qr(start)[0]
    for _ in range(SWEEPS):
        basis = torch.linalg.qr(centred.T @ (centred @ basis))[0]
    inside = (centred @ basis).double()
    _, turn = torch.linalg.eigh(inside.T @ inside)
    axes: Tensor = (basis.double() @ turn).T.flip(0)[:count].contiguous()
    axes /= axes.norm(dim=1, keepdim=True)
    return axes


def class_weights(classes: int, *, alone: bool) -> tuple[Tensor, Tensor]:
    """For each class its loss weight, and the probability that the network must give it, both (classes,).

    With these probabilities the expected weight is zero, so that a sample's weight is its own class's. A
    direction that is `alone` cannot resolve mixtures.
    """
    if not alone:
        magnitudes = torch.linspace(5, 9, classes, dtype=torch.double) / 7
        weights = magnitudes * torch.tensor([1.0 if place % 2 else -1.0 for place in range(classes)])
    else:
        weights = torch.logspace(0, 1, classes, HEAVIEST, dtype=torch.double)
        weights[0] = -LIGHTEST  # they cannot all be positive
    positive = weights > 0
    up, down = weights[positive].mean(), -weights[~positive].mean()
    share = torch.where(positive, down, up) / (up + down)
    counts = torch.where(positive, positive.sum(), (~positive).sum())
    return weights, share / counts


def sorting_model(
    surrogate: Surrogate,
    layout: Layout,
    rows: tuple[Tensor, Tensor],
    code: tuple[Tensor, Tensor],
    gain: float,
    scale: float | None,
) -> Tensor:
    """The surrogate's model, shape (P,), with a page of a sorter, its `rows`, in its linear layers.

    A sample adds -`gain` times its class's weight, the first of `code` (see `class_weights`), to the gradient
    of each row that it activates. Rows are scaled by `scale`, or so that the surrogate's latents move the
    logits by at most 0.001.
    """
    vector, latents = surrogate.vector.clone(), surrogate.latents[:ENOUGH]
    named = layout.named(vector)
    first, *hidden, last = surrogate.cut.linear
    weights, probabilities = code
    columns = torch.zeros(len(named[f"{first}.bias"]), dtype=torch.double)
    columns[: len(rows[1])] = signs(len(rows[1]))
    answers = (latents.double() @ rows[0].T + rows[1]).relu() @ columns[: len(rows[1])]
    middle = float(answers.mean())
    reach = max(float((answers - middle).abs().max()), 1e-12)
    scale = scale or TILT / (gain * reach * float(weights.abs().max()))
    named[f"{first}.weight"].zero_()[: len(rows[0])] = (scale * rows[0]).float()
    named[f"{first}.bias"].zero_()[: len(rows[1])] = (scale * rows[1]).float()
    # What all samples add alike is taken off; hidden layers get some back, so that their ReLU stays open.
    common, spare = gain * scale * middle, MARGIN * gain * scale * reach
    if hidden:
        named[f"{hidden[0]}.weight"][:] = (gain * columns).float()
        named[f"{hidden[0]}.bias"].fill_(spare - common)
    for name in hidden[1:]:
        named[f"{name}.weight"].fill_(1 / named[f"{name}.weight"].shape[1])
        named[f"{name}.bias"].zero_()
    width = named[f"{last}.weight"].shape[1]
    row = torch.full((width,), 1 / width, dtype=torch.double) if hidden else gain * columns
    named[f"{last}.weight"][:] = (weights[:, None] * row).float()
    named[f"{last}.bias"][:] = (probabilities.log() - weights * (spare if hidden else common)).float()
    return vector

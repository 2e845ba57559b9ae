"""Scale-MIA as published: a whole global batch from the sum of the updates (Shi et al. 2023).

All k neurons of the first linear layer measure a latent's mean, w1 = 1/d, each against a threshold of its
own: the quantiles of a normal law that is fitted to the means of auxiliary latents. The second layer is
constant, 1/k, so that a sample has the same loss weight in every neuron that it activates. All further layers
stay as they are. A latent is then the quotient of two differences between neighbouring neurons (eq. 5).

What the paper leaves open is as in its authors' code: the thresholds' probabilities run from 0.001 to 0.999,
because the paper's i/k would put the last one at infinity, and the biases of the second layer are 1 over
their number, which keeps its ReLU open. That code also draws the last layer anew, from U(0, 1), which the
paper does not mention and which makes updates about ten times as large: `last='drawn'` does so too.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from scipy import stats
from torch import Tensor

from glasshouse.access import BlindServerAccess
from glasshouse.attacks.crafted.cut import Cut
from glasshouse.attacks.crafted.latent_attack import LatentAttack
from glasshouse.attacks.crafted.leakage import bin_sums, quotients
from glasshouse.attacks.crafted.reading import Crafted
from glasshouse.attacks.crafted.surrogate import Surrogate
from glasshouse.data.images import Images
from glasshouse.errors import CannotRun
from glasshouse.federation.updates import Delivery
from glasshouse.options import check_choice

LastLayer = Literal["kept", "drawn"]

END = 0.001
"""The probability below the first threshold, and above the last."""


@dataclass(frozen=True, kw_only=True)
class ScaleMIA(LatentAttack):
    """Scale-MIA as published: weights 1/d, then a constant layer, and a normal law for the thresholds.

    The autoencoder is trained for `steps` of `batch_size` images, unless one is granted. The `last` layer is
    kept as it is, or drawn as in the authors' code. Where it is the second one the attack cannot run:
    identical rows leave all classes the same, and no gradient.
    """

    name = "scale-mia"
    last: LastLayer = "kept"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.name, "last", self.last, get_args(LastLayer))

    def check_cut(self, cut: Cut) -> None:
        if len(cut.linear) < 3:
            raise CannotRun(
                "the second linear layer is the last: identical rows there pass no gradient back, since the "
                "derivatives of a softmax sum to zero; scale-mia-coded works with two layers"
            )

    def craft(
        self, surrogate: Surrogate, access: BlindServerAccess, auxiliary: Images, rng: torch.Generator
    ) -> "LeakingModel":
        layout, (first, second, *further) = access.protocol.layout, surrogate.cut.linear
        vector = surrogate.vector.clone()
        sent, current = layout.named(vector), layout.named(access.current)
        rows, width = sent[f"{first}.weight"].shape
        sent[f"{first}.weight"].fill_(1 / width)
        sent[f"{first}.bias"][:] = -brightness_quantiles(surrogate.latents, rows)
        sent[f"{second}.weight"].fill_(1 / rows)
        sent[f"{second}.bias"].fill_(1 / len(sent[f"{second}.bias"]))
        for name in further:
            for part in ("weight", "bias"):
                sent[f"{name}.{part}"][:] = current[f"{name}.{part}"]
        if self.last == "drawn":
            for part in ("weight", "bias"):
                sent[f"{further[-1]}.{part}"].uniform_(generator=rng)
        return LeakingModel((vector,), surrogate, access.protocol, access.sizes)


class LeakingModel(Crafted):
    """One model whose first linear layer leaks latents as differences between neighbouring neurons."""

    def latents(self, deliveries: list[Delivery | None]) -> Tensor:
        """A latent of each gap with a bias difference, the largest differences first, shape (n, d)."""
        (delivery,) = deliveries
        assert delivery is not None
        sums, weights = bin_sums(*self.moved(self.vectors[0], delivery))
        gaps = weights.nonzero().flatten()
        gaps = gaps[weights[gaps].abs().argsort(descending=True)]
        return quotients(sums[gaps], weights[gaps]).float()


def brightness_quantiles(latents: Tensor, count: int) -> Tensor:
    """`count` rising quantiles of the normal law fitted to the means of latents (N, d), shape (count,)."""
    means = latents.double().mean(1).numpy()
    probabilities = torch.linspace(END, 1 - END, count, dtype=torch.double).numpy()
    return torch.from_numpy(stats.norm.ppf(probabilities, means.mean(), means.std()))

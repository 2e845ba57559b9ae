"""Differential privacy for whole clients: clipped updates, and noise on their sum (McMahan et al. 2018)."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from glasshouse.defences.accounting import neighbours, spent
from glasshouse.defences.budget import Course, check_budget, refuse_statistics, solved, unsettled
from glasshouse.defences.defence import Defence
from glasshouse.defences.perturbation import Clipping
from glasshouse.defences.promise import SUMMING, Conditions, Promise
from glasshouse.learning.layout import Layout
from glasshouse.learning.recipe import Recipe
from glasshouse.options import check_choice, check_whole

NAME = "differential-privacy"

SURELY = 8.0
"""As many standard deviations no entry of a noise exceeds: in 10^9 entries with a chance of 10^-6."""


@dataclass(frozen=True, kw_only=True)
class DifferentialPrivacy(Defence):
    """Clips each update to the length `norm` (L2), and adds normal noise to their sum: privacy of clients.

    The noise has the standard deviation `noise` * `norm`, 1 * `norm` unless given or solved for
    `target_epsilon` at `delta`. All clients weigh the same, and the sum is divided by `clients`, whoever took
    part: by default as many as take part in a round on average. With the `sampling` "poisson" each client
    takes part by its own draw, with "fixed" always the same number of them. Through secure aggregation the
    clients add shares of the noise, else whoever sums.
    """

    norm: float = 1.0
    noise: float | None = None
    target_epsilon: float | None = None
    delta: float = 1e-5
    clients: int | None = None
    sampling: Literal["poisson", "fixed"] = "poisson"

    shares_noise = True

    def __post_init__(self) -> None:
        check_budget(NAME, self.norm, self.noise, self.target_epsilon, self.delta)
        check_choice(NAME, "sampling", self.sampling, ("poisson", "fixed"))
        if self.clients is not None:
            check_whole(NAME, "clients", self.clients, 1)
        if self.noise is None and self.target_epsilon is None:
            object.__setattr__(self, "noise", 1.0)

    def settled(self, conditions: Conditions) -> "DifferentialPrivacy":
        noise = self.noise
        if noise is None:
            assert self.target_epsilon is not None
            noise = solved([self._course(conditions)], self.target_epsilon, self.delta)
        clients = self.clients or conditions.cohort
        return dataclasses.replace(self, noise=noise, target_epsilon=None, clients=clients)

    def promises(self, conditions: Conditions) -> tuple[Promise, ...]:
        noise = self.settled(conditions).noise
        assert noise is not None
        sampling, rate, steps = self._course(conditions)
        epsilon, accountant = spent(noise, rate, steps, self.delta, sampling)
        if conditions.reports:
            epsilon = math.inf
        promise = Promise(
            unit="client",
            epsilon=epsilon,
            delta=self.delta,
            noise=noise,
            rate=rate,
            steps=steps,
            sampling=sampling,
            neighbours=neighbours(sampling, public=self.clients is not None and conditions.trusted),
            accountant=accountant,
            trust=_trusted(conditions),
            notes=tuple(self._notes(conditions)),
        )
        return (promise,)

    def poisson(self, conditions: Conditions) -> bool:
        return self._course(conditions).sampling == "poisson"

    def check(self, model: nn.Module, recipe: Recipe) -> None:
        refuse_statistics(NAME, model, recipe)

    @property
    def divisor(self) -> int:
        if self.clients is None:
            raise unsettled(NAME)
        return self.clients

    @property
    def std(self) -> float:
        """The standard deviation of the noise on the mean."""
        return self._summed_std / self.divisor

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        clipped = Clipping(norm=self.norm).on_update(delta, layout, rng)
        clipped[layout.trainable :] = 0  # buffers would travel without a bound
        return clipped

    def on_masking(self, delta: Tensor, layout: Layout, rng: torch.Generator, shares: int) -> Tensor:
        return _noisy(delta, layout, self._summed_std / math.sqrt(shares), rng)

    def largest_masked(self, shares: int) -> float:
        return self.norm + SURELY * self._summed_std / math.sqrt(shares)

    def canary_length(self, layout: Layout) -> float:
        return self.norm

    def on_aggregate(self, mean: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        return _noisy(mean, layout, self.std, rng)

    @property
    def _summed_std(self) -> float:
        if self.noise is None:
            raise unsettled(NAME)
        return self.noise * self.norm

    def _course(self, conditions: Conditions) -> Course:
        """How clients are drawn; where the server sees who takes part, no draw hides them from it."""
        rate = conditions.cohort / len(conditions.sizes)
        if rate == 1 or not conditions.trusted or not conditions.at_random:
            return Course("all", 1.0, conditions.rounds)
        return Course("poisson" if self.sampling == "poisson" else "fixed-size", rate, conditions.rounds)

    def _notes(self, conditions: Conditions) -> list[str]:
        notes = []
        if self._course(conditions).sampling == "all" and conditions.cohort < len(conditions.sizes):
            seen = "is not drawn at random" if conditions.trusted else "is seen by the server"
            notes.append(f"every round counts for every client, as who takes part {seen}")
        if not conditions.trusted:
            notes.append(
                "each client adds a share of the noise, large enough for the fewest clients with which a "
                "round succeeds; the rounding of the masked sum, after the noise, is not accounted for"
            )
        if self.delta * len(conditions.sizes) >= 1:
            notes.append(f"delta is not below 1 / {len(conditions.sizes)}, the share of one client")
        return notes


def _trusted(conditions: Conditions) -> str:
    if conditions.trusted:
        return f"{SUMMING}, sees each of them, adds the noise and tells nobody who took part"
    return "the other clients to add their shares of the noise"


def _noisy(vector: Tensor, layout: Layout, std: float, rng: torch.Generator) -> Tensor:
    noise = torch.randn(layout.trainable, generator=rng)
    return torch.cat([vector[: layout.trainable] + std * noise, vector[layout.trainable :]])

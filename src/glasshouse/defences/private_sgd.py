"""Differential privacy for single records: clipped gradients, and noise on their sum (Abadi et al. 2016)."""

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.defences.accounting import neighbours, spent
from glasshouse.defences.budget import (
    MOST_COURSES,
    Course,
    check_budget,
    refuse_statistics,
    solved,
    worst_first,
)
from glasshouse.defences.defence import Defence
from glasshouse.defences.promise import Conditions, Promise
from glasshouse.learning.clipping import NoisySum
from glasshouse.learning.layout import Layout
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.step import Step
from glasshouse.options import check_whole

NAME = "dp-sgd"


@dataclass(frozen=True, kw_only=True)
class PrivateSGD(Defence):
    """Clips each record's gradient to the length `norm` (L2), with noise on their sum: privacy of records.

    The noise has the standard deviation `noise` * `norm`, 1 * `norm` unless given or solved for
    `target_epsilon` at `delta`. Each record of a client is in a batch by its own draw, with the chance
    batch_size / records, and the noisy sum is divided by the batch size, however many were drawn. How many
    `records` a client has is public: by default as many as it holds.
    """

    norm: float = 1.0
    noise: float | None = None
    target_epsilon: float | None = None
    delta: float = 1e-5
    records: int | None = None

    def __post_init__(self) -> None:
        check_budget(NAME, self.norm, self.noise, self.target_epsilon, self.delta)
        if self.records is not None:
            check_whole(NAME, "records", self.records, 1)
        if self.noise is None and self.target_epsilon is None:
            object.__setattr__(self, "noise", 1.0)

    def training(self) -> Step:
        return NoisySum(norm=self.norm, noise=self.noise, records=self.records)

    def settled(self, conditions: Conditions) -> "PrivateSGD":
        if self.target_epsilon is None:
            return self
        noise = solved(self._courses(conditions), self.target_epsilon, self.delta)
        return dataclasses.replace(self, noise=noise, target_epsilon=None)

    def promises(self, conditions: Conditions) -> tuple[Promise, ...]:
        noise, delta = self.settled(conditions).noise, self.delta
        assert noise is not None
        courses = self._courses(conditions)
        sampling, rate, steps = max(courses, key=lambda course: course.epsilon(noise, delta))
        epsilon, accountant = spent(noise, rate, steps, delta, sampling)
        if conditions.reports:
            epsilon = math.inf
        promise = Promise(
            unit="record",
            epsilon=epsilon,
            delta=delta,
            noise=noise,
            rate=rate,
            steps=steps,
            sampling=sampling,
            neighbours=neighbours(sampling, public=self.records is not None),
            accountant=accountant,
            notes=tuple(self._notes(conditions)),
        )
        return (promise,)

    def check(self, model: nn.Module, recipe: Recipe) -> None:
        refuse_statistics(NAME, model, recipe)

    def on_update(self, delta: Tensor, layout: Layout, rng: torch.Generator) -> Tensor:
        return torch.cat([delta[: layout.trainable], torch.zeros_like(delta[layout.trainable :])])

    def _courses(self, conditions: Conditions) -> list[Course]:
        """What each client does in all rounds, the most expensive first."""
        recipe, rounds = conditions.recipe, conditions.rounds
        sizes = {self.records or size for size in conditions.sizes if size}
        rates = ((recipe.batch(size) / size, recipe.total_steps(size)) for size in sizes)
        return worst_first(
            Course("poisson" if rate < 1 else "all", rate, rounds * steps) for rate, steps in rates
        )

    def _notes(self, conditions: Conditions) -> list[str]:
        notes = []
        if len({self.records or size for size in conditions.sizes}) > MOST_COURSES:
            notes.append("clients of similar sizes are counted as the worst of them")
        if len(set(conditions.sizes)) > 1 and self.records is None:
            notes.append("of the client for which it is worst")
        if conditions.cohort < len(conditions.sizes):
            notes.append("every round counts, though a client takes part in some of them")
        largest = max(conditions.sizes)
        if self.delta * largest >= 1:
            notes.append(f"delta is not below 1 / {largest}, the share of one record")
        return notes

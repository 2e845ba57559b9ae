"""The options by which a defence states its privacy budget, and how its noise is found."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from glasshouse.defences.accounting import noise_for, spent
from glasshouse.defences.promise import Sampling
from glasshouse.errors import BadInput
from glasshouse.learning.recipe import Recipe
from glasshouse.models.freezing import stays_in_eval
from glasshouse.options import check_number

MOST_COURSES = 32
"""As many courses are accounted for one by one; more are grouped."""


class Course(NamedTuple):
    """A noisy sum that is repeated: how units are drawn, their share in a step, and how many steps."""

    sampling: Sampling
    rate: float
    steps: int

    def epsilon(self, noise: float, delta: float) -> float:
        """What it spends."""
        return spent(noise, self.rate, self.steps, delta, self.sampling)[0]


def check_budget(
    owner: str, norm: object, noise: object, target_epsilon: object, delta: object, *, most: float = 1e6
) -> None:
    """Refuse numbers that make no budget, and a noise that is given twice."""
    check_number(owner, "norm", norm, 0, 1e6, open_low=True, open_high=True)
    check_number(owner, "delta", delta, 0, 1, open_low=True, open_high=True)
    if noise is not None and target_epsilon is not None:
        raise BadInput(
            f"{owner} has noise = {noise} and target_epsilon = {target_epsilon}, of which one follows from "
            "the other; give one of them"
        )
    if noise is not None:
        check_number(owner, "noise", noise, 0, most, open_high=True)
    if target_epsilon is not None:
        check_number(owner, "target_epsilon", target_epsilon, 0, 1e6, open_low=True)


def worst_first(courses: Iterable[Course]) -> list[Course]:
    """Courses that spend at least as much as any of `courses`, the most expensive by rule of thumb first.

    Of many, those of similar rates become one with the highest rate and the most steps among them.
    """
    kept: list[Course] = []
    for course in sorted(set(courses), key=lambda one: (-one.rate, -one.steps)):
        if not kept or course.steps > kept[-1].steps:  # else the one before has a higher rate, too
            kept.append(course)
    if len(kept) > MOST_COURSES:
        size = -(-len(kept) // MOST_COURSES)
        groups = [kept[start : start + size] for start in range(0, len(kept), size)]
        kept = [group[0]._replace(steps=group[-1].steps) for group in groups]
    return sorted(kept, key=lambda one: -(one.rate**2 * one.steps))


def solved(courses: Sequence[Course], epsilon: float, delta: float) -> float:
    """The least noise with which none of `courses` spends more than `epsilon`."""
    noise = 0.0
    for sampling, rate, steps in courses:
        if spent(noise, rate, steps, delta, sampling)[0] > epsilon:
            noise = noise_for(epsilon, rate, steps, delta, sampling)
    return noise


def unsettled(owner: str) -> BadInput:
    """The refusal of a defence whose noise depends on a plan that nobody gave."""
    return BadInput(
        f"{owner} cannot know its noise before the rounds and clients are known; run it by a plan, or give "
        "noise (and clients) instead of target_epsilon"
    )


def refuse_statistics(owner: str, model: nn.Module, recipe: Recipe) -> None:
    """Refuse a network that would send or mix statistics of its batches."""
    norms = [part for part in model.modules() if isinstance(part, _NormBase)]
    mixing = any(isinstance(norm, _BatchNorm) and not norm.track_running_stats for norm in norms)
    moving = [norm for norm in norms if norm.track_running_stats and not stays_in_eval(norm)]
    tracking = recipe.mode == "train" and bool(moving)
    if mixing or tracking:
        raise BadInput(
            f"{owner} covers no batch norm: its statistics mix the images of a batch and travel without "
            "noise; replace it by group norm"
        )

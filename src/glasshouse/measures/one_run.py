"""What right guesses about coin-flipped canaries say about (epsilon, delta): bounds from one training run.

After Mahloujifar, Melis and Chaudhuri, "Auditing f-differential privacy in one run" (2024), and Steinke, Nasr
and Jagielski, "Privacy auditing with one (1) training run" (2023).
"""

from collections.abc import Callable

import numpy as np

from glasshouse.measures.epsilon import (
    BALANCING_ERROR,
    ONE_SIDED,
    fair_coins,
    numbers_of_guesses,
    right_guesses,
)
from glasshouse.measures.estimate import LEVEL, Estimate
from glasshouse.measures.families import Family


def one_run_bound(
    scores: np.ndarray,
    member: np.ndarray,
    rng: np.random.Generator,
    *,
    family: Family,
    delta: float,
    coins: bool = False,
    signed: bool = False,
) -> Estimate:
    """The 95% lower bound on the epsilon at `delta` of adding or removing one unit, if `family` holds it.

    The r highest scores are called members and the r lowest non-members; the rest is abstained from. Every
    member of the family whose trade-off makes so many right guesses too unlikely is refuted; each r of a
    preset grid has its share of the error (Bonferroni). The bound is the epsilon of the strongest refuted.
    Scores that are `signed` are around 0 by design: positive ones are called members, the 2r farthest from 0.

    With `coins` a fair coin decided each membership. Else the number of members is fixed; a random part of
    the records is taken in which membership is as if coins had decided it, and what is tested is the exchange
    of two records. `n` counts the records used.
    """
    if not coins:
        scores, member = fair_coins(scores, member, rng)
        family = family.exchanging()
    canaries, error = len(scores), 1 - LEVEL - (0 if coins else BALANCING_ERROR)
    grid = numbers_of_guesses(canaries // 2)
    tail = error / max(1, len(grid))
    if signed:
        right = _right_signs(scores, member, rng)
        outcomes = [(int(right[2 * r - 1]), 2 * r) for r in grid]
    else:
        high, low = right_guesses(scores, member, rng)
        outcomes = [(int(high[r - 1] + low[r - 1]), 2 * r) for r in grid]
    # Guesses that are no better than a coin's refute nothing.
    outcomes = [(right, guesses) for right, guesses in outcomes if 2 * right > guesses]

    def refuted(strength: float) -> bool:
        unlikely = family.unlikely(strength)
        return any(unlikely(right, guesses, canaries, tail) for right, guesses in outcomes)

    strength = _strongest(refuted, family) if outcomes else 0.0
    bound = family.epsilon(strength, delta) if strength else 0.0
    return Estimate(bound, bound, None, canaries, f"{ONE_SIDED}, at delta {delta:g}, {family.assumes}")


def _right_signs(scores: np.ndarray, member: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """How many signs are right of the k scores farthest from 0, for every k from 1; a coin decides on 0."""
    tied = rng.random(len(scores))
    guessed = np.where(scores == 0, tied < 0.5, scores > 0)
    order = np.lexsort((rng.random(len(scores)), -np.abs(scores)))
    return np.cumsum((guessed == member)[order])


def _strongest(refuted: Callable[[float], bool], family: Family) -> float:
    """The strongest mechanism of the family that is surely refuted; 0 where none is."""
    low, high = family.range
    if not refuted(low):
        return 0.0
    if refuted(high):
        return high
    for _ in range(family.halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low

"""What differential privacy promises, and the public facts of a training that a promise depends on."""

import math
from dataclasses import dataclass
from typing import Literal

from glasshouse.learning.recipe import Recipe

Neighbours = Literal["add-remove", "zero-out", "replace"]
"""Data sets that differ in one unit: it is there or not, it adds nothing to any sum, or it is another one.

Where the number of units decides a divisor or a rate it is public, and a unit can be missing from the sums
but not from that number.
"""

Sampling = Literal["poisson", "fixed-size", "all"]
"""How units take part in a step: each by its own draw, a set of fixed size drawn at random, or all."""


TRUSTING = "trusting"
"""How the words of a promise begin that say who must be trusted."""

SUMMING = "whoever sums the updates"
"""Who must be trusted where updates travel without noise: the promise does not hold against them."""


@dataclass(frozen=True)
class Conditions:
    """What everybody knows of a federation before it trains.

    It runs for `rounds`, with a `fraction` of the clients in each, who hold as many records as `sizes` says
    and train by `recipe`. Where `trusted`, whoever sums the updates sees them and adds the noise; where not,
    it sees their sum alone and the clients add shares of it. Cohorts are drawn uniformly if `at_random`.
    Clients report `reports` beside their updates, as they are. An update has so many `entries`.
    """

    rounds: int
    fraction: float
    sizes: tuple[int, ...]
    recipe: Recipe
    trusted: bool = True
    at_random: bool = True
    reports: tuple[str, ...] = ()
    entries: int = 0

    @property
    def cohort(self) -> int:
        """How many clients take part in a round, on average."""
        return max(1, math.floor(self.fraction * len(self.sizes) + 0.5))


@dataclass(frozen=True)
class Promise:
    """(`epsilon`, `delta`)-differential privacy of one `unit`; an infinite epsilon promises nothing.

    It holds for `steps` sums to which each unit adds a vector of bounded length, with normal noise of the
    standard deviation `noise` times that bound. In each step a share `rate` of the units takes part, drawn as
    `sampling` says. `accountant` names the bound on epsilon, `trust` who must be trusted (empty: nobody but
    the unit's own client), and `notes` is what else a reader should know. A promise that is another's, or
    of another mechanism, says in `claim` whose it is and what of, in the place of noise and accountant.
    """

    unit: Literal["record", "client"]
    epsilon: float
    delta: float
    noise: float
    rate: float
    steps: int
    sampling: Sampling
    neighbours: Neighbours
    accountant: str = "PLD"
    trust: str = ""
    notes: tuple[str, ...] = ()
    claim: str = ""

    @property
    def described(self) -> str:
        """The promise in words."""
        drawn = {
            "poisson": f"each {self.unit} drawn by itself with the chance {self.rate:.3g}",
            "fixed-size": f"a fixed share {self.rate:.3g} of the {self.unit}s drawn without replacement",
            "all": f"every {self.unit} in every step",
        }
        differ = {
            "add-remove": f"one {self.unit} more or less",
            "zero-out": f"one {self.unit} adding nothing, where the number of them is public",
            "replace": f"one {self.unit} replaced",
        }
        trusted = [f"{TRUSTING} {self.trust}"] if self.trust else []
        if self.claim:
            return "; ".join([f"delta {self.delta:g}, {self.steps} steps", self.claim, *trusted, *self.notes])
        return "; ".join(
            [
                f"delta {self.delta:g}, noise multiplier {self.noise:.4g}, {self.steps} steps",
                drawn[self.sampling],
                f"for data with {differ[self.neighbours]}",
                f"by the {self.accountant} accountant of dp-accounting",
                *trusted,
                *self.notes,
            ]
        )

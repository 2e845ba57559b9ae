"""Families of private mechanisms, ordered by how much they give away, and which of them guesses refute."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy import stats
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

Inverse = Callable[[float], float]
"""For a chance y under one of two neighbours, the least chance of the same event under the other."""

Unlikely = Callable[[int, int, int, float], bool]
"""Whether (right, guesses, canaries, tail): so many right guesses or more have a chance below `tail`."""

LOSSES = np.concatenate([np.linspace(-12, 12, 481), np.linspace(12.25, 40, 112)])
"""The epsilons at which a privacy loss distribution is asked for its delta; fewer would be sound, too."""

TWICE = "; an exchange of two units was tested, which spends at most twice what one does"


@dataclass(frozen=True)
class Family(ABC):
    """Mechanisms by their `strength`: the higher, the more they give away.

    Strength and epsilon are those of adding or removing a unit. Where the guesses are about the exchange of
    two units, as they are if the number of members is fixed, the family is `exchanged`.
    """

    exchanged: bool = False

    range: ClassVar[tuple[float, float]]
    halvings: ClassVar[int] = 30

    @abstractmethod
    def unlikely(self, strength: float) -> Unlikely:
        """Which guesses refute the mechanism of `strength`."""

    @abstractmethod
    def epsilon(self, strength: float, delta: float) -> float:
        """Its epsilon at `delta`."""

    @property
    @abstractmethod
    def assumes(self) -> str:
        """What is assumed of the mechanism, in words."""

    def exchanging(self) -> "Family":
        """The same mechanisms, where guesses are about the exchange of two units."""
        return replace(self, exchanged=True)


@dataclass(frozen=True)
class Hypothesis:
    """What a bound on epsilon is about: the mechanism that the training is said to be, and delta."""

    family: Family = field(default_factory=lambda: Gaussian())
    delta: float = 1e-5


@dataclass(frozen=True)
class Gaussian(Family):
    """A Gaussian mechanism that moves its mean by `strength` standard deviations (mu of Gaussian DP).

    An exchange moves the mean twice as far.
    """

    range = (0.0, 16.0)

    def unlikely(self, strength: float) -> Unlikely:
        return by_trade_off(gaussian_inverse(2 * strength if self.exchanged else strength))

    def epsilon(self, strength: float, delta: float) -> float:
        return gaussian_epsilon(strength, delta)

    @property
    def assumes(self) -> str:
        return "if the training is a Gaussian mechanism" + (TWICE if self.exchanged else "")


@dataclass(frozen=True)
class SampledGaussian(Family):
    """`steps` noisy sums in which a unit takes part with the chance `rate`, as in DP-SGD and DP-FedAvg.

    The noise is `noise` / `strength`, so that 1 is the mechanism that was promised. The trade-off is that of
    dp-accounting's privacy loss distribution, rounded towards more loss.
    """

    noise: float = 1.0
    rate: float = 1.0
    steps: int = 1

    range = (1 / 32, 4.0)
    halvings = 8

    def unlikely(self, strength: float) -> Unlikely:
        deltas = _deltas(self.noise / strength, self.rate, self.steps, self.exchanged)
        odds = np.exp(-LOSSES)

        def inverse(y: float) -> float:
            return max(0.0, float(((y - deltas) * odds).max()))

        return by_trade_off(inverse)

    def epsilon(self, strength: float, delta: float) -> float:
        loss = _loss_distribution(self.noise / strength, self.rate, self.steps, False, 1e-3)
        return float(loss.get_epsilon_for_delta(delta))

    @property
    def assumes(self) -> str:
        drawn = "" if self.rate == 1 else f", each unit taking part with the chance {self.rate:.3g}"
        both = "; an exchange of two units was tested, epsilon is of one" if self.exchanged else ""
        return f"if the training is {self.steps} noisy sums of clipped vectors{drawn}{both}"


@dataclass(frozen=True)
class AnyMechanism(Family):
    """Whatever is (`strength`, `delta`)-differentially private, by the bound of Steinke, Nasr and Jagielski.

    Right guesses number at most Binomial(r, q), q = e^eps / (1 + e^eps), but for a chance of 2 m delta times
    the largest mean, over i, of the i outcomes just below those observed. Exchanging two units is
    (2 eps, (1 + e^eps) delta)-private.
    """

    delta: float = 0.0

    range = (0.0, 16.0)
    halvings = 14

    def unlikely(self, strength: float) -> Unlikely:
        delta = self.delta * (1 + math.exp(strength)) if self.exchanged else self.delta
        eps = 2 * strength if self.exchanged else strength

        def decide(right: int, guesses: int, canaries: int, tail: float) -> bool:
            share = 1 / (1 + math.exp(-eps))
            chance = float(stats.binom.sf(right - 1, guesses, share))
            if delta and right:
                below = np.cumsum(stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, share))
                chance += 2 * canaries * delta * float((below / np.arange(1, right + 1)).max())
            return chance < tail

        return decide

    def epsilon(self, strength: float, delta: float) -> float:
        assert delta == self.delta, "a bound at one delta says nothing of another"
        return strength

    @property
    def assumes(self) -> str:
        return "whatever the mechanism" + (TWICE if self.exchanged else "")


def by_trade_off(inverse: Inverse) -> Unlikely:
    """The test of a mechanism by its trade-off, with or without abstention (Mahloujifar et al. 2024).

    With m canaries, r guesses and p_j the chance of exactly j right ones, flipping canary i's coin turns a
    right guess about it into a wrong one and leaves the other guesses what they are. So for every c
        sum_{j >= c} (j/m) p_j <= F( sum_{j >= c-1} ((r-j)/m) p_j ),  F = 1 - f,
    where f is the trade-off: the left side averages over i the chance that i is right and at least c are, and
    the right side that of i being wrong beside at least c - 1 right ones (F is concave). Let at least c be
    right with the chance `tail`. The inequalities then ask, from c downwards, for more and more chance of
    fewer right guesses. Least of it is asked for if all of `tail` lies on c and no p_j is larger than it must
    be. Where it adds up to more than 1, the mechanism cannot give so many right guesses that often.
    """

    def decide(right: int, guesses: int, canaries: int, tail: float) -> bool:
        most = guesses / canaries
        inside = tail * right / canaries
        outside = tail * (guesses - right) / canaries
        for j in range(right - 1, -1, -1):
            needed = inverse(inside)
            if needed <= outside:
                return False  # nothing more is asked for further down
            inside += j / (guesses - j) * (needed - outside)
            outside = needed
            if inside + outside > most:
                return True
        return False

    return decide


def gaussian_inverse(mu: float) -> Inverse:
    """The trade-off of Gaussian DP: F(x) = Phi(Phi^-1(x) + mu), inverted."""

    def inverse(y: float) -> float:
        return float(ndtr(ndtri(min(y, 1.0)) - mu))

    return inverse


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon at `delta` of Gaussian DP with `mu` (Dong, Roth and Su 2022).

    >>> round(gaussian_epsilon(1.0, 1e-5), 3), gaussian_epsilon(0.0, 1e-5)
    (4.377, 0.0)
    """
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    most = mu * mu / 2 + mu * 10 + 1
    while gaussian_delta(mu, most) > delta:
        most *= 2
    return float(brentq(lambda eps: gaussian_delta(mu, eps) - delta, 0.0, most, xtol=1e-9))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The delta at `epsilon` of Gaussian DP with `mu`."""
    if mu == 0:
        return 0.0
    second = math.exp(epsilon + float(log_ndtr(-epsilon / mu - mu / 2)))
    return float(ndtr(-epsilon / mu + mu / 2)) - second


@lru_cache(maxsize=256)
def _deltas(noise: float, rate: float, steps: int, exchanged: bool) -> np.ndarray:
    """The delta at each of `LOSSES`."""
    loss = _loss_distribution(noise, rate, steps, exchanged, 5e-3)
    return np.asarray(loss.get_delta_for_epsilon(LOSSES))


def _loss_distribution(
    noise: float, rate: float, steps: int, exchanged: bool, interval: float
) -> "PrivacyLossDistribution":
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    one = from_gaussian_mechanism(
        noise,
        sampling_prob=rate,
        value_discretization_interval=interval,
        neighboring_relation=NeighboringRelation.REPLACE_ONE
        if exchanged
        else NeighboringRelation.ADD_OR_REMOVE_ONE,
    )
    return one.self_compose(steps)

"""How much privacy a noisy sum spends when it is repeated, and how much noise a budget calls for.

Every bound on epsilon is one of dp-accounting's. `noise` is the standard deviation over the bound C on the
length of what one unit adds. A unit more or less moves the sum by C, a replaced one by up to 2 C.
"""

import math
from functools import cache
from typing import TYPE_CHECKING, Literal

from glasshouse.defences.promise import Neighbours, Sampling
from glasshouse.errors import BadInput

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Accountant = Literal["PLD", "RDP"]

LOOSE = 50.0
"""Above this epsilon nothing is protected, and the tight accountant takes minutes: the fast one is used."""

MOST_NOISE = 10_000.0
LEAST_NOISE = 1e-3
"""The largest noise multiplier that is tried for a budget, and one with which there is hardly any."""

LOG_MOST, TINY = math.log(MOST_NOISE), 1e-30

GRID = 1e-4
"""The grid of the tight accountant's privacy losses, and ten times that above an epsilon of 10."""

ORDERS = (*range(2, 64), 80, 96, 128, 192, 256)
"""Renyi orders; the fractional ones below 2 matter only for an epsilon far above `LOOSE`."""


def neighbours(sampling: Sampling, *, public: bool) -> Neighbours:
    """The data sets that are compared: with a set of fixed size a unit can only be replaced.

    Unless the numbers by which sums are divided and drawn are given and so `public` whatever the data, the
    realised ones are, and one unit less cannot change them.
    """
    if sampling == "fixed-size":
        return "replace"
    return "add-remove" if public else "zero-out"


@cache
def spent(
    noise: float, rate: float, steps: int, delta: float, sampling: Sampling
) -> tuple[float, Accountant]:
    """The epsilon of `steps` sums at `delta`, and the accountant that bounds it; infinite without noise.

    >>> epsilon, accountant = spent(1.0, 0.01, 100, 1e-5, "poisson")
    >>> round(epsilon, 3), accountant
    (0.718, 'PLD')
    """
    if noise == 0:
        return math.inf, "PLD"
    fast = _by_rdp(noise, rate, steps, delta, sampling)
    if sampling == "fixed-size":
        whole = spent(noise / 2, 1.0, steps, delta, "all")  # a draw is never worse than none
        return min((fast, "RDP"), whole)
    if fast > LOOSE:
        return fast, "RDP"
    grid = GRID if fast <= 10 else 10 * GRID
    return min(fast, _by_pld(noise, rate, steps, delta, grid)), "PLD"


@cache
def noise_for(epsilon: float, rate: float, steps: int, delta: float, sampling: Sampling) -> float:
    """The least noise, to a few parts in 10,000, with which `steps` sums spend at most `epsilon`."""
    from scipy.optimize import brentq

    def excess(log_noise: float) -> float:
        """By which factor too much is spent, as a logarithm, which is nearly linear in that of the noise."""
        return math.log(max(spent(math.exp(log_noise), rate, steps, delta, sampling)[0], TINY) / epsilon)

    inside, outside = math.inf, -math.inf  # logarithms of a noise that is enough, and of one that is not
    tried = min(math.log(4 * rate * math.sqrt(steps) / epsilon), LOG_MOST)
    while inside == math.inf or outside == -math.inf:
        more = excess(tried)
        if more > 0 and tried >= LOG_MOST:
            raise BadInput(
                f"target_epsilon = {epsilon:g} is out of reach: no noise up to {MOST_NOISE:,.0f} times the "
                f"norm keeps {steps} steps within it; take a larger epsilon, or fewer rounds"
            )
        if more > 0:
            outside = tried
        else:
            inside = tried
            if tried < math.log(LEAST_NOISE):
                return math.exp(inside)
        tried = min(tried + (max(0.05, min(more, 1)) if more > 0 else min(-0.05, max(more, -1))), LOG_MOST)
    found: float = brentq(excess, outside, inside, xtol=1e-5, rtol=1e-6, maxiter=60)
    while excess(found) > 0:
        found += 1e-5
    return math.exp(found)


def _by_pld(noise: float, rate: float, steps: int, delta: float, grid: float) -> float:
    """By privacy loss distributions, which are tight but for their grid."""
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=grid)
    accountant.compose(_event(noise, rate), steps)
    return float(accountant.get_epsilon(delta))


def _by_rdp(noise: float, rate: float, steps: int, delta: float, sampling: Sampling) -> float:
    """By Renyi divergences, which bound sets of fixed size, too."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    if sampling == "fixed-size":
        accountant = RdpAccountant(ORDERS, dp_accounting.NeighboringRelation.REPLACE_ONE)
        size = 10**9  # only the share of it counts
        drawn = round(rate * size)
        # The accountant takes the noise over the sum's sensitivity, which is 2 C where a unit is replaced.
        event = dp_accounting.GaussianDpEvent(noise / 2)
        accountant.compose(dp_accounting.SampledWithoutReplacementDpEvent(size, drawn, event), steps)
    else:
        accountant = RdpAccountant(ORDERS)
        accountant.compose(_event(noise, rate), steps)
    return float(accountant.get_epsilon(delta))


def _event(noise: float, rate: float) -> "DpEvent":
    import dp_accounting

    event = dp_accounting.GaussianDpEvent(noise)
    return event if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, event)

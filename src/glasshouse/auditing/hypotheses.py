"""From what a defence promises to the mechanism that a bound on epsilon is tested against."""

from collections.abc import Sequence
from typing import Literal

from glasshouse.defences.promise import Promise
from glasshouse.measures.families import Gaussian, Hypothesis, SampledGaussian

LOOSE = 20.0
"""Above this epsilon the trade-off of sampled sums takes long, and nothing is protected anyway."""


def hypothesis(promises: Sequence[Promise], unit: Literal["record", "client"]) -> Hypothesis:
    """The mechanism promised for `unit`, the one with the smallest epsilon, and its delta.

    Sums of all units are one Gaussian mechanism, however many there are. Where nothing is promised, or where
    the trade-off of the promise is not known, a Gaussian mechanism is assumed.
    """
    promise = min((one for one in promises if one.unit == unit), key=lambda one: one.epsilon, default=None)
    if promise is None:
        return Hypothesis()
    if promise.sampling != "poisson" or promise.epsilon > LOOSE:
        return Hypothesis(Gaussian(), promise.delta)
    return Hypothesis(
        SampledGaussian(noise=promise.noise, rate=promise.rate, steps=promise.steps), promise.delta
    )

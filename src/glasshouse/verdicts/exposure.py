"""Whose records are easiest to find, and in which round: each adversary's strongest attack, broken down."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from glasshouse.exhibits import Risk
from glasshouse.verdicts.measure import by_access, grouped
from glasshouse.verdicts.pooling import envelope


@dataclass(frozen=True)
class Exposure:
    """What one adversary finds out about each client, or in each round, with its strongest attack.

    `risks` stand in order: clients from the most at risk to the least, rounds in time.
    `others` holds the weaker attacks with their mean AUC.
    """

    adversary: str
    kind: Literal["client", "round"]
    attack: str
    risks: tuple[Risk, ...]
    others: tuple[tuple[str, float], ...]

    @property
    def exposed(self) -> list[Risk]:
        """The clients or rounds whose whole interval lies above chance."""
        return [risk for risk in self.risks if at_risk(risk)]

    @property
    def highest(self) -> Risk:
        """The client or round most at risk: one that is exposed before one that only scores high."""
        return max(self.risks, key=lambda risk: (at_risk(risk), _value(risk)))

    @property
    def judged(self) -> bool:
        """Whether any risk has an interval to judge by."""
        return any(risk.low is not None and risk.chance is not None for risk in self.risks)

    @property
    def order_may_be_luck(self) -> bool:
        """Whether all intervals share a point."""
        ends = [(r.low, r.high) for r in self.risks if r.low is not None and r.high is not None]
        return len(ends) > 1 and max(low for low, _ in ends) <= min(high for _, high in ends)


def exposures(risks: Sequence[Risk], kind: Literal["client", "round"]) -> list[Exposure]:
    """An exposure for each adversary, from the least access to the most; undefended where measured."""
    known = [risk for risk in risks if risk.kind == kind and risk.value is not None]
    return [
        _exposure([risk for risk in known if risk.adversary == adversary], kind)
        for adversary in by_access(risk.adversary for risk in known)
    ]


def at_risk(risk: Risk) -> bool:
    """Whether the whole interval lies above chance."""
    return risk.low is not None and risk.chance is not None and risk.low > risk.chance


def _exposure(risks: Sequence[Risk], kind: Literal["client", "round"]) -> Exposure:
    """What one adversary's attack with the highest mean says."""
    defences = [risk.defence for risk in risks]
    defence = "none" if "none" in defences else defences[0]
    attacks = grouped((risk for risk in risks if risk.defence == defence), lambda risk: risk.attack)
    ranked = sorted(attacks, key=lambda attack: -_mean(attacks[attack]))
    rank = _value if kind == "client" else lambda risk: -risk.index
    ordered = sorted(_averaged(attacks[ranked[0]]), key=rank, reverse=True)
    others = tuple((attack, _mean(attacks[attack])) for attack in ranked[1:])
    return Exposure(risks[0].adversary, kind, ranked[0], tuple(ordered), others)


def _value(risk: Risk) -> float:
    return float("-inf") if risk.value is None else risk.value


def _mean(risks: Sequence[Risk]) -> float:
    return sum(_value(risk) for risk in risks) / len(risks)


def _averaged(risks: Sequence[Risk]) -> list[Risk]:
    """One risk for each index: repeats, as from several seeds, are averaged and their intervals enveloped."""
    averaged = []
    for group in grouped(risks, lambda risk: risk.index).values():
        value, low, high = envelope([(risk.value, risk.low, risk.high) for risk in group])
        averaged.append(group[0].model_copy(update={"value": value, "low": low, "high": high}))
    return averaged

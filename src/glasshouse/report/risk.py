"""Whose records are easiest to find, and in which round: risks ranked and put into words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from glasshouse.exhibits import Risk
from glasshouse.report.words import ADVERSARIES
from glasshouse.spelling import number


@dataclass(frozen=True)
class Exposure:
    """What one adversary finds out about each client, or in each round, with its strongest attack.

    `risks` are in the order to show: clients from the most at risk to the least, rounds in time.
    `others` holds the weaker attacks with their mean AUC.
    """

    adversary: str
    kind: Literal["client", "round"]
    attack: str
    risks: tuple[Risk, ...]
    others: tuple[tuple[str, float], ...]

    @property
    def shown(self) -> list[Risk]:
        """The clients or rounds whose whole interval lies above chance."""
        return [risk for risk in self.risks if at_risk(risk)]

    @property
    def sentence(self) -> str:
        """Who or what is at risk, in plain words; never more than the intervals support."""
        first = max(self.risks, key=lambda risk: (at_risk(risk), _value(risk)))
        if not any(_judged(risk) for risk in self.risks):
            highest = f"{_name(first)} has the highest score (AUC {number(first.value)})"
            return f"{highest}, but without intervals nothing can be said about who is at risk."
        some = f"{self.kind}s" if len(self.risks) > 1 else self.kind
        if not self.shown:
            return f"Nothing was shown for any of {len(self.risks)} {some}, which is no proof of safety."
        if self.kind == "client":
            text = f"{_name(first)}'s records are the easiest to find (AUC {number(first.value)})"
        else:
            text = f"Records are easiest to find after {_name(first).lower()} (AUC {number(first.value)})"
            if (start := self.shown[0]) is not first:
                text += f", and a leak first shows after {_name(start).lower()}"
        clear = len(self.risks) - len(self.shown)
        rest = f"for {clear} of {len(self.risks)} {some} nothing was shown"
        return (
            f"{text}; {rest}.{self._spread}"
            if clear
            else f"{text}; for every {self.kind} the attack beats a blind guess.{self._spread}"
        )

    @property
    def _spread(self) -> str:
        """Whether the differences may be luck: all intervals share a point."""
        judged = [risk for risk in self.risks if risk.low is not None and risk.high is not None]
        if len(judged) < 2:
            return ""
        if max(risk.low or 0.0 for risk in judged) <= min(risk.high or 0.0 for risk in judged):
            return f" All intervals overlap, so which {self.kind} comes first may be luck."
        return ""


def exposures(risks: Sequence[Risk], kind: Literal["client", "round"]) -> list[Exposure]:
    """An exposure for each adversary, from the least access to the most; undefended where measured."""
    known = [risk for risk in risks if risk.kind == kind and risk.value is not None]
    present = dict.fromkeys(risk.adversary for risk in known)
    order = [name for name in ADVERSARIES if name in present]
    made = []
    for adversary in order + [name for name in present if name not in ADVERSARIES]:
        mine = [risk for risk in known if risk.adversary == adversary]
        defences = [risk.defence for risk in mine]
        defence = "none" if "none" in defences else defences[0]
        attacks: dict[str, list[Risk]] = {}
        for risk in mine:
            if risk.defence == defence:
                attacks.setdefault(risk.attack, []).append(risk)
        ranked = sorted(attacks, key=lambda attack: -_mean(attacks[attack]))
        order_by = _value if kind == "client" else lambda risk: -risk.index
        shown = sorted(_one_each(attacks[ranked[0]]), key=order_by, reverse=True)
        others = tuple((attack, _mean(attacks[attack])) for attack in ranked[1:])
        made.append(Exposure(adversary, kind, ranked[0], tuple(shown), others))
    return made


def at_risk(risk: Risk) -> bool:
    """Whether the whole interval lies above chance."""
    return risk.low is not None and risk.chance is not None and risk.low > risk.chance


def _judged(risk: Risk) -> bool:
    return risk.low is not None and risk.chance is not None


def _name(risk: Risk) -> str:
    return f"Client {risk.index}" if risk.kind == "client" else f"Round {risk.index + 1}"


def _value(risk: Risk) -> float:
    return float("-inf") if risk.value is None else risk.value


def _mean(risks: Sequence[Risk]) -> float:
    return sum(_value(risk) for risk in risks) / len(risks)


def _one_each(risks: Sequence[Risk]) -> list[Risk]:
    """One risk for each index: repeats, as from several seeds, are averaged and their intervals enveloped."""
    groups: dict[int, list[Risk]] = {}
    for risk in risks:
        groups.setdefault(risk.index, []).append(risk)
    made = []
    for group in groups.values():
        lows = [risk.low for risk in group if risk.low is not None]
        highs = [risk.high for risk in group if risk.high is not None]
        ends = {
            "low": min(lows) if len(lows) == len(group) else None,
            "high": max(highs) if len(highs) == len(group) else None,
        }
        made.append(group[0].model_copy(update={"value": _mean(group), **ends}))
    return made

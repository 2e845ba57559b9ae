"""The most leak that a team accepts from each adversary, and whether findings keep to it.

A limit is a severity ("slight": no more than that), or a number of a metric, or of a family's headline. Which
end of an interval must keep it is the team's choice: everything `possible` (unless it says otherwise), the
`point`, or only what is `shown`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from glasshouse.errors import BadInput, quoted
from glasshouse.evidence import KINDS
from glasshouse.reading import parse_toml
from glasshouse.registry import unknown
from glasshouse.spelling import interval, number
from glasshouse.verdicts.measure import BY_ACCESS, Measure, by_access, leaks
from glasshouse.verdicts.metrics import NOT_RUN, families, family_words, metric_words, metrics
from glasshouse.verdicts.outcome import (
    ENDS,
    SEVERITIES,
    End,
    about_data,
    at_end,
    degree,
    reasons,
    severity,
    shut_out,
    strongest,
)

EVERYONE = "everyone"
CONFIGURES = {"seed", "data", "model", "training", "audit"}
"""The tables by which a configuration is told from limits alone."""

State = Literal["keeps", "breaks", "may break", "cannot be judged", "could not be tried"]


@dataclass(frozen=True)
class Limit:
    """What is accepted from an adversary: of everything it learns, or `about` one family or metric alone."""

    adversary: str
    most: float | str
    about: str = ""

    def __str__(self) -> str:
        what = f", {self.about}" if self.about else ""
        if isinstance(self.most, str):
            return f"{self.adversary}{what}: at most {self.most}"
        side = "at least" if _falls(self.about) else "at most"
        return f"{self.adversary}{what}: {side} {self.most:g}"


@dataclass(frozen=True)
class Limits:
    """What is accepted, which end of the interval must keep it, and how much accuracy it may cost.

    `untried` says that an adversary that could not be tried breaks no limit, `given` that a team chose them.
    """

    limits: tuple[Limit, ...]
    end: End = "possible"
    accuracy: float | None = None
    untried: bool = False
    given: bool = True


DEFAULT = Limits((Limit(EVERYONE, "slight"),), end="shown", accuracy=0.1, untried=True, given=False)
"""Where no limits are given: nobody is shown to learn more than a little, for ten points of accuracy."""


@dataclass(frozen=True)
class Check:
    """How findings under one defence stand to a limit, and the finding that decides it, if there is one."""

    limit: Limit
    state: State
    measure: Measure | None = None
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.limit}: {self.state}{f' ({self.reason})' if self.reason else ''}"


def read_limits(table: Mapping[str, Any]) -> Limits:
    """The limits in a table of the configuration, `audit.limits`; those by default where it is empty.

    >>> read_limits({"curious-server": "slight", "outsider": {"auc": 0.6}}).limits[1]
    Limit(adversary='outsider', most=0.6, about='auc')
    """
    if not table:
        return DEFAULT
    named: list[Limit] = []
    end, accuracy, untried = "possible", None, False
    for key, value in table.items():
        if key == "end":
            end = _one_of("end of the interval", value, ENDS)
        elif key == "untried":
            untried = _one_of("word for what could not be tried", value, ("accept", "refuse")) == "accept"
        elif key == "accuracy":
            accuracy = _number("limits.accuracy", value)
            if not 0 <= accuracy <= 1:
                raise BadInput(f"limits.accuracy = {quoted(value)} is no share of 1; 0.05 is five points")
        else:
            named += _limits_of(_adversary(key), value)
    if not named:
        raise BadInput('limits name no adversary; write, for example, everyone = "slight"')
    twice = [limit for limit in named if sum(_same(limit, other) for other in named) > 1]
    if twice:
        raise BadInput(f"limits name {quoted(twice[0].adversary)} twice; keep one of them")
    return Limits(tuple(named), end, accuracy, untried)  # type: ignore[arg-type]


def limits_in(text: str) -> Limits:
    """The limits in TOML: in the table `audit.limits` of a configuration, or in `limits`, or by themselves.

    A configuration that has none gives those by default.
    """
    try:
        table = parse_toml(text)
    except ValueError as error:
        raise BadInput(
            f'limits are not valid TOML: {error}; write, for example, everyone = "slight"'
        ) from error
    path = ("audit", "limits") if CONFIGURES & set(table) else ("limits",) if "limits" in table else ()
    for name in path:
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise BadInput(f"{name} = {quoted(table)} is no table; write [{name}] and the limits below it")
    return read_limits(table)


def check(measures: Sequence[Measure], limits: Limits) -> list[Check]:
    """How the findings under one defence stand to each limit; `everyone` is each adversary not named.

    What no attack asked could not be tried.
    """
    named = {limit.adversary for limit in limits.limits}
    found = by_access(m.row.adversary for m in measures if m.row.adversary and leaks(m))
    checks = []
    for limit in limits.limits:
        if limit.adversary != EVERYONE:
            checks.append(_check(limit, measures, limits.end))
            continue
        others = [Limit(name, limit.most, limit.about) for name in found if name not in named]
        asked = [_check(mine, measures, limits.end) for mine in others if _concerned(mine, measures)]
        checks += asked or [Check(limit, "could not be tried", None, "no attack asked it")]
    return checks


def not_kept(checks: Iterable[Check], limits: Limits) -> list[Check]:
    """Those that do not keep their limit; what could not be tried is among them unless that is accepted."""
    fine = ("keeps", "could not be tried") if limits.untried else ("keeps",)
    return [one for one in checks if one.state not in fine]


def about_families(about: str) -> frozenset[str]:
    """The families that a limit about one of them, or about a metric, is about."""
    if about in families():
        return frozenset({about})
    kinds = [KINDS.load(name) for name in KINDS]
    return frozenset(family for kind in kinds if about in kind.metrics for family in kind.families)


def _check(limit: Limit, measures: Sequence[Measure], end: End) -> Check:
    concerned = _concerned(limit, measures)
    tried = [m for m in concerned if m.value is not None]
    if not tried:
        why = "; ".join(reasons(concerned)) or "no attack of this adversary asked it"
        if concerned and all(map(shut_out, concerned)):
            return Check(limit, "keeps", concerned[0], why)
        return Check(limit, "could not be tried", concerned[0] if concerned else None, why)
    judged = [m for m in tried if _within(limit, m, end) is not None]
    if not judged:
        return Check(limit, "cannot be judged", tried[0], "no interval or no chance level")
    beyond = [m for m in judged if not _within(limit, m, end)]
    if not beyond:
        most = strongest(judged)
        assert most is not None
        return Check(limit, "keeps", most, _found(limit, most))
    shown = [m for m in beyond if _within(limit, m, "shown") is False]
    worst = max(shown or beyond, key=lambda m: _excess(limit, m, "shown" if shown else end))
    return Check(limit, "breaks" if shown else "may break", worst, _found(limit, worst))


def _concerned(limit: Limit, measures: Sequence[Measure]) -> list[Measure]:
    """The measures that a limit is about; one that could not be tried belongs to its whole family."""
    mine = [m for m in measures if m.row.adversary == limit.adversary and leaks(m)]
    if not limit.about:
        return [m for m in mine if about_data(m) and not metric_words(m.row.metric).detail]
    if limit.about in families():
        mine = [m for m in mine if m.row.family == limit.about]
        if isinstance(limit.most, str):
            return [m for m in mine if not metric_words(m.row.metric).detail]
    metric, asking = _metric(limit.about), about_families(limit.about)
    return [m for m in mine if m.row.metric == metric or (m.row.metric == NOT_RUN and m.row.family in asking)]


def _within(limit: Limit, measure: Measure, end: End) -> bool | None:
    """Whether that end of the interval keeps the limit; None where it cannot be judged."""
    if isinstance(limit.most, str):
        reached = degree(measure, end)
        if reached is None or (end == "shown" and measure.judged == "unjudged"):
            return None
        return SEVERITIES.index(severity(measure, end)) <= SEVERITIES.index(limit.most)
    found = at_end(measure, end)
    if found is None:
        return None
    return found >= limit.most if _falls(measure.row.metric) else found <= limit.most


def _excess(limit: Limit, measure: Measure, end: End) -> float:
    if isinstance(limit.most, str):
        return degree(measure, end) or 0.0
    found = at_end(measure, end)
    return -math.inf if found is None else abs(found - limit.most)


def _found(limit: Limit, measure: Measure) -> str:
    """The finding in words: attack, metric, value and interval."""
    words, row = metric_words(measure.row.metric), measure.row
    text = f"{row.attack}: {words.label} {number(measure.value, words.unit)}"
    if measure.low is not None or measure.high is not None:
        text += f", 95% interval {interval(measure.low, measure.high, words.unit)}"
    if isinstance(limit.most, str):
        text += f", {severity(measure)} is shown, {severity(measure, 'possible')} is possible"
    return f"{text}, n = {measure.n}" if measure.n is not None else text


def _limits_of(adversary: str, value: Any) -> list[Limit]:
    place = f"limits.{adversary}"
    if isinstance(value, str):
        return [Limit(adversary, _one_of("severity", value, SEVERITIES))]
    if not isinstance(value, Mapping) or not value:
        raise BadInput(
            f"{place} = {quoted(value)} is no limit; write a severity ({', '.join(SEVERITIES)}) or a table "
            "of metrics, such as { auc = 0.6 }"
        )
    return [_limit_about(adversary, about, most) for about, most in value.items()]


def _limit_about(adversary: str, about: str, most: Any) -> Limit:
    judged = [name for name, words in metrics().items() if words.leaks != "none" and name != NOT_RUN]
    asked = [name for name, family in families().items() if metric_words(family.headline).leaks != "none"]
    if about not in judged and about not in asked:
        raise BadInput(f"limits.{adversary}: " + unknown("metric or family", about, [*judged, *asked]))
    if isinstance(most, str):
        if about not in asked:
            raise BadInput(
                f"limits.{adversary}.{about} = {quoted(most)} is no number; a severity goes with a family"
            )
        return Limit(adversary, _one_of("severity", most, SEVERITIES), about)
    return Limit(adversary, _number(f"limits.{adversary}.{about}", most), about)


def _adversary(key: str) -> str:
    name = key.replace("-", " ").strip()
    if name not in (*BY_ACCESS, EVERYONE):
        raise BadInput(
            unknown("adversary in limits", key, [*BY_ACCESS, EVERYONE, "end", "accuracy", "untried"])
        )
    return name


def _one_of(kind: str, value: Any, known: Sequence[str]) -> str:
    if value not in known:
        raise BadInput(unknown(kind, str(value), known))
    return str(value)


def _number(place: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadInput(f"{place} = {quoted(value)} is no finite number; write one, such as 0.6")
    return float(value)


def _same(one: Limit, other: Limit) -> bool:
    return (one.adversary, one.about) == (other.adversary, other.about)


def _metric(about: str) -> str:
    return about if about in metrics() else family_words(about).headline


def _falls(about: str) -> bool:
    return metric_words(_metric(about)).leaks == "low"

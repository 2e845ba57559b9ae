"""Attacks that know the defence beside the same attacks that do not: a defence is judged by the worse."""

import re
from collections.abc import Sequence

from glasshouse.verdicts.measure import Measure, grouped, reach

_FLAG = re.compile(r"(?<=[(,])\s*adaptive\s*=\s*True\s*(,|(?=\)))")


def knows_defence(measure: Measure) -> bool:
    """Whether the attack was told which defences are in force."""
    return bool(_FLAG.search(measure.row.attack or ""))


def uninformed(attack: str | None) -> str:
    """The same attack without knowledge of the defence, as it is written.

    >>> uninformed("dlg(steps=5,adaptive=True)"), uninformed("dlg(adaptive=True)"), uninformed("gap")
    ('dlg(steps=5)', 'dlg', 'gap')
    """
    return re.sub(r",\s*\)$", ")", _FLAG.sub("", attack or "")).removesuffix("()")


def worse_of_two(measures: Sequence[Measure]) -> list[Measure]:
    """Under each defence the measure of the form that got further, where one of them knows the defence."""
    kept: list[Measure] = []
    for rivals in grouped(measures, lambda m: m.row.defence).values():
        kept += [max(rivals, key=reach)] if any(map(knows_defence, rivals)) else rivals
    return kept

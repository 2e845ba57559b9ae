"""A user's own attack in a study: where it fits, and what it reaches beside the study's attacks."""

from collections.abc import Sequence
from dataclasses import replace

from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Attack, accesses, declared
from glasshouse.errors import BadInput, quoted
from glasshouse.exhibits import Records, StudyTable
from glasshouse.findings import Finding
from glasshouse.registry import parse_spec
from glasshouse.spelling import listed
from glasshouse.studies import STUDIES
from glasshouse.studies.study import Study
from glasshouse.verdicts.differences import Side, difference
from glasshouse.verdicts.measure import grouped
from glasshouse.verdicts.metrics import NOT_RUN, family_words
from glasshouse.verdicts.pairing import sides

Row = tuple[str | int | float | None, ...]


def check_attack(study: Study, spec: str) -> None:
    """Refuse an attack that the question of the study does not fit, before any work is done."""
    attack: Attack = ATTACKS.make(spec)
    if not study.takes:
        others = [one for name in STUDIES if (one := STUDIES.load(name)).takes]
        told = listed([f"{one.name} (one of {one.takes})" for one in others])
        raise BadInput(f"{study.name} takes no further attack; these studies do: {told}")
    family = declared(attack, "family")
    if family != study.takes:
        raise BadInput(
            f"{quoted(spec)} is an attack of family {quoted(family)}; {study.name} takes one of {study.takes}"
        )
    if study.by is not None and not any(issubclass(access, study.by) for access in accesses(attack)):
        raise BadInput(
            f"{quoted(spec)} does not work as the {study.by.adversary}, which every attack of {study.name} is"
        )
    study.check_attack(spec)


def beside_others(spec: str, findings: Sequence[Finding], records: Sequence[Records]) -> list[StudyTable]:
    """In each cell the user's attack, and how much more it has than each other one, on its leading metric.

    Attacks are set beside each other where they share the cell, the adversary, the family and the limits.
    """
    name = parse_spec(spec, "attack")[0]
    rows: list[Row] = []
    for cell, measured in grouped(findings, lambda row: row.cell).items():
        own = [row for row in measured if _name_of(row) == name]
        failed = next((row for row in own if row.metric == NOT_RUN), None)
        if failed is not None:
            rows.append((cell, failed.attack, "could not run", None, None, None, None, failed.reason))
        for mine in _by_attack(own, records):
            rows.append((cell, mine.name, _metric(mine), _mean(mine), None, None, None, "yours"))
            rivals = [row for row in measured if _name_of(row) != name and _is_rival(row, mine.rows[0])]
            rows += [_row(cell, rival, mine) for rival in _by_attack(rivals, records)]
    return [
        StudyTable(
            name="own-attack",
            title=f"{name} beside the attacks of the study",
            columns=("cell", "attack", "metric", "value", "yours less this", "low", "high", "compared"),
            rows=tuple(rows),
            note="Differences have 95% intervals over records and seeds. No verdict looks at this attack.",
        )
    ]


def _row(cell: str, rival: Side, mine: Side) -> Row:
    """Another attack, and how much more the user's has."""
    found = difference(rival, mine)
    how = f"unpaired as {found.unpaired}" if found.unpaired else f"paired, n = {found.estimate.n}"
    return (cell, rival.name, _metric(rival), _mean(rival), found.value, found.low, found.high, how)


def _by_attack(rows: Sequence[Finding], records: Sequence[Records]) -> list[Side]:
    """The leading number of each attack, over its seeds."""
    leading = [row for row in rows if row.metric == family_words(row.family).headline]
    found = sides("", leading, records, lambda row: (row.attack, row.adversary))
    return [replace(side, name=str(side.rows[0].attack)) for side in found.values()]


def _is_rival(row: Finding, mine: Finding) -> bool:
    shared = ("adversary", "family", "metric")
    same = all(getattr(row, key) == getattr(mine, key) for key in shared)
    return same and bool(row.attack) and _eps_of(row) == _eps_of(mine)


def _eps_of(row: Finding) -> object:
    try:
        return parse_spec(str(row.attack), "attack")[1].get("eps")
    except BadInput:
        return None  # the name of a curve, which is no attack


def _name_of(row: Finding) -> str:
    return str(row.attack or "").partition("(")[0]


def _metric(side: Side) -> str:
    return side.rows[0].metric


def _mean(side: Side) -> float | None:
    values = [row.value for row in side.rows if row.value is not None]
    return sum(values) / len(values) if values else None

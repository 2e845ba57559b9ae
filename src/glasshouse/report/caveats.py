"""How far the findings can be trusted, and what each attack was given beyond its access."""

from collections.abc import Sequence

from glasshouse.report.measure import Measure, leaks
from glasshouse.report.run import Run
from glasshouse.report.table import Cell, Column, Table, text_cell
from glasshouse.spelling import listed
from glasshouse.verdicts.metrics import CENTRAL, NOT_RUN, VETTING, metric_words

FEW = 100  # below this many cases a rate moves by more than a few points from one sample to the next


def caveats(run: Run, measures: Sequence[Measure]) -> list[str]:
    """What a reader should keep in mind, from what the rows hold and lack."""
    attacked = [m for m in measures if leaks(m)]
    made = []
    if attacked:
        made.append(
            "Where no leak was found, these attacks found none with the access and knowledge they had. "
            "A stronger attack, or one that knows more, may still succeed: that is not proof of safety."
        )
    seeds = {row.seed for row in run.rows if row.seed is not None}
    if len(seeds) > 1:
        made.append(
            f"Values are means over {len(seeds)} seeds; an interval reaches from the lowest to the highest "
            "end of the seeds' own intervals."
        )
    else:
        made.append(
            "One seed. The intervals cover which records or clients happened to be measured, not the luck "
            "of training: another run may move a number by more than its interval."
        )
    if len({(m.row.adversary, m.row.attack) for m in attacked}) > 1:
        made.append(
            "Each answer leads with the attack that got furthest. Its interval is not widened for having "
            "been chosen, nor for the number of attacks and defences compared."
        )
    if lag := _lag(run):
        made.append(lag)
    if few := _few(attacked):
        made.append(f"Fewer than {FEW} cases stand behind {few}; read their intervals before their values.")
    made += _uncovered(measures)
    made += _not_estimable(measures)
    return made + _unjudged(measures)


def assumptions_table(measures: Sequence[Measure]) -> Table | None:
    """What each attack was given beyond its access."""
    given: dict[tuple[str, str], dict[str, None]] = {}
    for (adversary, attack, _), shared in _given(measures).items():
        given.setdefault((adversary, attack), {}).update(dict.fromkeys(shared))
    if not given:
        return None
    rows = []
    for (adversary, attack), known in given.items():
        text = "; ".join(known)
        rows.append((text_cell(adversary), text_cell(attack), Cell(text or "nothing", text, (text,))))
    columns = tuple(Column(label, (label,)) for label in ("adversary", "attack", "given beyond its access"))
    return Table("assumptions", "What each attack was given beyond its access", columns, tuple(rows))


def _lag(run: Run) -> str:
    """A warning where the federation learned clearly less than one party with all the data would."""
    rows = [row for row in run.rows if row.metric == "test-accuracy" and row.defence == "none"]
    central = [row for row in rows if row.strategy == CENTRAL and row.low is not None]
    federated = [row for row in rows if row.strategy != CENTRAL and row.high is not None]
    if not any((one.high or 0) < (other.low or 0) for one in federated for other in central):
        return ""
    return (
        "The federated model learned clearly less than the same network trained centrally. A model that has "
        "not learned its data has little to give away: train longer before trusting that no leak was found."
    )


def _uncovered(measures: Sequence[Measure]) -> list[str]:
    """What a defence leaves open, which stands beside the accuracy that it costs."""
    costs = [
        m.row for m in measures if m.row.metric == "test-accuracy" and m.row.defence not in (None, "none")
    ]
    told = dict.fromkeys(one for row in costs for one in row.assumes)
    return [f"{one[:1].upper()}{one[1:]}." for one in told]


def _few(measures: Sequence[Measure]) -> str:
    small = {(m.row.adversary, m.row.attack): m.n for m in measures if m.n is not None and m.n < FEW}
    return ", ".join(f"{attack} by the {adversary} (n = {n})" for (adversary, attack), n in small.items())


def _not_estimable(measures: Sequence[Measure]) -> list[str]:
    """A line for each metric and reason, naming the attacks it holds for."""
    groups: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for m in measures:
        if m.value is None:
            what = "Not run:"
            if m.row.metric != NOT_RUN:
                what = f"Not estimable: {metric_words(m.row.metric).label} of"
            whose = groups.setdefault((what, m.reason), {})
            whose.setdefault(m.row.adversary or "", {})[m.row.attack or m.row.family] = None
    made = []
    for (what, reason), whose in groups.items():
        named = [
            f"{listed(list(attacks))}{f' by the {adversary}' if adversary else ''}"
            for adversary, attacks in whose.items()
        ]
        made.append(f"{what} {'; '.join(named)}: {reason}.")
    return made


def _unjudged(measures: Sequence[Measure]) -> list[str]:
    """A line for each reason why there is a value and no verdict, naming the findings it holds for."""
    given = _given(measures)
    groups: dict[str, dict[str, None]] = {}
    for m in measures:
        if leaks(m) and m.judged == "unjudged":
            known = given.get(_attack_run(m), ())
            remark = next((one for one in reversed(m.row.assumes) if one not in known), "")
            groups.setdefault(remark, {})[_named(m)] = None
    return [
        f"No interval or no chance level, so no verdict: {'; '.join(named)}{f': {why}' if why else ''}."
        for why, named in groups.items()
    ]


def _given(measures: Sequence[Measure]) -> dict[tuple[str, str, str], tuple[str, ...]]:
    """What each attack was given: it stands in all its rows, a remark on one metric only there.

    Where there is but one row, and that without an interval, its last entry is taken for the remark.
    """
    runs: dict[tuple[str, str, str], list[Measure]] = {}
    for m in measures:
        if m.row.attack and m.value is not None and m.row.family != VETTING:
            runs.setdefault(_attack_run(m), []).append(m)
    given = {}
    for key, mine in runs.items():
        assumed = [m.row.assumes for m in mine]
        if len(mine) == 1 and mine[0].low is None and mine[0].high is None:
            assumed.append(assumed[0][:-1])
        given[key] = tuple(one for one in assumed[0] if all(one in other for other in assumed))
    return given


def _attack_run(measure: Measure) -> tuple[str, str, str]:
    return measure.row.adversary or "", measure.row.attack or "", measure.row.defence or "none"


def _named(measure: Measure) -> str:
    row = measure.row
    parts = (row.attack or row.family, metric_words(row.metric).label, row.adversary)
    return ", ".join(part for part in parts if part)

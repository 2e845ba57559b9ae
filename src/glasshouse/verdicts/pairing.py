"""Which findings stand beside which: two attacks, or two defences, in everything else that they share."""

from collections.abc import Callable, Hashable, Iterable, Sequence

from glasshouse.errors import BadInput, quoted
from glasshouse.exhibits import Records
from glasshouse.findings import Finding
from glasshouse.registry import unknown
from glasshouse.verdicts.differences import TABLES, Difference, Side, difference
from glasshouse.verdicts.measure import grouped
from glasshouse.verdicts.metrics import NOT_RUN, metric_words

Key = Callable[[Finding], Hashable]


def sides(
    name: str,
    rows: Iterable[Finding],
    records: Iterable[Records],
    key: Key,
    *,
    same_records: bool = False,
) -> dict[Hashable, Side]:
    """The findings of each key, with what is kept of single records behind them."""
    kept = {_label_of(one, one.table): one for one in records}

    def behind(row: Finding) -> Records | None:
        tables = TABLES.get(row.metric, ())
        return next((kept[label] for table in tables if (label := _label_of(row, table)) in kept), None)

    return {
        value: Side(
            name,
            group,
            {row.seed: found for row in group if (found := behind(row)) is not None},
            same_records,
        )
        for value, group in grouped(rows, key).items()
    }


def between(
    first: str,
    second: str,
    rows: Sequence[Finding],
    records: Sequence[Records],
    *,
    metric: str | None = None,
    adversary: str | None = None,
    same_records: bool = False,
) -> list[Difference]:
    """The second attack less the first, or the second defence less the first, in all that both met.

    A name may be without its options where only one has it. All metrics but details are compared, or the one
    `metric`, of all adversaries or of one. The seeds may have been asked about the `same_records`.
    """
    kind = "attack" if _names(first, rows, "attack") else "defence"
    specs = [_spec(name, rows, kind) for name in (first, second)]
    if specs[0] == specs[1]:
        raise BadInput(f"{first} and {second} are the same {kind}; name two different ones")
    chosen = [row for row in rows if row.metric != NOT_RUN and _is_asked(row, metric, adversary)]

    def shared(row: Finding) -> Hashable:
        # The cell of an audit names attack and defence again; an attack on batches is of another family.
        where = (row.source, "" if row.source == "audit" else row.cell, row.strategy, row.data, row.model)
        other = row.defence if kind == "attack" else (row.family, row.attack)
        return (*where, row.adversary, other, row.metric)

    rows_of = {spec: [row for row in chosen if (getattr(row, kind) or "none") == spec] for spec in specs}
    a, b = (sides(spec, rows_of[spec], records, shared, same_records=same_records) for spec in specs)
    found = [difference(a[key], b[key]) for key in a if key in b]
    if not found:
        for spec in specs:
            reasons = [row.reason for row in rows if getattr(row, kind) == spec and row.metric == NOT_RUN]
            if reasons and kind == "attack":
                raise BadInput(f"{spec} could not run here: {reasons[0]}")
        raise BadInput(
            f"{specs[0]} and {specs[1]} share no measured number{_asked(metric, adversary)}; "
            "name two that met the same adversary, and a metric that both have"
        )
    return found


def _is_asked(row: Finding, metric: str | None, adversary: str | None) -> bool:
    words = metric_words(row.metric)
    telling = not words.detail and (row.metric in TABLES or words.leaks != "none")
    return (telling if metric is None else row.metric == metric) and adversary in (None, row.adversary)


def _asked(metric: str | None, adversary: str | None) -> str:
    named = {"metric": metric, "adversary": adversary}
    return "".join(f" with {name} {quoted(value)}" for name, value in named.items() if value is not None)


def _names(name: str, rows: Sequence[Finding], kind: str) -> list[str]:
    """Those in the findings that `name` may mean: the one written so, else all of that name with options."""
    there = dict.fromkeys(getattr(row, kind) or ("none" if kind == "defence" else "") for row in rows)
    if name in there:
        return [name]
    return [spec for spec in there if spec.partition("(")[0] == name]


def _spec(name: str, rows: Sequence[Finding], kind: str) -> str:
    found = _names(name, rows, kind)
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(
            f"{quoted(name)} is the name of several, {', '.join(found)}; write one with its options"
        )
    raise BadInput(unknown(kind, name, {str(getattr(row, kind)) for row in rows if getattr(row, kind)}))


def _label_of(one: Finding | Records, table: str) -> Hashable:
    """What a finding and the records behind it have in common."""
    labels = (one.attack or "", one.adversary or "", one.defence or "none", one.strategy or "")
    return (one.cell or "", *labels, one.seed, table)

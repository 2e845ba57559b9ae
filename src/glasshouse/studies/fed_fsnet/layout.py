"""Tables: the paper's two, all strategies, ablations, training, costs, leaks; and charts of the same."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

from glasshouse.exhibits import Chart, StudyTable
from glasshouse.measures.estimate import mean
from glasshouse.spelling import DASH
from glasshouse.studies.fed_fsnet.measured import (
    BOTH,
    DOWN,
    GLOBAL,
    JUMP,
    LAST,
    LEAKS,
    MEMBERSHIP,
    SECONDS,
    SPEED,
    UP,
    WOBBLE,
    Federations,
    Pair,
    Quantity,
)
from glasshouse.studies.fed_fsnet.printed import CHOICES, OTHERS, PAPERS, TABLE_1, TABLE_2, WORDS, printed
from glasshouse.studies.showing import bracketed, seeds_note, series_of

OVER_SEEDS = (
    "Means over seeds with their 95% t interval; one seed has that of its test images, where it has any."
)
LATE = "late: the mean over the last 5 rounds."
BOUNDS = "The upper bound is FedAvg on IID data, the lower bound FedAvg on shards of two classes a client."
NO_AFL = "Where all clients take part (f = 1.0) AFL is FedAvg by construction and is not run."
STEADINESS = "How fast and how steadily Acc_global rises"
LAST_ROUNDS = (
    "Standard deviation and change over the last 20 rounds, or the later half where that is less. "
    f"{OVER_SEEDS}"
)
DASHES = (
    f"A dash: clients report nothing, or the server sends no samples. {OVER_SEEDS} Blind guesses: 0.5 for an "
    "AUC and for the share of mimics; the long table has those of label overlaps and of PGD (eps 0.1 on grey "
    "images, 0.02 in colour). Servers and clients look at the first two and the last two rounds, outsider "
    "and owner at the final model."
)
FIGURE_2 = ("upper-bound", "fedavg", "fed-fsnet")
"""The curves of the paper's figure."""


def tables(measured: Federations) -> list[StudyTable]:
    """Everything that the finished cells allow."""
    filled = [
        _papers(measured, "table-1", "Table 1: Fed-FSNet between its bounds", TABLE_1, BOUNDS),
        _papers(measured, "table-2", "Table 2: Fed-FSNet and its competitors", TABLE_2, NO_AFL),
        _others(measured),
        _ablations(measured),
        _quantities(measured, "training", STEADINESS, "table", (SPEED, WOBBLE, JUMP), LAST_ROUNDS),
        _costs(measured),
        _quantities(measured, "leaks", "What strategies give away", "leaks", LEAKS, DASHES),
    ]
    choices = StudyTable(
        name="choices",
        title="What the paper leaves open, and what is done here",
        columns=("matter", "choice"),
        rows=tuple(CHOICES.items()),
    )
    return [table for table in filled if table.rows] + [choices]


def _table(
    name: str,
    title: str,
    columns: Sequence[str],
    rows: Iterable[Pair],
    cells: Callable[[Pair], Iterable[str]],
    note: str,
) -> StudyTable:
    """A table with a row for each pair; the first of `columns` is that of the methods."""
    return StudyTable(
        name=name,
        title=title,
        columns=(columns[0], "setting", *columns[1:]),
        rows=tuple((WORDS[pair[1]], str(pair[0]), *cells(pair)) for pair in rows),
        note=note,
    )


def _papers(
    measured: Federations, name: str, title: str, table: Iterable[tuple[str, float]], more: str
) -> StudyTable:
    """One of the paper's tables, method by method and scenario by scenario, printed beside measured."""

    def cells(pair: Pair) -> Iterator[str]:
        scenario, method = pair
        for number, quantity in zip(printed(scenario.data, method, scenario.fraction), BOTH):
            yield DASH if number is None else f"{number:.3f}"
            yield from _shown(measured, pair, (LAST[quantity], quantity))

    columns = [f"{quantity.name}, {what}" for quantity in BOTH for what in ("printed", "last round", "late")]
    methods = {method for method, _ in table}
    rows = [pair for pair in measured.pairs() if pair[1] in methods]
    return _table(name, title, ("method", *columns), rows, cells, f"{more} {OVER_SEEDS} {LATE}")


def _others(measured: Federations) -> StudyTable:
    """Every strategy beside FedAvg, and how much of the gap between the bounds it closes."""
    columns = [f"{quantity.name}{what}" for what in (", late", " over FedAvg's") for quantity in BOTH]
    return _table(
        "strategies",
        "All strategies, the best first",
        ("strategy", *columns, "gap closed"),
        [
            (scenario, method)
            for scenario in measured.scenarios()
            if set(OTHERS) & set(measured.methods(scenario))
            for method in measured.best(scenario, measured.methods(scenario), GLOBAL)
        ],
        lambda pair: [
            *_shown(measured, pair, BOTH),
            *(_gain(measured, pair, "fedavg", quantity) for quantity in BOTH),
            _closed(measured, pair),
        ],
        f"{OVER_SEEDS} {LATE} Differences are paired by seed. Gap closed: the gain in Acc_global over "
        "FedAvg, as a share of the upper bound's gain. None was tuned.",
    )


def _ablations(measured: Federations) -> StudyTable:
    columns = [f"{quantity.name}, late" for quantity in BOTH]
    return _table(
        "ablations",
        "Fed-FSNet with one thing changed",
        ("variant", *columns, "Acc_global over Fed-FSNet's", "Acc_global over FedAvg's"),
        [
            (scenario, method)
            for scenario in measured.scenarios("ablation")
            for method in ("fed-fsnet", *measured.methods(scenario, "ablation"))
        ],
        lambda pair: [
            *_shown(measured, pair, BOTH),
            *(_gain(measured, pair, other, GLOBAL) for other in ("fed-fsnet", "fedavg")),
        ],
        f"{OVER_SEEDS} {LATE} Differences are paired by seed.",
    )


def _costs(measured: Federations) -> StudyTable:
    """Bytes and seconds, also in units of FedAvg's."""

    def cells(pair: Pair) -> Iterator[str]:
        for quantity, unit in ((DOWN, 1000), (UP, 1000), (SECONDS, 1)):
            estimates = [measured.of(which, quantity) for which in (pair, (pair[0], "fedavg"))]
            value, base = (None if estimate is None else estimate.value for estimate in estimates)
            yield DASH if value is None else f"{value / unit:,.1f}"
            yield f"{value / base:.2f}" if value is not None and base else DASH

    kilobytes = ("kB to a client", "of FedAvg's", "kB from a client", "of FedAvg's, from")
    return _table(
        "costs",
        "What a round costs",
        ("strategy", *kilobytes, "core-seconds a round", "of FedAvg's, seconds"),
        measured.pairs(),
        cells,
        "Means over rounds and seeds; kB of plain numbers, without masks and headers. Core-seconds are those "
        "of all clients and the server together, on a machine that did other things too.",
    )


def _quantities(
    measured: Federations, name: str, title: str, kind: str, quantities: Sequence[Quantity], note: str
) -> StudyTable:
    """Some quantities of every method."""
    columns = ("strategy", *(quantity.name for quantity in quantities))
    return _table(
        name, title, columns, measured.pairs(kind), lambda pair: _shown(measured, pair, quantities), note
    )


def _shown(measured: Federations, pair: Pair, quantities: Iterable[Quantity]) -> list[str]:
    return [bracketed(measured.of(pair, quantity)) for quantity in quantities]


def _gain(measured: Federations, pair: Pair, other: str, quantity: Quantity) -> str:
    scenario, method = pair
    gains = list(measured.apart(method, [(scenario, other)], quantity).values())
    return bracketed(mean(gains), "+.3f") if gains and method != other else DASH


def _closed(measured: Federations, pair: Pair) -> str:
    """The share of the gap between the bounds that a method closes, from means over the seeds."""
    scenario, method = pair
    gain, gap = (
        measured.apart(name, [(scenario, "fedavg")], GLOBAL).values() for name in (method, "upper-bound")
    )
    if not gain or not gap or method in ("fedavg", "upper-bound"):
        return DASH
    return f"{statistics.fmean(gain) / statistics.fmean(gap):.0%}"


def charts(measured: Federations) -> list[Chart]:
    """Figure 2, accuracy against rounds, for every scenario; and what strategies gain and give away."""
    drawn = [*_curves(measured), *_gains(measured), *_membership(measured)]
    return [chart.model_copy(update={"note": seeds_note(measured)}) for chart in drawn]


def _curves(measured: Federations) -> Iterator[Chart]:
    """Accuracy by round: of the bounds and Fed-FSNet, as in the paper, of all its methods, and of others."""
    for scenario in measured.scenarios():
        finished = measured.methods(scenario)
        papers = [method for method in PAPERS if method in finished]
        bounds = [method for method in FIGURE_2 if method in papers]
        others = ["fedavg", *(method for method in finished if method not in papers)]
        figure = "Figure 2" if scenario.data == "mnist" else "As Figure 2"
        for group, title, methods, enough in (
            ("bounds", figure, bounds, len(bounds) > 1),
            ("rivals", "Rows of Tables 1 and 2", papers, len(papers) > len(bounds)),
            ("others", "Other strategies", others, len(others) > 1),
        ):
            if not enough:
                continue
            curves = {method: measured.curve((scenario, method)) for method in methods}
            rounds = sorted({number for curve in curves.values() for number in curve})
            series = [
                series_of(WORDS[method], [curve.get(number) for number in rounds])
                for method, curve in curves.items()
            ]
            yield Chart(
                name=f"rounds-{scenario.name}-{group}",
                title=f"{title}: {scenario}",
                kind="curves",
                x="round",
                y="Acc_global",
                categories=tuple(map(str, rounds)),
                series=tuple(series),
            )


def _gains(measured: Federations) -> Iterator[Chart]:
    """Late accuracies over FedAvg's, paired by seed."""
    for scenario in measured.scenarios():
        finished = measured.methods(scenario)
        methods = [method for method in finished if method not in ("fedavg", "upper-bound")]
        if len(methods) < 2 or "fedavg" not in finished:
            continue
        series = []
        for quantity in BOTH:
            gains = [
                list(measured.apart(method, [(scenario, "fedavg")], quantity).values()) for method in methods
            ]
            series.append(series_of(quantity.name, [mean(gain) if gain else None for gain in gains]))
        yield Chart(
            name=f"gains-{scenario.name}",
            title=f"Late accuracy over FedAvg's: {scenario}",
            kind="bars",
            y="difference",
            categories=tuple(WORDS[method] for method in methods),
            series=tuple(series),
        )


def _membership(measured: Federations) -> Iterator[Chart]:
    """How well an outsider tells members, by strategy and scenario."""
    methods = list(dict.fromkeys(method for _, method in measured.pairs("leaks")))
    series = [
        series_of(
            f"{scenario.data}, {scenario.model}",
            [measured.of((scenario, method), MEMBERSHIP) for method in methods],
        )
        for scenario in measured.scenarios("leaks")
    ]
    if series:
        yield Chart(
            name="membership",
            title="Membership AUC of loss-threshold on the final model",
            kind="bars",
            y="AUC",
            categories=tuple(WORDS[method] for method in methods),
            chance=0.5,
            series=tuple(series),
        )

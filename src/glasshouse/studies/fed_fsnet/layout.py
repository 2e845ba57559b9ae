"""Tables: the paper's two, all strategies, ablations, training, costs, leaks; and charts of the same."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from glasshouse.exhibits import Chart, StudyTable
from glasshouse.spelling import DASH
from glasshouse.studies.fed_fsnet import measured
from glasshouse.studies.fed_fsnet.measured import (
    GLOBAL,
    LAST,
    READINGS,
    Federations,
    Pair,
    Quantity,
    Scenario,
)
from glasshouse.studies.fed_fsnet.printed import CHOICES, OTHERS, PAPERS, TABLE_1, TABLE_2, WORDS, printed
from glasshouse.studies.showing import bracketed, chart, filled, seeds_note, series_of, table
from glasshouse.verdicts.seeds import across_seeds

OVER_SEEDS = (
    "Means over seeds. 95% intervals are over test images where the seeds agree, else over seeds and images; "
    "over seeds alone where there are no images."
)
READ = (
    "On which images the paper tests the models of devices is not said, so its Acc_local stands beside three "
    "readings: participants' models on all classes; the same on the classes that each holds, weighed as in "
    "its data; and the global model on these."
)
LATE = f"{OVER_SEEDS} late: the mean over the last 5 rounds."
READING = f"{READ} {LATE}"
PAIRED = f"{LATE} Differences are taken seed by seed."
BOUNDS = "The upper bound is FedAvg on IID data, the lower bound FedAvg on shards of two classes a client."
NO_AFL = "Where all clients take part (f = 1.0) AFL is FedAvg by construction and is not run."
GAP = "Gap closed: the gain in Acc_global over FedAvg, as a share of the upper bound's gain. None was tuned."
LAST_ROUNDS = "Standard deviation and change over the last 20 rounds, or the later half where that is less."
COSTS = (
    "Means over rounds and seeds; kB of plain numbers, without masks and headers. Core-seconds are those of "
    "all clients and the server together, on a machine that did other things too."
)
DASHES = (
    f"A dash: clients report nothing, or the server sends no samples. {OVER_SEEDS} Blind guesses: 0.5 for an "
    "AUC and for the share of mimics; the long table has those of label overlaps and of PGD (eps 0.1 on grey "
    "images, 0.02 in colour). Servers and clients look at the first two and the last two rounds, outsider "
    "and owner at the final model."
)
EXTRACTOR = (
    "Every image is its 64 features for all who take part, mlp learns from these, and mimic samples are made "
    "up as features too. The long table names what the extractor was trained on."
)
FIGURE_2 = ("upper-bound", "fedavg", "fed-fsnet")
"""The curves of the paper's figure."""

ColumnMap = dict[str, Callable[[Pair], str]]
"""Headings, and what stands below each for a scenario and a method."""


def tables(federations: Federations) -> list[StudyTable]:
    """Everything that the finished cells allow."""
    columns, pairs = Columns(federations), federations.pairs()
    papers, strategy = columns.beside_printed(), _named("strategy")
    late = columns.shown((GLOBAL, *READINGS), ", late")
    table_1, table_2 = (
        [pair for pair in pairs if pair[1] in {method for method, _ in printed_table}]
        for printed_table in (TABLE_1, TABLE_2)
    )
    ranked = [
        (scenario, method)
        for scenario in federations.scenarios()
        if set(OTHERS) & set(federations.methods(scenario))
        for method in federations.best(scenario, federations.methods(scenario), GLOBAL)
    ]
    gains = late | columns.gains("fedavg", GLOBAL) | {"gap closed": columns.closed}
    variants = [
        (scenario, method)
        for scenario in federations.scenarios("ablation")
        for method in ("fed-fsnet", *federations.methods(scenario, "ablation"))
    ]
    changes = _named("variant") | late | columns.gains("fed-fsnet", GLOBAL) | columns.gains("fedavg", GLOBAL)
    steadiness = columns.shown((measured.SPEED, measured.WOBBLE, measured.JUMP))
    behind = columns.shown((GLOBAL, measured.SPEED)) | columns.gains("extractor-fedavg", GLOBAL)
    behind |= {"kB to a client": partial(columns.cost, measured.DOWN, 1000)}
    leaks, attacked = columns.shown(measured.LEAKS), federations.pairs("leaks")
    laid_out = [
        filled(
            "table-1", "Table 1: Fed-FSNet between its bounds", papers, table_1, f"{BOUNDS} {READ} {LATE}"
        ),
        filled(
            "table-2", "Table 2: Fed-FSNet and its competitors", papers, table_2, f"{NO_AFL} {READ} {LATE}"
        ),
        filled("strategies", "All strategies, the best first", strategy | gains, ranked, f"{PAIRED} {GAP}"),
        filled("ablations", "Fed-FSNet with one thing changed", changes, variants, PAIRED),
        filled(
            "training",
            "How fast and how steadily Acc_global rises",
            strategy | steadiness,
            pairs,
            f"{LAST_ROUNDS} {OVER_SEEDS}",
        ),
        filled(
            "extractor",
            "Section 4.5: features by an extractor that was trained on other images",
            strategy | behind,
            federations.pairs("extractor"),
            f"{EXTRACTOR} {PAIRED}",
        ),
        filled("costs", "What a round costs", strategy | columns.costs(), pairs, COSTS),
        filled("leaks", "What strategies give away", strategy | leaks, attacked, DASHES),
        table(
            "choices",
            "What the paper leaves open, and what is done here",
            ("matter", "choice"),
            CHOICES.items(),
        ),
    ]
    return [shown for shown in laid_out if shown.rows]


def _named(heading: str) -> ColumnMap:
    return {heading: lambda pair: WORDS[pair[1]], "setting": lambda pair: str(pair[0])}


@dataclass(frozen=True)
class Columns:
    """The columns that tables are made of."""

    federations: Federations

    def shown(self, quantities: Iterable[Quantity], words: str = "") -> ColumnMap:
        """Some quantities with their intervals."""
        return {f"{quantity.name}{words}": partial(self._shown, quantity) for quantity in quantities}

    def beside_printed(self) -> ColumnMap:
        """Both accuracies as the paper prints them, after the last round and late."""
        columns = _named("method") | {"Acc_global, printed": partial(_printed, 0)}
        columns |= self.shown([LAST], ", last round") | self.shown([GLOBAL], ", late")
        columns["Acc_local, printed"] = partial(_printed, 1)
        return columns | self.shown(READINGS, ", late")

    def gains(self, other: str, *quantities: Quantity) -> ColumnMap:
        """By how much methods are above another one."""
        words = f"over {WORDS[other]}'s"
        return {f"{quantity.name} {words}": partial(self._gain, other, quantity) for quantity in quantities}

    def costs(self) -> ColumnMap:
        """Bytes and seconds, also in units of FedAvg's."""
        columns: ColumnMap = {}
        for quantity, unit, heading, relative in (
            (measured.DOWN, 1000, "kB to a client", "of FedAvg's"),
            (measured.UP, 1000, "kB from a client", "of FedAvg's, from"),
            (measured.SECONDS, 1, "core-seconds a round", "of FedAvg's, seconds"),
        ):
            columns |= {
                heading: partial(self.cost, quantity, unit),
                relative: partial(self._of_fedavgs, quantity),
            }
        return columns

    def closed(self, pair: Pair) -> str:
        """The share of the gap between the bounds that a method closes, from means over the seeds."""
        scenario, method = pair
        gain, gap = (self._mean_gain(name, (scenario, "fedavg"), GLOBAL) for name in (method, "upper-bound"))
        if method in ("fedavg", "upper-bound") or gain is None or not gap:
            return DASH
        return f"{gain / gap:.0%}"

    def cost(self, quantity: Quantity, unit: float, pair: Pair) -> str:
        """A quantity in some unit."""
        return _ratio(self._mean(pair, quantity), unit, ",.1f")

    def _shown(self, quantity: Quantity, pair: Pair) -> str:
        return bracketed(self.federations.of(pair, quantity))

    def _gain(self, other: str, quantity: Quantity, pair: Pair) -> str:
        scenario, method = pair
        gains = self.federations.gains(method, (scenario, other), quantity)
        return bracketed(across_seeds(gains), "+.3f") if gains and method != other else DASH

    def _mean_gain(self, method: str, pair: Pair, quantity: Quantity) -> float | None:
        gains = self.federations.gains(method, pair, quantity)
        return across_seeds(gains).value if gains else None

    def _of_fedavgs(self, quantity: Quantity, pair: Pair) -> str:
        return _ratio(self._mean(pair, quantity), self._mean((pair[0], "fedavg"), quantity), ".2f")

    def _mean(self, pair: Pair, quantity: Quantity) -> float | None:
        found = self.federations.of(pair, quantity)
        return None if found is None else found.value


def _printed(column: int, pair: Pair) -> str:
    scenario, method = pair
    number = printed(scenario.data, method, scenario.fraction)[column]
    return DASH if number is None else f"{number:.3f}"


def _ratio(value: float | None, base: float | None, form: str) -> str:
    """A value as a multiple of another, or a dash where one is missing."""
    return format(value / base, form) if value is not None and base else DASH


def charts(federations: Federations) -> list[Chart]:
    """Figure 2, accuracy against rounds, for every scenario; and what strategies gain and give away."""
    scenarios = federations.scenarios()
    drawn = [figure for scenario in scenarios for figure in _curves(federations, scenario)]
    drawn += [figure for scenario in scenarios for figure in _gains(federations, scenario)]
    drawn += _membership(federations)
    return [figure.model_copy(update={"note": seeds_note(federations)}) for figure in drawn]


def _curves(federations: Federations, scenario: Scenario) -> Iterator[Chart]:
    """Accuracy by round: of the bounds and Fed-FSNet, as in the paper, of all its methods, and of others."""
    finished = federations.methods(scenario)
    papers = [method for method in PAPERS if method in finished]
    bounds = [method for method in FIGURE_2 if method in papers]
    others = ["fedavg", *(method for method in finished if method not in papers)]
    figure = "Figure 2" if scenario.data == "mnist" else "As Figure 2"
    for group, title, methods, enough in (
        ("bounds", figure, bounds, len(bounds) > 1),
        ("rivals", "Rows of Tables 1 and 2", papers, len(papers) > len(bounds)),
        ("others", "Other strategies", others, len(others) > 1),
    ):
        if enough:
            curves = {method: federations.curve((scenario, method)) for method in methods}
            rounds = sorted({number for curve in curves.values() for number in curve})
            series = [
                series_of(WORDS[method], [curve.get(number) for number in rounds])
                for method, curve in curves.items()
            ]
            name, axes = f"rounds-{scenario.name}-{group}", ("round", "Acc_global")
            yield chart(name, f"{title}: {scenario}", axes, map(str, rounds), series, kind="curves")


def _gains(federations: Federations, scenario: Scenario) -> Iterator[Chart]:
    """Late accuracies over FedAvg's, paired by seed."""
    finished = federations.methods(scenario)
    methods = [method for method in finished if method not in ("fedavg", "upper-bound")]
    if len(methods) < 2 or "fedavg" not in finished:
        return
    gains = [federations.gains(method, (scenario, "fedavg"), GLOBAL) for method in methods]
    series = [series_of(GLOBAL.name, [across_seeds(gain) if gain else None for gain in gains])]
    name, title = f"gains-{scenario.name}", f"Late accuracy over FedAvg's: {scenario}"
    yield chart(name, title, ("", "difference"), [WORDS[method] for method in methods], series, kind="bars")


def _membership(federations: Federations) -> Iterator[Chart]:
    """How well an outsider tells members, by strategy and scenario."""
    methods = list(dict.fromkeys(method for _, method in federations.pairs("leaks")))
    series = []
    for scenario in federations.scenarios("leaks"):
        aucs = [federations.of((scenario, method), measured.MEMBERSHIP) for method in methods]
        series.append(series_of(f"{scenario.data}, {scenario.model}", aucs))
    if series:
        title, words = (
            "Membership AUC of loss-threshold on the final model",
            [WORDS[method] for method in methods],
        )
        yield chart("membership", title, ("", "AUC"), words, series, kind="bars", chance=0.5)

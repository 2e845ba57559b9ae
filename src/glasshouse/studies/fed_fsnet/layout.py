"""The study's tables: the paper's two, all strategies, ablations, training, costs, leaks and choices."""

import statistics
from collections.abc import Iterable, Sequence

from glasshouse.exhibits import StudyTable
from glasshouse.measures.estimate import mean
from glasshouse.spelling import DASH
from glasshouse.studies.fed_fsnet.choices import CHOICES
from glasshouse.studies.fed_fsnet.measured import (
    DOWN,
    GLOBAL,
    JUMP,
    LAST,
    LEAKS,
    LOCAL,
    SECONDS,
    SPEED,
    UP,
    WOBBLE,
    Measured,
    Quantity,
    Setting,
)
from glasshouse.studies.fed_fsnet.printed import TABLE_1, TABLE_2, printed
from glasshouse.studies.fed_fsnet.rows import OTHERS, WORDS
from glasshouse.studies.showing import bracketed

OVER_SEEDS = (
    "Means over seeds with their 95% t interval; one seed has that of its test images, where it has any."
)
LATE = "late: the mean over the last 5 rounds."
BOUNDS = "The upper bound is FedAvg on IID data, the lower bound FedAvg on shards of two classes a device."
NO_AFL = "Where all devices take part (f = 1.0) AFL is FedAvg by construction and is not run."


def tables(measured: Measured) -> list[StudyTable]:
    """Everything that the finished cells allow."""
    made = [
        _papers(measured, "table-1", "Table 1: Fed-FSNet between its bounds", _named(TABLE_1), BOUNDS),
        _papers(measured, "table-2", "Table 2: Fed-FSNet and its competitors", _named(TABLE_2), NO_AFL),
        _others(measured),
        _ablations(measured),
        _training(measured),
        _costs(measured),
        _leaks(measured),
    ]
    choices = StudyTable(
        name="choices",
        title="What the paper leaves open, and what is done here",
        columns=("matter", "choice"),
        rows=CHOICES,
    )
    return [table for table in made if table.rows] + [choices]


def _papers(measured: Measured, name: str, title: str, rows: Sequence[str], more: str) -> StudyTable:
    """One of the paper's tables, row by row and setting by setting, printed beside measured."""
    columns = ["method", "setting"]
    for quantity in (GLOBAL, LOCAL):
        columns += [f"{quantity.name}, {what}" for what in ("printed", "last round", "late")]
    made = []
    for setting, row in _pairs(measured, rows):
        paper = printed(setting.data, row, float(setting.fraction))
        cells: list[str] = []
        for number, quantity in zip(paper, (GLOBAL, LOCAL)):
            cells.append(DASH if number is None else f"{number:.3f}")
            cells += _shown(measured, setting, row, (LAST[quantity], quantity))
        made.append((WORDS[row], str(setting), *cells))
    note = f"{more} {OVER_SEEDS} {LATE}"
    return StudyTable(name=name, title=title, columns=tuple(columns), rows=tuple(made), note=note)


def _others(measured: Measured) -> StudyTable:
    """Every strategy beside FedAvg, and how much of the gap between the bounds it closes."""
    others = {row.name for row in OTHERS}
    settings = [own for own in measured.settings() if others & set(measured.rows(own))]
    made = [
        (
            WORDS[row],
            str(setting),
            *_shown(measured, setting, row, (GLOBAL, LOCAL)),
            *(_gain(measured, setting, row, "fedavg", own) for own in (GLOBAL, LOCAL)),
            _closed(measured, setting, row),
        )
        for setting in settings
        for row in measured.best(setting, measured.rows(setting), GLOBAL)
    ]
    return StudyTable(
        name="strategies",
        title="All strategies, the best first",
        columns=(
            "strategy",
            "setting",
            "Acc_global, late",
            "Acc_local, late",
            "Acc_global over FedAvg's",
            "Acc_local over FedAvg's",
            "gap closed",
        ),
        rows=tuple(made),
        note=f"{OVER_SEEDS} {LATE} Differences are paired by seed. Gap closed: the gain in Acc_global over "
        "FedAvg, as a share of the upper bound's gain. None was tuned.",
    )


def _ablations(measured: Measured) -> StudyTable:
    made = [
        (
            WORDS[row],
            str(setting),
            *_shown(measured, setting, row, (GLOBAL, LOCAL)),
            _gain(measured, setting, row, "fed-fsnet", GLOBAL),
            _gain(measured, setting, row, "fedavg", GLOBAL),
        )
        for setting in measured.settings("ablation")
        for row in ("fed-fsnet", *measured.rows(setting, "ablation"))
    ]
    return StudyTable(
        name="ablations",
        title="Fed-FSNet with one thing changed",
        columns=(
            "variant",
            "setting",
            "Acc_global, late",
            "Acc_local, late",
            "Acc_global over Fed-FSNet's",
            "Acc_global over FedAvg's",
        ),
        rows=tuple(made),
        note=f"{OVER_SEEDS} {LATE} Differences are paired by seed.",
    )


def _training(measured: Measured) -> StudyTable:
    """How fast and how steadily the global model learns."""
    shown = (SPEED, WOBBLE, JUMP)
    return StudyTable(
        name="training",
        title="How fast and how steadily Acc_global rises",
        columns=("strategy", "setting", *(quantity.name for quantity in shown)),
        rows=tuple(
            (WORDS[row], str(setting), *_shown(measured, setting, row, shown))
            for setting, row in _pairs(measured)
        ),
        note="Standard deviation and change over the last 20 rounds, or the later half where that is less. "
        f"{OVER_SEEDS}",
    )


def _costs(measured: Measured) -> StudyTable:
    """Bytes and seconds, also in units of FedAvg's."""
    made = []
    for setting, row in _pairs(measured):
        cells: list[str] = []
        for quantity, unit in ((DOWN, 1000), (UP, 1000), (SECONDS, 1)):
            own, base = (_mean(measured, setting, name, quantity) for name in (row, "fedavg"))
            cells.append(DASH if own is None else f"{own / unit:,.1f}")
            cells.append(f"{own / base:.2f}" if own is not None and base else DASH)
        made.append((WORDS[row], str(setting), *cells))
    return StudyTable(
        name="costs",
        title="What a round costs",
        columns=(
            "strategy",
            "setting",
            "kB to a device",
            "of FedAvg's",
            "kB from a device",
            "of FedAvg's, from",
            "core-seconds a round",
            "of FedAvg's, seconds",
        ),
        rows=tuple(made),
        note="Means over rounds and seeds; kB of plain numbers, without masks and headers. Core-seconds are "
        "those of all devices and the server together, on a machine that did other things too.",
    )


def _leaks(measured: Measured) -> StudyTable:
    """Strategies by attacks: no paper has it."""
    made = [
        (WORDS[row], str(setting), *_shown(measured, setting, row, LEAKS))
        for setting in measured.settings("leaks")
        for row in measured.rows(setting, "leaks")
    ]
    return StudyTable(
        name="leaks",
        title="What strategies give away",
        columns=("strategy", "setting", *(quantity.name for quantity in LEAKS)),
        rows=tuple(made),
        note=f"A dash: devices report nothing, or the server sends no samples. {OVER_SEEDS} Blind guesses: "
        "0.5 for an AUC and for the share of mimics; the long table has those of label overlaps and of PGD "
        "(eps 0.1 on grey images, 0.02 in colour). Servers and clients look at the first two and the last "
        "two rounds, outsider and owner at the final model.",
    )


def _pairs(measured: Measured, rows: Sequence[str] | None = None) -> list[tuple[Setting, str]]:
    """The finished rows of every setting, or those of them that are asked for."""
    return [
        (setting, row)
        for setting in measured.settings()
        for row in measured.rows(setting)
        if rows is None or row in rows
    ]


def _named(table: Iterable[tuple[str, float]]) -> list[str]:
    return list(dict.fromkeys(row for row, _ in table))


def _shown(measured: Measured, setting: Setting, row: str, quantities: Iterable[Quantity]) -> list[str]:
    return [bracketed(measured.over_seeds(setting, row, quantity)) for quantity in quantities]


def _mean(measured: Measured, setting: Setting, row: str, quantity: Quantity) -> float | None:
    found = measured.over_seeds(setting, row, quantity)
    return None if found is None else found.value


def _gain(measured: Measured, setting: Setting, row: str, other: str, quantity: Quantity) -> str:
    gains = list(measured.apart(setting, row, other, quantity).values())
    return bracketed(mean(gains), "+.3f") if gains and row != other else DASH


def _closed(measured: Measured, setting: Setting, row: str) -> str:
    """The share of the gap between the bounds that a row closes, from means over the seeds."""
    gain, gap = (
        list(measured.apart(setting, own, "fedavg", GLOBAL).values()) for own in (row, "upper-bound")
    )
    if not gain or not gap or row in ("fedavg", "upper-bound"):
        return DASH
    return f"{statistics.fmean(gain) / statistics.fmean(gap):.0%}"

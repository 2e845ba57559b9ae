"""Figure 2, accuracy against rounds, for every setting; and what strategies gain and give away."""

from collections.abc import Sequence

from glasshouse.exhibits import Chart, Series
from glasshouse.measures.estimate import mean
from glasshouse.studies.fed_fsnet.measured import GLOBAL, LOCAL, MEMBERSHIP, Measured, Quantity, Setting
from glasshouse.studies.fed_fsnet.rows import PAPERS, WORDS
from glasshouse.studies.showing import series_of

FIGURE_2 = ("upper-bound", "fedavg", "fed-fsnet")
"""The curves of the paper's figure."""


def charts(measured: Measured) -> list[Chart]:
    """Everything that the finished cells allow."""
    made = []
    for setting in measured.settings():
        rows = [row.name for row in PAPERS if row.name in measured.rows(setting)]
        bounds = [row for row in FIGURE_2 if row in rows]
        if len(bounds) > 1:
            number = "Figure 2: " if setting.data == "mnist" else "As Figure 2: "
            made.append(_curves(measured, setting, bounds, f"{number}{setting}", "bounds"))
        if len(rows) > len(bounds):
            made.append(_curves(measured, setting, rows, f"Rows of Tables 1 and 2: {setting}", "rivals"))
        others = [row for row in measured.rows(setting) if row not in rows]
        if others:
            shown = ["fedavg", *others]
            made.append(_curves(measured, setting, shown, f"Other strategies: {setting}", "others"))
    made += _gains(measured)
    made += _membership(measured)
    return made


def _curves(measured: Measured, setting: Setting, rows: Sequence[str], title: str, group: str) -> Chart:
    curves = {row: measured.curve(setting, row) for row in rows}
    rounds = sorted({number for curve in curves.values() for number in curve})
    return Chart(
        name=f"rounds-{setting.head}-{group}",
        title=title,
        kind="curves",
        x="round",
        y="Acc_global",
        categories=tuple(map(str, rounds)),
        series=tuple(
            series_of(WORDS[row], [curve.get(number) for number in rounds]) for row, curve in curves.items()
        ),
        note=_seeds(measured),
    )


def _gains(measured: Measured) -> list[Chart]:
    """Late accuracies over FedAvg's, paired by seed."""
    made = []
    for setting in measured.settings():
        rows = [row for row in measured.rows(setting) if row not in ("fedavg", "upper-bound")]
        if len(rows) < 2 or "fedavg" not in measured.rows(setting):
            continue
        gained = []
        for quantity in (GLOBAL, LOCAL):
            gains = [list(measured.apart(setting, row, "fedavg", quantity).values()) for row in rows]
            gained.append(series_of(quantity.name, [mean(own) if own else None for own in gains]))
        made.append(
            Chart(
                name=f"gains-{setting.head}",
                title=f"Late accuracy over FedAvg's: {setting}",
                kind="bars",
                y="difference",
                categories=tuple(WORDS[row] for row in rows),
                series=tuple(gained),
                note=_seeds(measured),
            )
        )
    return made


def _membership(measured: Measured) -> list[Chart]:
    """How well an outsider tells members, by strategy and setting."""
    settings = measured.settings("leaks")
    rows = list(dict.fromkeys(row for setting in settings for row in measured.rows(setting, "leaks")))
    if not rows:
        return []

    def line(setting: Setting, quantity: Quantity) -> Series:
        found = [
            measured.over_seeds(setting, row, quantity) if measured.at(setting, row, quantity) else None
            for row in rows
        ]
        return series_of(f"{setting.data}, {setting.model}", found)

    return [
        Chart(
            name="membership",
            title="Membership AUC of loss-threshold on the final model",
            kind="bars",
            y="AUC",
            categories=tuple(WORDS[row] for row in rows),
            chance=0.5,
            series=tuple(line(setting, MEMBERSHIP) for setting in settings),
            note=_seeds(measured),
        )
    ]


def _seeds(measured: Measured) -> str:
    count = len(measured.seeds)
    return f"Means over {count} seeds with their 95% interval." if count > 1 else ""

"""The paper's 22 figures, and those of what goes beyond it."""

from collections.abc import Sequence

from glasshouse.exhibits import Chart, Series
from glasshouse.studies.batch_robustness.measured import (
    CLEAN,
    FGSM,
    PGD,
    TOP,
    WEAK_PGD,
    Line,
    Measured,
    Quantity,
)
from glasshouse.studies.batch_robustness.settings import WORDS
from glasshouse.studies.showing import series_of

GROUPS = {
    "main": ("lr", "lr-bs", "benchmark"),
    "momentum": ("lr", "lr-m0.2", "lr-m0.5", "lr-m0.9"),
    "ratio": ("lr-bs", "lr-bs-m0.9"),
}
TITLES = {"main": "by schedule", "momentum": "LR, by momentum", "ratio": "LR/BS, by momentum"}
NUMBERS = {
    ("mnist", "m1", "main"): (1, 2, 3),
    ("mnist", "stdcnn", "main"): (1, 2, 3),
    ("fashion-mnist", "m1", "main"): (4, 4, 5),
    ("cifar10", "c1", "main"): (6, 7, 8),
    ("cifar10", "resnet18", "main"): (6, 7, 8),
    ("fashion-mnist", "stdcnn", "main"): (9, 9, 10),
    ("mnist", "m1", "momentum"): (11, 12, 13),
    ("mnist", "stdcnn", "momentum"): (11, 12, 13),
    ("cifar10", "c1", "momentum"): (14, 15, 16),
    ("cifar10", "resnet18", "momentum"): (14, 15, 16),
    ("mnist", "m1", "ratio"): (17, 18, 19),
    ("mnist", "stdcnn", "ratio"): (17, 18, 19),
    ("cifar10", "c1", "ratio"): (20, 21, 22),
    ("cifar10", "resnet18", "ratio"): (20, 21, 22),
}
"""The paper's numbers of the figures with FGSM, PGD and the top eigenvalue."""
NETWORKS = {"m1": "M1", "stdcnn": "StdCNN", "c1": "C1", "resnet18": "ResNet18"}


def charts(measured: Measured) -> list[Chart]:
    """Everything that the finished cells allow, in the paper's order."""
    made = []
    for data, model in measured.rows("grid"):
        for group, settings in GROUPS.items():
            lines = [Line("grid", data, model, setting) for setting in settings]
            lines = [line for line in lines if measured.batches(line)]
            if len(lines) < 2:
                continue
            numbers = NUMBERS.get((data, model, group), (0, 0, 0))
            made += [
                (number, _figure(measured, lines, group, quantity, number))
                for number, quantity in zip((*numbers, 100), (FGSM, PGD, TOP, WEAK_PGD))
            ]
    made.sort(key=lambda own: own[0] or 99)
    return [chart for _, chart in made] + _federated(measured)


def _figure(measured: Measured, lines: Sequence[Line], group: str, quantity: Quantity, number: int) -> Chart:
    """One quantity of several lines against the batch size, and the clean accuracy beside an attacked one."""
    data, model = lines[0].data, lines[0].model
    batches = sorted({batch for line in lines for batch in measured.batches(line)})
    series = []
    for line in lines:
        name = f"{WORDS[line.setting]}, attacked" if quantity.attack else WORDS[line.setting]
        series.append(_series(measured, name, line, batches, quantity))
        if quantity.attack:
            clean = _series(measured, f"{WORDS[line.setting]}, clean", line, batches, CLEAN)
            series.append(clean.model_copy(update={"like": name}))
    known = f"Figure {number}: " if 0 < number < 100 else ""
    what = f"{quantity.attack.upper()} at eps {quantity.eps(data):g}" if quantity.attack else quantity.name
    return Chart(
        name=f"{data}-{model}-{group}-{quantity.attack or 'top'}-{quantity.limit}",
        title=f"{known}{NETWORKS.get(model, model)} on {data}, {TITLES[group]}, {what}",
        x="batch size",
        y="accuracy" if quantity.attack else quantity.name,
        categories=tuple(map(str, batches)),
        log_y=quantity.logarithmic,
        series=tuple(series),
        note=f"Means over {len(measured.seeds)} seeds with their 95% interval."
        if len(measured.seeds) > 1
        else "",
    )


def _federated(measured: Measured) -> list[Chart]:
    """FedAvg beside the central model whose batch is that of all clients together."""
    made = []
    for line in measured.lines("federated"):
        names = [name.split("/") for name in measured.under(line.head)]
        hands = list(dict.fromkeys(own for _, own in names))
        central = Line("grid", line.data, line.model, line.setting)
        effective = [_product(own) for own in hands]
        for quantity in (WEAK_PGD, TOP):
            series = [_series(measured, "central, effective batch", central, effective, quantity)]
            for division in dict.fromkeys(own for own, _ in names):
                cells = [f"{division}/{own}" for own in hands]
                series.append(_series(measured, f"FedAvg, {division}", line, cells, quantity))
            what = f"PGD at eps {quantity.eps(line.data):g}" if quantity.attack else quantity.name
            made.append(
                Chart(
                    name=f"federated-{line.setting}-{quantity.attack or 'top'}",
                    title=f"Federated: {NETWORKS.get(line.model, line.model)} on {line.data}, "
                    f"{WORDS[line.setting]}, {what}",
                    x="clients x batch",
                    y="accuracy" if quantity.attack else quantity.name,
                    categories=tuple(hands),
                    log_y=quantity.logarithmic,
                    series=tuple(series),
                )
            )
    return made


def _product(hands: str) -> int:
    clients, batch = hands.split("x")
    return int(clients) * int(batch)


def _series(
    measured: Measured, name: str, line: Line, places: Sequence[int | str], quantity: Quantity
) -> Series:
    return series_of(name, [measured.over_seeds(line, place, quantity) for place in places])

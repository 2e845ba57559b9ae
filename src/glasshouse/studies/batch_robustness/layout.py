"""The study's tables: trends with their statistics, momentum, federations, adversarial training and costs."""

import statistics
from collections.abc import Callable, Sequence

from glasshouse.exhibits import StudyTable
from glasshouse.measures.estimate import Estimate, mean
from glasshouse.spelling import DASH
from glasshouse.studies.batch_robustness.explaining import Points, explained
from glasshouse.studies.batch_robustness.figures import NETWORKS
from glasshouse.studies.batch_robustness.measured import (
    CLEAN,
    FGSM,
    INPUT,
    PGD,
    QUANTITIES,
    TOP,
    WEAK_PGD,
    Line,
    Measured,
    Quantity,
)
from glasshouse.studies.batch_robustness.settings import WORDS
from glasshouse.studies.showing import bracketed

KINDS = ("grid", "longer", "adversarial")
LIMITS = "The paper's eps is 0.3 on grey images and 0.02 on CIFAR-10; the smaller one 0.1 and 0.005."
SIGNED = "+.3f"  # how differences, slopes and correlations are written


def tables(measured: Measured) -> list[StudyTable]:
    """Everything that the finished cells allow."""
    made = [_ends(measured), _slopes(measured), _ranks(measured), _against_curvature(measured)]
    made += [
        table for table in (_training_time(measured), _federated(measured), _costs(measured)) if table.rows
    ]
    return made


def _ends(measured: Measured) -> StudyTable:
    """Each line at its smallest and its largest batch."""

    def cell(line: Line, quantity: Quantity) -> str:
        batches = measured.batches(line)
        ends = [measured.over_seeds(line, batch, quantity) for batch in (batches[0], batches[-1])]
        return " \N{RIGHTWARDS ARROW} ".join(_value(own, quantity) for own in ends)

    return _by_line(
        measured,
        "ends",
        "From the smallest batch to the largest: means over seeds",
        cell,
        QUANTITIES,
        f"{LIMITS} `longer` rows train four times as long. Figures and the long table have the rest.",
    )


def _slopes(measured: Measured) -> StudyTable:
    def cell(line: Line, quantity: Quantity) -> str:
        slopes = list(measured.slopes(line, quantity).values())
        return bracketed(mean(slopes), SIGNED) if slopes else DASH

    return _by_line(
        measured,
        "slopes",
        "Change with each doubling of the batch size",
        cell,
        QUANTITIES,
        "Accuracies change by so much, eigenvalues by so many doublings; the mean over seeds with its t "
        f"interval. {LIMITS}",
    )


def _ranks(measured: Measured) -> StudyTable:
    return _by_line(
        measured,
        "ranks",
        "Rank correlation with the batch size",
        lambda line, quantity: bracketed(measured.correlation(line, quantity), SIGNED),
        QUANTITIES,
        "Spearman's rho over all batch sizes and seeds, 95% interval by Fisher's z with Bonett and Wright's "
        "standard error, as if models were independent.",
    )


def _against_curvature(measured: Measured) -> StudyTable:
    """What the explanation by curvature needs: robustness falls where curvature rises."""
    columns: dict[str, tuple[Quantity, Quantity]] = {
        "top eigenvalue and FGSM": (TOP, FGSM),
        "top eigenvalue and PGD": (TOP, PGD),
        "top eigenvalue and PGD, smaller eps": (TOP, WEAK_PGD),
        "eigenvalue in pixels and PGD, smaller eps": (INPUT, WEAK_PGD),
        "test accuracy and PGD, smaller eps": (CLEAN, WEAK_PGD),
    }
    lines = [line for line in measured.lines("grid", "longer") if len(measured.batches(line)) > 2]
    return StudyTable(
        name="curvature-and-robustness",
        title="What goes with robust accuracy along the batch sizes: rank correlations",
        columns=("line", *columns),
        rows=tuple(
            (
                _heading(line),
                *(bracketed(measured.correlation(line, *pair), SIGNED) for pair in columns.values()),
            )
            for line in lines
        ),
        note="If curvature explained robustness, the first three columns would be negative throughout. "
        f"{LIMITS}",
    )


def _training_time(measured: Measured) -> StudyTable:
    """How much of each quantity goes with training time, and how much with the batch size."""
    rows = []
    for data, model in measured.rows("grid"):
        for quantity in QUANTITIES:
            found = [
                [
                    own
                    for unit, own in explained(measured, quantity, says).items()
                    if unit[:2] == (data, model)
                ]
                for says in (Points.of_time, Points.of_batch)
            ]
            if all(found):
                head = f"{NETWORKS.get(model, model)}, {data}"
                rows.append((head, quantity.name, *(bracketed(mean(own), SIGNED) for own in found)))
    return StudyTable(
        name="training-time",
        title="Share of the variance among a row's models that goes with training time and with batch size",
        columns=("row", "quantity", "training time", "batch size"),
        rows=tuple(rows),
        note="Training time is lr x steps / (1 - m). Each share is that of a cubic in the logarithm, for "
        "each seed; the mean over seeds with its t interval.",
    )


def _federated(measured: Measured) -> StudyTable:
    shown = (CLEAN, FGSM, PGD, WEAK_PGD, TOP)
    rows = []
    for line in measured.lines("federated"):
        central = Line("grid", line.data, line.model, line.setting)
        batches = measured.batches(central) if measured.under(central.head) else []
        rows += [
            (f"central, batch {batch}, {WORDS[line.setting]}", *_cells(measured, central, batch, shown))
            for batch in batches
        ]
        rows += [
            (
                f"FedAvg, {name.replace('/', ', ')}, {WORDS[line.setting]}",
                *_cells(measured, line, name, shown),
            )
            for name in measured.under(line.head)
        ]
    return StudyTable(
        name="federated",
        title="Federated: clients x batch, beside central models of the same data",
        columns=("training", *(quantity.name for quantity in shown)),
        rows=tuple(rows),
        note="One local epoch a round, as many rounds as the central model has epochs. Under LR/BS the rate "
        f"follows clients x batch. Means over seeds with their t interval. {LIMITS}",
    )


def _costs(measured: Measured) -> StudyTable:
    """Core-seconds a model, and how well its eigenvalue is known."""
    rows: list[tuple[str | int, ...]] = []
    for data, model in measured.rows("grid"):
        lines = [line for line in measured.lines("grid") if (line.data, line.model) == (data, model)]
        cells = [f"{line.head}/{batch}" for line in lines for batch in measured.batches(line)]
        seconds = [
            _middle([_seconds(measured, cell, quantity, data) for cell in cells])
            for quantity in (CLEAN, FGSM, PGD, TOP)
        ]
        residuals = [
            v for cell in cells for v in measured.by_seed(cell, None, "eigenvalue-residual").values()
        ]
        products = [v for cell in cells for v in measured.by_seed(cell, None, "hessian-products").values()]
        precise = (
            (f"{max(residuals):.1e}", f"{statistics.median(products):.0f}") if residuals else (DASH, DASH)
        )
        rows.append((f"{NETWORKS.get(model, model)} on {data}", *seconds, *precise, len(residuals)))
    return StudyTable(
        name="costs",
        title="Core-seconds a model, in the median, and how well eigenvalues are known",
        columns=(
            "network",
            "training",
            "FGSM",
            "PGD",
            "top eigenvalue",
            "largest relative residual",
            "products, median",
            "models",
        ),
        rows=tuple(rows),
        note="Attacks run at both eps. A residual above the tolerance of 0.003 would make the eigenvalue a "
        "lower bound.",
    )


def _by_line(
    measured: Measured,
    name: str,
    title: str,
    cell: Callable[[Line, Quantity], str],
    quantities: Sequence[Quantity],
    note: str,
) -> StudyTable:
    lines = [line for line in measured.lines(*KINDS) if len(measured.batches(line)) > 1]
    return StudyTable(
        name=name,
        title=title,
        columns=("line", *(quantity.name for quantity in quantities)),
        rows=tuple((_heading(line), *(cell(line, quantity) for quantity in quantities)) for line in lines),
        note=note,
    )


def _cells(measured: Measured, line: Line, place: int | str, shown: Sequence[Quantity]) -> list[str]:
    found = [measured.over_seeds(line, place, quantity) for quantity in shown]
    return [bracketed(own, _form(quantity)) for own, quantity in zip(found, shown)]


def _seconds(measured: Measured, cell: str, quantity: Quantity, data: str) -> float | None:
    found = measured.measure(cell, quantity.spec(data), quantity.metric)
    return None if found is None else found.row.seconds


def _middle(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.1f}" if known else DASH


def _heading(line: Line) -> str:
    kind = "" if line.kind == "grid" else f" ({line.kind})"
    return f"{NETWORKS.get(line.model, line.model)}, {line.data}, {WORDS[line.setting]}{kind}"


def _value(found: Estimate | None, quantity: Quantity) -> str:
    return DASH if found is None or found.value is None else format(found.value, _form(quantity))


def _form(quantity: Quantity) -> str:
    return ".3g" if quantity.logarithmic else ".3f"

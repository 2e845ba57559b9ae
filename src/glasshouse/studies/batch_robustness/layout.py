"""Tables: trends with their statistics, training time, federations and costs."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product

from glasshouse.exhibits import StudyTable
from glasshouse.spelling import DASH
from glasshouse.studies.batch_robustness import measured
from glasshouse.studies.batch_robustness.measured import (
    CLEAN,
    TOP,
    Line,
    ModelAddress,
    Models,
    Points,
    Quantity,
)
from glasshouse.studies.batch_robustness.printed import SCHEDULES, network_words
from glasshouse.studies.showing import bracketed, filled, table
from glasshouse.verdicts.seeds import across_seeds

LIMITS = "The paper's eps is 0.3 on grey images and 0.02 on CIFAR-10; the smaller one 0.05 and 0.005."
ENDS = (
    f"{LIMITS} `full` rows train on 55,000 images for 100 epochs, as the paper does, and carry the verdicts; "
    "the others are far shorter and there as context. Figures and the long table have the rest."
)
SLOPES = (
    "Accuracies change by so much, eigenvalues by so many doublings; the interval is over images where seeds "
    f"agree, else over both. {LIMITS}"
)
RANKS = (
    "Spearman's rho over all batch sizes and seeds, 95% interval by Fisher's z with Bonett and Wright's "
    "standard error, as if models were independent."
)
CURVATURE = (
    f"If curvature explained robustness, the first three columns would be negative throughout. {LIMITS}"
)
TIME = (
    "Training time is lr x steps / (1 - m). Each share is that of a cubic in the logarithm, for each seed; "
    "the mean over seeds with its t interval."
)
FEDERATED = (
    "One local epoch a round, as many rounds as the central model has epochs. Under LR/BS the rate follows "
    f"clients x batch. {LIMITS}"
)
COSTS = (
    "Attacks run at both eps. A residual above the tolerance of 0.003 would make the eigenvalue a lower "
    "bound."
)
MOMENTA_AT = (512,)
"""The batch size at which momenta were trained in full."""
COMPARED = {
    "top eigenvalue and FGSM": (TOP, measured.FGSM),
    "top eigenvalue and PGD": (TOP, measured.PGD),
    "top eigenvalue and PGD, smaller eps": (TOP, measured.WEAK_PGD),
    "eigenvalue in pixels and PGD, smaller eps": (measured.INPUT, measured.WEAK_PGD),
    "test accuracy and PGD, smaller eps": (CLEAN, measured.WEAK_PGD),
}
"""What goes with what along the batch sizes."""


def tables(models: Models) -> list[StudyTable]:
    """Everything that the finished cells allow."""
    others = [
        _momenta(models),
        _training_time(models),
        _federated(models),
        _costs(models),
        _collapsed(models),
    ]
    return [*_trends(models), *(shown for shown in others if shown.rows)]


def _trends(models: Models) -> Iterator[StudyTable]:
    """What batch size does to each quantity of each line, and what goes with robust accuracy along it.

    The explanation by curvature needs that robustness falls where curvature rises.
    """
    lines = [line for line in models.lines("full", "grid", "adversarial") if len(models.batches(line)) > 1]
    for name, title, cell, note in (
        ("ends", "From the smallest batch to the largest: means over seeds", _ends, ENDS),
        ("slopes", "Change with each doubling of the batch size", _slope, SLOPES),
        ("ranks", "Rank correlation with the batch size", _rank, RANKS),
    ):
        columns = {quantity.name: partial(cell, models, quantity) for quantity in measured.QUANTITIES}
        yield filled(name, title, {"line": _heading, **columns}, lines, note)
    columns = {
        heading: partial(_rank, models, quantity, other=other)
        for heading, (quantity, other) in COMPARED.items()
    }
    lines = [line for line in models.lines("full", "grid") if len(models.batches(line)) > 2]
    title = "What goes with robust accuracy along the batch sizes: rank correlations"
    yield filled("curvature-and-robustness", title, {"line": _heading, **columns}, lines, CURVATURE)


def _ends(models: Models, quantity: Quantity, line: Line) -> str:
    """A quantity at the smallest and at the largest batch."""
    batches = models.batches(line)
    ends = [models.of(line.at(batch), quantity) for batch in (batches[0], batches[-1])]
    values = [None if end is None else end.value for end in ends]
    shown = [DASH if value is None else format(value, _form(quantity)) for value in values]
    return " \N{RIGHTWARDS ARROW} ".join(shown)


def _slope(models: Models, quantity: Quantity, line: Line) -> str:
    slopes = models.slopes(line, quantity)
    return bracketed(across_seeds(slopes, same_records=True), "+.3f") if slopes else DASH


def _rank(models: Models, quantity: Quantity, line: Line, other: Quantity | None = None) -> str:
    return bracketed(models.correlation(line, quantity, other), "+.3f")


def _training_time(models: Models) -> StudyTable:
    """How much of each quantity goes with training time, and how much with the batch size."""
    rows = []
    for network, quantity in product(models.networks(), measured.QUANTITIES):
        shares = [
            measured.explained(models, quantity, says).get(network, [])
            for says in (Points.of_time, Points.of_batch)
        ]
        if all(shares):
            data, model = network
            known = [bracketed(across_seeds(one), "+.3f") for one in shares]
            rows.append((f"{network_words(model)}, {data}", quantity.name, *known))
    title = "Share of the variance among a row's models that goes with training time and with batch size"
    return table("training-time", title, ("row", "quantity", "training time", "batch size"), rows, TIME)


def _momenta(models: Models) -> StudyTable:
    """The models in full whose line has one batch size, and the control, beside those without momentum."""
    shown = [
        line.at(batch)
        for line in models.lines("full", "control")
        for batch in models.batches(line)
        if batch in MOMENTA_AT
    ]
    columns = {
        quantity.name: lambda address, quantity=quantity: bracketed(
            models.of(address, quantity), _form(quantity)
        )
        for quantity in measured.QUANTITIES
    }

    def heading(address: measured.CentralAddress) -> str:
        precise = ", float32 passes" if address.kind == "control" else ""
        return f"{address.data}, {SCHEDULES[address.schedule].words}, batch {address.batch}{precise}"

    title = "In full: momenta, and the control with float32 passes instead of bfloat16"
    return filled("momenta", title, {"model": heading, **columns}, shown, LIMITS)


def _collapsed(models: Models) -> StudyTable:
    """Models that say nothing about robustness, and are in none of the comparisons."""
    counts = Counter(cell.rpartition("/")[0] for cell, _ in models.collapsed)
    title = "Models no better than their most frequent class, left out of everything"
    return table("collapsed", title, ("line", "models"), counts.items(), f"n = {models.count} models.")


def _federated(models: Models) -> StudyTable:
    def training(address: ModelAddress) -> str:
        how = f"central, batch {address.batch}"
        if isinstance(address, measured.FederatedAddress):
            how = f"FedAvg, {address.division}, {address.hands}"
        return f"{how}, {SCHEDULES[address.schedule].words}"

    def cell(quantity: Quantity, address: ModelAddress) -> str:
        return bracketed(models.of(address, quantity), _form(quantity))

    addresses: list[ModelAddress] = []
    for line in models.beside_federations():
        addresses += [line.at(batch) for batch in models.batches(line)]
        addresses += [address for address in models.federated if address.line == line]
    shown = (CLEAN, measured.FGSM, measured.PGD, measured.WEAK_PGD, TOP)
    columns = {quantity.name: partial(cell, quantity) for quantity in shown}
    title = "Federated: clients x batch, beside central models of the same data"
    return filled("federated", title, {"training": training, **columns}, addresses, FEDERATED)


def _costs(models: Models) -> StudyTable:
    """Seconds a model, and how well its eigenvalue is known."""
    timed = {"training": CLEAN, "FGSM": measured.FGSM, "PGD": measured.PGD, "top eigenvalue": TOP}
    rows: list[tuple[str | int, ...]] = []
    for data, model in models.networks():
        lines = [line for line in models.lines("grid") if (line.data, line.model) == (data, model)]
        cells = [str(line.at(batch)) for line in lines for batch in models.batches(line)]
        seconds = [_seconds(models, cells, quantity, data) for quantity in timed.values()]
        residuals, products = (
            [value for cell in cells for value in models.by_seed(cell, None, metric).values()]
            for metric in ("eigenvalue-residual", "hessian-products")
        )
        precise = [f"{max(residuals):.1e}", f"{statistics.median(products):.0f}"] if residuals else [DASH] * 2
        rows.append((f"{network_words(model)} on {data}", *seconds, *precise, len(residuals)))
    title = "Seconds a model, in the median, and how well eigenvalues are known"
    columns = ("network", *timed, "largest relative residual", "products, median", "models")
    return table("costs", title, columns, rows, COSTS)


def _seconds(models: Models, cells: Iterable[str], quantity: Quantity, data: str) -> str:
    """The median over the models of the seconds that a quantity took."""
    measures = [models.measure(cell, quantity.spec(data), quantity.metric) for cell in cells]
    seconds = [measure.row.seconds for measure in measures if measure is not None]
    known = [value for value in seconds if value is not None]
    return f"{statistics.median(known):.1f}" if known else DASH


def _heading(line: Line) -> str:
    kind = "" if line.kind == "grid" else f" ({line.kind})"
    return f"{network_words(line.model)}, {line.data}, {line.words}{kind}"


def _form(quantity: Quantity) -> str:
    return ".3g" if quantity.logarithmic else ".3f"

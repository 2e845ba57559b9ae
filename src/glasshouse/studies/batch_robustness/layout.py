"""Tables: trends with their statistics, training time, federations and costs; and the paper's 22 figures."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from glasshouse.exhibits import Chart, Series, StudyTable
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
from glasshouse.studies.batch_robustness.printed import FIGURES, GROUPS, NETWORKS, SCHEDULES
from glasshouse.studies.showing import averaged, bracketed, chart, filled, seeds_note, series_of, table

LIMITS = "The paper's eps is 0.3 on grey images and 0.02 on CIFAR-10; the smaller one 0.1 and 0.005."
ENDS = f"{LIMITS} `longer` rows train four times as long. Figures and the long table have the rest."
SLOPES = (
    "Accuracies change by so much, eigenvalues by so many doublings; the mean over seeds with its t "
    f"interval. {LIMITS}"
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
    f"clients x batch. Means over seeds with their t interval. {LIMITS}"
)
COSTS = (
    "Attacks run at both eps. A residual above the tolerance of 0.003 would make the eigenvalue a lower "
    "bound."
)
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
    others = [_training_time(models), _federated(models), _costs(models)]
    return [*_trends(models), *(shown for shown in others if shown.rows)]


def _trends(models: Models) -> Iterator[StudyTable]:
    """What batch size does to each quantity of each line, and what goes with robust accuracy along it.

    The explanation by curvature needs that robustness falls where curvature rises.
    """
    lines = [line for line in models.lines("grid", "longer", "adversarial") if len(models.batches(line)) > 1]
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
    lines = [line for line in models.lines("grid", "longer") if len(models.batches(line)) > 2]
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
    return averaged(models.slopes(line, quantity).values())


def _rank(models: Models, quantity: Quantity, line: Line, other: Quantity | None = None) -> str:
    return bracketed(models.correlation(line, quantity, other), "+.3f")


def _training_time(models: Models) -> StudyTable:
    """How much of each quantity goes with training time, and how much with the batch size."""
    rows = []
    for network, quantity in product(models.networks(), measured.QUANTITIES):
        explained = [measured.explained(models, quantity, says) for says in (Points.of_time, Points.of_batch)]
        shares = [[share for unit, share in one.items() if unit[:2] == network] for one in explained]
        if all(shares):
            data, model = network
            rows.append((f"{_network(model)}, {data}", quantity.name, *map(averaged, shares)))
    title = "Share of the variance among a row's models that goes with training time and with batch size"
    return table("training-time", title, ("row", "quantity", "training time", "batch size"), rows, TIME)


def _federated(models: Models) -> StudyTable:
    def training(address: ModelAddress) -> str:
        how = f"central, batch {address.batch}"
        if isinstance(address, measured.FederatedAddress):
            how = f"FedAvg, {address.division}, {address.hands}"
        return f"{how}, {SCHEDULES[address.schedule].words}"

    def cell(quantity: Quantity, address: ModelAddress) -> str:
        return bracketed(models.of(address, quantity), _form(quantity))

    addresses: list[ModelAddress] = []
    for line in _beside_federations(models):
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
        rows.append((f"{_network(model)} on {data}", *seconds, *precise, len(residuals)))
    title = "Seconds a model, in the median, and how well eigenvalues are known"
    columns = ("network", *timed, "largest relative residual", "products, median", "models")
    return table("costs", title, columns, rows, COSTS)


def _seconds(models: Models, cells: Iterable[str], quantity: Quantity, data: str) -> str:
    """The median over the models of the seconds that a quantity took."""
    measures = [models.measure(cell, quantity.spec(data), quantity.metric) for cell in cells]
    seconds = [measure.row.seconds for measure in measures if measure is not None]
    known = [value for value in seconds if value is not None]
    return f"{statistics.median(known):.1f}" if known else DASH


def charts(models: Models) -> list[Chart]:
    """Everything that the finished cells allow, in the paper's order."""
    numbered = []
    for (data, model), (group, (_, schedules)) in product(models.networks(), GROUPS.items()):
        lines = [Line("grid", data, model, schedule.name) for schedule in schedules]
        lines = [line for line in lines if models.batches(line)]
        if len(lines) > 1:
            numbers = (*FIGURES.get((data, model, group), (0, 0, 0)), 100)
            drawn = (measured.FGSM, measured.PGD, TOP, measured.WEAK_PGD)
            numbered += [
                (number, _figure(models, lines, group, quantity, number))
                for number, quantity in zip(numbers, drawn)
            ]
    numbered.sort(key=lambda figure: figure[0] or 99)
    return [*(figure for _, figure in numbered), *_federated_charts(models)]


def _figure(models: Models, lines: Sequence[Line], group: str, quantity: Quantity, number: int) -> Chart:
    """One quantity of several lines against the batch size, and the clean accuracy beside an attacked one."""
    data, model = lines[0].data, lines[0].model
    batches = sorted({batch for line in lines for batch in models.batches(line)})
    series = []
    for line in lines:
        name = f"{line.words}, attacked" if quantity.attack else line.words
        addresses = [line.at(batch) for batch in batches]
        series.append(_series(models, name, addresses, quantity))
        if quantity.attack:
            clean = _series(models, f"{line.words}, clean", addresses, CLEAN)
            series.append(clean.model_copy(update={"like": name}))
    name = f"{data}-{model}-{group}-{quantity.attack or 'top'}-{quantity.limit}"
    known = f"Figure {number}: " if 0 < number < 100 else ""
    title = f"{known}{_network(model)} on {data}, {GROUPS[group][0]}"
    figure = _chart(name, title, "batch size", map(str, batches), series, quantity, data)
    return figure.model_copy(update={"note": seeds_note(models)})


def _federated_charts(models: Models) -> Iterator[Chart]:
    """FedAvg beside the central model whose batch is that of all clients together."""
    for line in _beside_federations(models):
        federated = [address for address in models.federated if address.line == line]
        by_hands = {address.hands: address for address in federated}
        effective = [line.at(address.clients * address.batch) for address in by_hands.values()]
        for quantity in (measured.WEAK_PGD, TOP):
            series = [_series(models, "central, effective batch", effective, quantity)]
            for division in dict.fromkeys(address.division for address in federated):
                addresses = [replace(address, division=division) for address in by_hands.values()]
                series.append(_series(models, f"FedAvg, {division}", addresses, quantity))
            name = f"federated-{line.schedule}-{quantity.attack or 'top'}"
            title = f"Federated: {_network(line.model)} on {line.data}, {line.words}"
            yield _chart(name, title, "clients x batch", by_hands, series, quantity, line.data)


def _chart(
    name: str,
    title: str,
    x: str,
    categories: Iterable[str],
    series: list[Series],
    quantity: Quantity,
    data: str,
) -> Chart:
    """A quantity of models of a data set, against what varies."""
    attacked = (
        f"{quantity.attack.upper()} at eps {quantity.eps(data):g}" if quantity.attack else quantity.name
    )
    axes = (x, "accuracy" if quantity.attack else quantity.name)
    return chart(name, f"{title}, {attacked}", axes, categories, series, log_y=quantity.logarithmic)


def _beside_federations(models: Models) -> list[Line]:
    """The lines of central models that federations are compared with."""
    return list(dict.fromkeys(address.line for address in models.federated))


def _series(models: Models, name: str, addresses: Iterable[ModelAddress], quantity: Quantity) -> Series:
    return series_of(name, [models.of(address, quantity) for address in addresses])


def _heading(line: Line) -> str:
    kind = "" if line.kind == "grid" else f" ({line.kind})"
    return f"{_network(line.model)}, {line.data}, {line.words}{kind}"


def _network(model: str) -> str:
    return NETWORKS.get(model, model)


def _form(quantity: Quantity) -> str:
    return ".3g" if quantity.logarithmic else ".3f"

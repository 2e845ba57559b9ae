"""Tables: trends with their statistics, training time, federations and costs; and the paper's 22 figures."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from glasshouse.exhibits import Chart, Series, StudyTable
from glasshouse.measures.estimate import mean
from glasshouse.spelling import DASH
from glasshouse.studies.batch_robustness.measured import (
    CLEAN,
    FGSM,
    INPUT,
    PGD,
    QUANTITIES,
    TOP,
    WEAK_PGD,
    Line,
    ModelAddress,
    Models,
    Points,
    Quantity,
    explained,
)
from glasshouse.studies.batch_robustness.printed import FIGURES, GROUPS, NETWORKS, SCHEDULES
from glasshouse.studies.showing import bracketed, seeds_note, series_of

LIMITS = "The paper's eps is 0.3 on grey images and 0.02 on CIFAR-10; the smaller one 0.1 and 0.005."
KINDS = ("grid", "longer", "adversarial")
SIGNED = "+.3f"  # how differences, slopes and correlations are written


def tables(measured: Models) -> list[StudyTable]:
    """Everything that the finished cells allow."""
    others = [_training_time(measured), _federated(measured), _costs(measured)]
    return [*_trends(measured), _against_curvature(measured), *(table for table in others if table.rows)]


def _trends(measured: Models) -> Iterator[StudyTable]:
    """What batch size does to each quantity of each line: ends, slopes and rank correlations."""
    lines = [line for line in measured.lines(*KINDS) if len(measured.batches(line)) > 1]
    for name, title, cell, note in (
        (
            "ends",
            "From the smallest batch to the largest: means over seeds",
            _ends,
            f"{LIMITS} `longer` rows train four times as long. Figures and the long table have the rest.",
        ),
        (
            "slopes",
            "Change with each doubling of the batch size",
            _slope,
            "Accuracies change by so much, eigenvalues by so many doublings; the mean over seeds with its t "
            f"interval. {LIMITS}",
        ),
        (
            "ranks",
            "Rank correlation with the batch size",
            _rank,
            "Spearman's rho over all batch sizes and seeds, 95% interval by Fisher's z with Bonett and "
            "Wright's standard error, as if models were independent.",
        ),
    ):
        yield StudyTable(
            name=name,
            title=title,
            columns=("line", *(quantity.name for quantity in QUANTITIES)),
            rows=tuple(
                (_heading(line), *(cell(measured, line, quantity) for quantity in QUANTITIES))
                for line in lines
            ),
            note=note,
        )


def _ends(measured: Models, line: Line, quantity: Quantity) -> str:
    """A quantity at the smallest and at the largest batch."""
    batches = measured.batches(line)
    ends = [measured.of(line.at(batch), quantity) for batch in (batches[0], batches[-1])]
    values = [None if end is None else end.value for end in ends]
    shown = [DASH if value is None else format(value, _form(quantity)) for value in values]
    return " \N{RIGHTWARDS ARROW} ".join(shown)


def _slope(measured: Models, line: Line, quantity: Quantity) -> str:
    slopes = list(measured.slopes(line, quantity).values())
    return bracketed(mean(slopes), SIGNED) if slopes else DASH


def _rank(measured: Models, line: Line, quantity: Quantity) -> str:
    return bracketed(measured.correlation(line, quantity), SIGNED)


def _against_curvature(measured: Models) -> StudyTable:
    """What the explanation by curvature needs: robustness falls where curvature rises."""
    columns = {
        "top eigenvalue and FGSM": (TOP, FGSM),
        "top eigenvalue and PGD": (TOP, PGD),
        "top eigenvalue and PGD, smaller eps": (TOP, WEAK_PGD),
        "eigenvalue in pixels and PGD, smaller eps": (INPUT, WEAK_PGD),
        "test accuracy and PGD, smaller eps": (CLEAN, WEAK_PGD),
    }
    rows = [
        (_heading(line), *(bracketed(measured.correlation(line, *pair), SIGNED) for pair in columns.values()))
        for line in measured.lines("grid", "longer")
        if len(measured.batches(line)) > 2
    ]
    return StudyTable(
        name="curvature-and-robustness",
        title="What goes with robust accuracy along the batch sizes: rank correlations",
        columns=("line", *columns),
        rows=tuple(rows),
        note="If curvature explained robustness, the first three columns would be negative throughout. "
        f"{LIMITS}",
    )


def _training_time(measured: Models) -> StudyTable:
    """How much of each quantity goes with training time, and how much with the batch size."""
    rows = []
    for network in measured.networks():
        for quantity in QUANTITIES:
            shares = [
                [share for unit, share in explained(measured, quantity, says).items() if unit[:2] == network]
                for says in (Points.of_time, Points.of_batch)
            ]
            if all(shares):
                data, model = network
                shown = (bracketed(mean(share), SIGNED) for share in shares)
                rows.append((f"{_network(model)}, {data}", quantity.name, *shown))
    return StudyTable(
        name="training-time",
        title="Share of the variance among a row's models that goes with training time and with batch size",
        columns=("row", "quantity", "training time", "batch size"),
        rows=tuple(rows),
        note="Training time is lr x steps / (1 - m). Each share is that of a cubic in the logarithm, for "
        "each seed; the mean over seeds with its t interval.",
    )


def _federated(measured: Models) -> StudyTable:
    shown = (CLEAN, FGSM, PGD, WEAK_PGD, TOP)

    def row(training: str, address: ModelAddress) -> tuple[str, ...]:
        cells = [bracketed(measured.of(address, quantity), _form(quantity)) for quantity in shown]
        return (f"{training}, {SCHEDULES[address.schedule].words}", *cells)

    rows = []
    for line in _beside_federations(measured):
        rows += [row(f"central, batch {batch}", line.at(batch)) for batch in measured.batches(line)]
        rows += [
            row(f"FedAvg, {address.division}, {address.hands}", address)
            for address in measured.federated
            if address.line == line
        ]
    return StudyTable(
        name="federated",
        title="Federated: clients x batch, beside central models of the same data",
        columns=("training", *(quantity.name for quantity in shown)),
        rows=tuple(rows),
        note="One local epoch a round, as many rounds as the central model has epochs. Under LR/BS the rate "
        f"follows clients x batch. Means over seeds with their t interval. {LIMITS}",
    )


def _costs(measured: Models) -> StudyTable:
    """Seconds a model, and how well its eigenvalue is known."""
    rows: list[tuple[str | int, ...]] = []
    for data, model in measured.networks():
        cells = [
            str(address)
            for address in measured.central
            if (address.kind, address.data, address.model) == ("grid", data, model)
        ]
        seconds = [_seconds(measured, cells, quantity, data) for quantity in (CLEAN, FGSM, PGD, TOP)]
        residuals, products = (
            [value for cell in cells for value in measured.by_seed(cell, None, metric).values()]
            for metric in ("eigenvalue-residual", "hessian-products")
        )
        precise = [f"{max(residuals):.1e}", f"{statistics.median(products):.0f}"] if residuals else [DASH] * 2
        rows.append((f"{_network(model)} on {data}", *seconds, *precise, len(residuals)))
    timed = ("training", "FGSM", "PGD", "top eigenvalue")
    return StudyTable(
        name="costs",
        title="Seconds a model, in the median, and how well eigenvalues are known",
        columns=("network", *timed, "largest relative residual", "products, median", "models"),
        rows=tuple(rows),
        note="Attacks run at both eps. A residual above the tolerance of 0.003 would make the eigenvalue a "
        "lower bound.",
    )


def _seconds(measured: Models, cells: Iterable[str], quantity: Quantity, data: str) -> str:
    """The median over the models of the seconds that a quantity took."""
    measures = [measured.measure(cell, quantity.spec(data), quantity.metric) for cell in cells]
    seconds = [measure.row.seconds for measure in measures if measure is not None]
    known = [value for value in seconds if value is not None]
    return f"{statistics.median(known):.1f}" if known else DASH


def charts(measured: Models) -> list[Chart]:
    """Everything that the finished cells allow, in the paper's order."""
    numbered = []
    for data, model in measured.networks():
        for group, (_, schedules) in GROUPS.items():
            lines = [Line("grid", data, model, schedule.name) for schedule in schedules]
            lines = [line for line in lines if measured.batches(line)]
            if len(lines) > 1:
                numbers = FIGURES.get((data, model, group), (0, 0, 0))
                numbered += [
                    (number, _figure(measured, lines, group, quantity, number))
                    for number, quantity in zip((*numbers, 100), (FGSM, PGD, TOP, WEAK_PGD))
                ]
    numbered.sort(key=lambda figure: figure[0] or 99)
    return [*(chart for _, chart in numbered), *_federated_charts(measured)]


def _figure(measured: Models, lines: Sequence[Line], group: str, quantity: Quantity, number: int) -> Chart:
    """One quantity of several lines against the batch size, and the clean accuracy beside an attacked one."""
    data, model = lines[0].data, lines[0].model
    batches = sorted({batch for line in lines for batch in measured.batches(line)})
    series = []
    for line in lines:
        words = line.words
        name = f"{words}, attacked" if quantity.attack else words
        addresses = [line.at(batch) for batch in batches]
        series.append(_series(measured, name, addresses, quantity))
        if quantity.attack:
            clean = _series(measured, f"{words}, clean", addresses, CLEAN)
            series.append(clean.model_copy(update={"like": name}))
    known = f"Figure {number}: " if 0 < number < 100 else ""
    return Chart(
        name=f"{data}-{model}-{group}-{quantity.attack or 'top'}-{quantity.limit}",
        title=f"{known}{_network(model)} on {data}, {GROUPS[group][0]}, {_what(quantity, data)}",
        x="batch size",
        y="accuracy" if quantity.attack else quantity.name,
        categories=tuple(map(str, batches)),
        log_y=quantity.logarithmic,
        series=tuple(series),
        note=seeds_note(measured),
    )


def _federated_charts(measured: Models) -> Iterator[Chart]:
    """FedAvg beside the central model whose batch is that of all clients together."""
    for line in _beside_federations(measured):
        federated = [address for address in measured.federated if address.line == line]
        by_hands = {address.hands: address for address in federated}
        effective = [line.at(address.clients * address.batch) for address in by_hands.values()]
        for quantity in (WEAK_PGD, TOP):
            series = [_series(measured, "central, effective batch", effective, quantity)]
            for division in dict.fromkeys(address.division for address in federated):
                addresses = [replace(address, division=division) for address in by_hands.values()]
                series.append(_series(measured, f"FedAvg, {division}", addresses, quantity))
            yield Chart(
                name=f"federated-{line.schedule}-{quantity.attack or 'top'}",
                title=f"Federated: {line.network} on {line.data}, {line.words}, {_what(quantity, line.data)}",
                x="clients x batch",
                y="accuracy" if quantity.attack else quantity.name,
                categories=tuple(by_hands),
                log_y=quantity.logarithmic,
                series=tuple(series),
            )


def _beside_federations(measured: Models) -> list[Line]:
    """The lines of central models that federations are compared with."""
    return list(dict.fromkeys(address.line for address in measured.federated))


def _series(measured: Models, name: str, addresses: Iterable[ModelAddress], quantity: Quantity) -> Series:
    return series_of(name, [measured.of(address, quantity) for address in addresses])


def _what(quantity: Quantity, data: str) -> str:
    return f"{quantity.attack.upper()} at eps {quantity.eps(data):g}" if quantity.attack else quantity.name


def _heading(line: Line) -> str:
    kind = "" if line.kind == "grid" else f" ({line.kind})"
    return f"{line.network}, {line.data}, {line.words}{kind}"


def _network(model: str) -> str:
    return NETWORKS.get(model, model)


def _form(quantity: Quantity) -> str:
    return ".3g" if quantity.logarithmic else ".3f"

"""The paper's 22 figures, of the line in full first, and the federations'."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from glasshouse.exhibits import Chart, Series
from glasshouse.studies.batch_robustness import measured
from glasshouse.studies.batch_robustness.measured import CLEAN, TOP, Line, ModelAddress, Models, Quantity
from glasshouse.studies.batch_robustness.printed import FIGURES, GROUPS, network_words
from glasshouse.studies.showing import chart, seeds_note, series_of


def charts(models: Models) -> list[Chart]:
    """Everything that the finished cells allow, in the paper's order."""
    numbered = []
    for kind, (group, (_, schedules)) in product(("full", "grid"), GROUPS.items()):
        for data, model in models.networks(kind):
            lines = [Line(kind, data, model, schedule.name) for schedule in schedules]
            lines = [line for line in lines if len(models.batches(line)) > 1]
            if len(lines) < 2:
                continue
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
    full = lines[0].kind == "full"
    name = f"{'full-' if full else ''}{data}-{model}-{group}-{quantity.attack or 'top'}-{quantity.limit}"
    known = f"Figure {number}: " if 0 < number < 100 else ""
    title = f"{known}{network_words(model)} on {data}, {GROUPS[group][0]}{', in full' if full else ''}"
    figure = _chart(name, title, "batch size", map(str, batches), series, quantity, data)
    return figure.model_copy(update={"note": seeds_note(models)})


def _federated_charts(models: Models) -> Iterator[Chart]:
    """FedAvg beside the central model whose batch is that of all clients together."""
    for line in models.beside_federations():
        federated = [address for address in models.federated if address.line == line]
        by_hands = {address.hands: address for address in federated}
        effective = [line.at(address.clients * address.batch) for address in by_hands.values()]
        for quantity in (measured.WEAK_PGD, TOP):
            series = [_series(models, "central, effective batch", effective, quantity)]
            for division in dict.fromkeys(address.division for address in federated):
                addresses = [replace(address, division=division) for address in by_hands.values()]
                series.append(_series(models, f"FedAvg, {division}", addresses, quantity))
            name = f"federated-{line.schedule}-{quantity.attack or 'top'}"
            title = f"Federated: {network_words(line.model)} on {line.data}, {line.words}"
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


def _series(models: Models, name: str, addresses: Iterable[ModelAddress], quantity: Quantity) -> Series:
    return series_of(name, [models.of(address, quantity) for address in addresses])

"""The paper's tables, printed and measured side by side, each attack under its own name."""

from collections.abc import Iterator, Sequence

from glasshouse.exhibits import StudyTable
from glasshouse.spelling import DASH
from glasshouse.studies.measured import Measured
from glasshouse.studies.scale_mia import addresses, cells, printed
from glasshouse.studies.scale_mia.addresses import StarvedCell, Table3Cell, Table4Cell
from glasshouse.studies.scale_mia.cells import CODED, DRAWN, PEELED, PSNR, PUBLISHED, RATE
from glasshouse.studies.showing import bracketed, table
from glasshouse.verdicts.metrics import NOT_RUN

WORDS = {
    RATE: "recovery rate",
    PSNR: "PSNR of the recovered (dB)",
    cells.RETURNED: "PSNR of the returned (dB)",
    cells.BLIND: "mean image, for comparison (dB)",
    cells.ONLINE: "seconds",
}
LINEAR = {"alexnet": 512, "resnet": 512, "vit": 512, "cnn": 1024, "vgg": 1024, "mlp": 200}
"""The neurons of the first linear layer, which the paper shows beside a network's name."""

STARVED_DATA = printed.STARVED_TARGET[1]

REFUSED = "no gradient"
"""What stands where the published attack cannot run; the table's note says why."""

SECONDS = {cells.OFFLINE: "offline (s)", cells.ONLINE: "online (s)"}
INTERVALS = (
    "Intervals are 95%: over rounds with other victims where a cell has four or more, else as if "
    "samples were independent; those of the recovered or returned images alone always the latter."
)
WHY_REFUSED = (
    f"{REFUSED.capitalize()}: the network ends in two linear layers, and the second one with equal rows "
    f"passes none back; {CODED} works there. "
)


def tables(measured: Measured) -> list[StudyTable]:
    """Tables 3 to 8, as far as their cells are done."""
    laid_out = []
    if addresses.table_4(measured):
        laid_out += [_table_4(measured, "rate", RATE), _table_4(measured, "psnr", PSNR)]
        laid_out.append(_quality(measured))
    laid_out.append(_table_3(measured))
    laid_out += [_starved(measured, first, metric) for first in printed.AMOUNTS for metric in (RATE, PSNR)]
    return [shown for shown in laid_out if shown.rows]


def number(value: float | None, metric: str = RATE) -> str:
    """One decimal for dB, three for all else."""
    return DASH if value is None else format(value, form(metric))


def named(network: str) -> str:
    """A network with its k."""
    return f"{network} ({LINEAR[network]})" if network in LINEAR else network


def entry(measured: Measured, cell: str, attack: str | None, metric: str) -> str:
    """What was measured with its interval; or that the attack could not run."""
    if measured.measure(cell, attack, NOT_RUN) is not None:
        return REFUSED
    return bracketed(measured.estimate(cell, attack, metric), form(metric))


def form(metric: str) -> str:
    """How numbers of a metric are written."""
    return ".1f" if "psnr" in metric else ".3f"


def tried(measured: Measured, found: Sequence[str]) -> list[str]:
    """The attacks of some cells, those that could not run too."""
    return list(
        dict.fromkeys(
            attack
            for cell in found
            for metric in (NOT_RUN, "psnr")
            for attack in measured.attacks(cell, metric)
        )
    )


def _beside(known: float | None, seen: str, metric: str) -> str:
    """Printed and measured, or a dash where there is neither."""
    return DASH if known is None and seen == DASH else f"{number(known, metric)} / {seen}"


def _table_4(measured: Measured, name: str, metric: str) -> StudyTable:
    """A line for each network, data set and attack, a column for each batch size."""
    rows = addresses.table_4(measured)
    batches = sorted({batch for by_batch in rows.values() for batch in by_batch})

    def line(network: str, data: str, attack: str) -> Iterator[str]:
        for batch in batches:
            seen = entry(measured, str(Table4Cell(network, data, batch)), attack, metric)
            known = printed.table_4(network, data, batch).get(metric)
            yield _beside(known, seen, metric) if attack == PUBLISHED else seen

    lines = [
        (named(network), data, attack, *line(network, data, attack))
        for (network, data), by_batch in rows.items()
        for attack in tried(measured, list(by_batch.values()))
    ]
    rates = [
        measured.measure(str(cell), attack, RATE)
        for cell in Table4Cell.matching(measured.cells)
        for attack in (PUBLISHED, CODED)
    ]
    counts = [rate.n for rate in rates if rate is not None and rate.n]
    samples = f" Samples in a cell: {min(counts):,} to {max(counts):,}." if counts else ""
    resolved = f"{PEELED} resolves collisions; " if any(PEELED in line for line in lines) else ""
    return table(
        f"table-4-{name}",
        f"Table 4: {WORDS[metric]} from an exact sum, printed / measured",
        ("network (k)", "data", "attack", *map(str, batches)),
        lines,
        f"{PUBLISHED} is as published, {CODED} has our head; {resolved}{DRAWN} is as in the authors' code. "
        f"{WHY_REFUSED}Recovered: 18 dB or more. {INTERVALS}{samples}",
    )


def _quality(measured: Measured) -> StudyTable:
    """All samples, not the recovered ones alone, beside the oracle; and the seconds."""
    lines = []
    for (network, data), by_batch in addresses.table_4(measured).items():
        batch = min(256, max(by_batch))
        for attack in (PUBLISHED, CODED):
            cell = str(Table4Cell(network, data, batch))
            line = [named(network), data, attack, str(batch)]
            for metric in (RATE, "psnr", "ssim"):
                measure = measured.measure(cell, attack, metric)
                chance = number(None if measure is None else measure.chance, metric)
                line.append(f"{entry(measured, cell, attack, metric)} / {chance}")
            lines.append((*line, *(number(measured.value(cell, attack, each)) for each in SECONDS)))
    return table(
        "table-4-quality",
        "All samples: measured / oracle, and the seconds of both phases",
        (
            "network (k)",
            "data",
            "attack",
            "batch",
            WORDS[RATE],
            "PSNR (dB)",
            "SSIM",
            "offline (s)",
            "online (s)",
        ),
        lines,
        "The oracle is the auxiliary image nearest to each sample, picked knowing the sample. Where nothing "
        f"was returned for a sample, grey is judged. {WHY_REFUSED}",
    )


def _table_3(measured: Measured) -> StudyTable:
    """PSNR, what the mean of the attacker's images would have, and seconds."""
    done = Table3Cell.matching(measured.cells)
    batches = sorted({cell.batch for cell in done})
    rows: dict[tuple[str, str], dict[int, str]] = {}
    for cell in done:
        for spec in tried(measured, [str(cell)]):
            rows.setdefault((cell.network, spec), {})[cell.batch] = str(cell)

    def line(network: str, spec: str, metric: str) -> Iterator[str]:
        for batch in batches:
            cell = rows[network, spec].get(batch, "")
            known = printed.table_3(network, "cifar10", spec, batch).get(metric)
            known = None if spec in (DRAWN, CODED) else known
            yield _beside(known, entry(measured, cell, spec, metric), metric)

    lines = []
    for network, spec in rows:
        for metric in (PSNR, cells.RETURNED, cells.BLIND, cells.ONLINE):
            texts = tuple(line(network, spec, metric))
            if any(text != DASH for text in texts):
                lines.append((spec, named(network), WORDS[metric], *texts))
    return table(
        "table-3",
        "Table 3: Scale-MIA and its rivals, printed / measured",
        ("attack", "network (k)", "metric", *map(str, batches)),
        lines,
        "No PSNR is counted above 100 dB here. The paper attacks a ResNet with all but DLG and iDLG, which "
        f"share a row there. {WHY_REFUSED}DLG, iDLG, Inverting Gradients and GradInversion read the update "
        "of one client with the whole batch; all others craft what they send. Fishing returns one image of a "
        "batch, and Eluding those of one of its clients. The mean image is that of the attacker's images. "
        f"Options in a name are other than the defaults. {INTERVALS}",
    )


def _starved(measured: Measured, first: int, metric: str) -> StudyTable:
    """Tables 5 to 8: recovery rate or PSNR by what the attacker has; one with all classes has all images."""
    done = [cell for cell in StarvedCell.matching(measured.cells) if cell.table == first]
    amounts = printed.AMOUNTS[first]

    def line(network: str, batch: int, attack: str) -> Iterator[str]:
        for amount in amounts:
            cell = str(starved_cell(first, network, amount, batch))
            known = printed.starved(network, STARVED_DATA, first, amount, batch).get(metric)
            seen = entry(measured, cell, attack, metric)
            yield _beside(known, seen, metric) if attack == PUBLISHED else seen

    places = dict.fromkeys((cell.network, cell.batch) for cell in done)
    number_of_table = first if metric == RATE else first + 1
    by = "share of the training images" if first == 5 else "number of classes"
    return table(
        f"table-{number_of_table}",
        f"Table {number_of_table}: {WORDS[metric]} by {by}, printed / measured",
        ("network (k)", "batch", "attack", *(f"{amount:g}" for amount in amounts)),
        [
            (named(network), str(batch), attack, *line(network, batch, attack))
            for network, batch in places
            for attack in (PUBLISHED, CODED)
        ],
        f"The paper has AlexNet on CIFAR-10 alone. {INTERVALS}",
    )


def starved_cell(table: int, network: str, amount: float, batch: int) -> StarvedCell:
    """The cell of an amount in Table 5 or 7, whose last columns are the same attacker's: with everything."""
    whole = amount == max(printed.AMOUNTS[table])
    return StarvedCell(5 if whole else table, network, 1.0 if whole else amount, batch)

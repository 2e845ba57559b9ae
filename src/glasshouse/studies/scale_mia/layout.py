"""The paper's tables, printed and measured side by side."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from glasshouse.exhibits import StudyTable
from glasshouse.spelling import DASH
from glasshouse.studies.scale_mia import printed
from glasshouse.studies.scale_mia.cells import PEELED, PUBLISHED
from glasshouse.studies.scale_mia.measured import Measured
from glasshouse.studies.scale_mia.rows import BOUND, RETURNED
from glasshouse.studies.scale_mia.spelling import INTERVALS, PSNR, RATE, WORDS, named, number, shown

NOT_YET = "not yet"
RIVALS = {
    "dlg": "DLG / iDLG",
    "inverting-gradients": "Inverting Gradients",
    "gradinversion": "GradInversion",
    "fishing": "Fishing",
    "robbing-the-fed": "Robbing the Fed",
    "scale-mia": "Scale-MIA",
}


def paper_tables(measured: Measured) -> list[StudyTable]:
    """Tables 3 to 8, as far as their cells are done."""
    made = []
    if measured.rows():
        made += [_table_4(measured, RATE), _table_4(measured, PSNR), _resolved(measured), _quality(measured)]
    if measured.under("table-3"):
        made.append(_table_3(measured))
    return made + [table for starved in STARVED for table in _starved(measured, starved)]


def _table_4(measured: Measured, metric: str) -> StudyTable:
    def cell(network: str, data: str, batch: int) -> str:
        known = printed.table_4(network, data, batch).get(metric)
        found = shown(measured, f"table-4/{network}/{data}/{batch}", PUBLISHED, metric)
        return DASH if known is None and found == DASH else f"{number(known, metric)} / {found}"

    name = "table-4-rate" if metric == RATE else "table-4-psnr"
    note = f"Recovered: 18 dB or more. {INTERVALS} {_samples(measured)}"
    return _by_row(measured, name, f"Table 4: {WORDS[metric]}, printed / measured", cell, note)


def _resolved(measured: Measured) -> StudyTable:
    """The same victims with collisions resolved, beside the share that is alone in its bin."""

    def cell(network: str, data: str, batch: int) -> str:
        name = f"table-4/{network}/{data}/{batch}"
        alone = measured.value(name, None, BOUND)
        return DASH if alone is None else f"{shown(measured, name, PEELED, RATE)} ({alone:.3f})"

    title = "Collisions resolved: recovery rate (and the share of samples alone in their bin)"
    note = (
        "The autoencoders and victims of Table 4, with the rows shared among several directions and lone "
        f"samples taken out of the bins of the others. Alone: (1 - 1/k)^(m-1). {INTERVALS}"
    )
    return _by_row(measured, "table-4-resolved", title, cell, note)


def _quality(measured: Measured) -> StudyTable:
    """All samples, not the recovered ones alone, beside the blind guess; and the seconds."""
    lines = []
    for network, data in measured.rows():
        batch = min(256, max(measured.batches(network, data)))
        name = f"table-4/{network}/{data}/{batch}"
        line = [named(network), data, str(batch)]
        for metric in (RATE, "psnr", "ssim"):
            found = measured.measure(name, PUBLISHED, metric)
            chance = number(None if found is None else found.chance, metric)
            line.append(f"{shown(measured, name, PUBLISHED, metric)} / {chance}")
        seconds = [measured.value(name, PUBLISHED, f"{phase}-seconds") for phase in ("offline", "online")]
        line += map(number, seconds)
        lines.append(tuple(line))
    phases = ("offline (s)", "online (s)")
    return StudyTable(
        name="table-4-quality",
        title="All samples, as published: measured / blind guess, and the seconds of both phases",
        columns=("network (k)", "data", "batch", WORDS[RATE], "PSNR (dB)", "SSIM", *phases),
        rows=tuple(lines),
        note="The blind guess is the auxiliary image nearest to each sample. Where nothing was returned for "
        "a sample, grey is judged.",
    )


def _by_row(
    measured: Measured, name: str, title: str, cell: Callable[[str, str, int], str], note: str
) -> StudyTable:
    """A table like Table 4: a line for each network and data set, a column for each batch size."""
    batches = sorted({batch for row in measured.rows() for batch in measured.batches(*row)})
    lines = [
        (named(network), data, *(cell(network, data, batch) for batch in batches))
        for network, data in measured.rows()
    ]
    columns = ("network (k)", "data", *map(str, batches))
    return StudyTable(name=name, title=title, columns=columns, rows=tuple(lines), note=note)


def _table_3(measured: Measured) -> StudyTable:
    """PSNR and seconds; of attacks that are not there yet the paper's numbers alone."""
    batches = sorted({int(name.split("/")[1]) for name in measured.under("table-3")})
    lines = []
    for attack, words in RIVALS.items():
        for metric in (PSNR, RETURNED, "online-seconds"):
            cells = [_rival_cell(measured, attack, batch, metric) for batch in batches]
            if any(cell != DASH for cell in cells):
                lines.append((words, WORDS[metric], *cells))
    return StudyTable(
        name="table-3",
        title="Table 3: Scale-MIA and its rivals, printed / measured",
        columns=("attack", "metric", *map(str, batches)),
        rows=tuple(lines),
        note="No PSNR is counted above 100 dB here. The paper's DLG attacks a CNN. Fishing returns one image "
        "of a batch. A single client cannot be summed securely: the channel of the first column is ideal. "
        + INTERVALS,
    )


def _rival_cell(measured: Measured, attack: str, batch: int, metric: str) -> str:
    known = printed.table_3("resnet", "cifar10", attack, batch).get(metric)
    if not measured.under(f"table-3/{attack}"):
        return DASH if known is None else f"{number(known, metric)} / {NOT_YET}"
    cell = f"table-3/{attack}/{batch}"
    spec = next(iter(measured.attacks(cell)), attack)
    return f"{number(known, metric)} / {shown(measured, cell, spec, metric)}"


@dataclass(frozen=True)
class Starved:
    """A pair of the paper's tables: recovery rate and PSNR by what the attacker has."""

    numbers: tuple[int, int]
    head: str
    words: str
    known: Mapping[float, tuple[tuple[float, ...], ...]]

    def cell(self, key: float, batch: int) -> str:
        """Where it is measured; one that has all classes has all images too."""
        whole = self.head == "table-7" and key == max(self.known)
        return f"table-5/1/{batch}" if whole else f"{self.head}/{key:g}/{batch}"

    def printed(self, key: float, batch: int, place: int) -> float | None:
        """The paper's number: rate (0) or PSNR (1)."""
        batches = printed.STARVED_BATCHES
        return self.known[key][place][batches.index(batch)] if batch in batches else None


STARVED = (
    Starved((5, 6), "table-5", "share of the training images", printed.TABLES_5_AND_6),
    Starved((7, 8), "table-7", "number of classes", printed.TABLES_7_AND_8),
)


def _starved(measured: Measured, own: Starved) -> list[StudyTable]:
    inside = measured.under(own.head)
    batches = sorted({int(name.split("/")[1]) for name in inside})
    made = []
    for place, metric in enumerate((RATE, PSNR)) if inside else ():
        lines = [
            (
                str(batch),
                *(
                    f"{number(own.printed(key, batch, place), metric)} / "
                    f"{shown(measured, own.cell(key, batch), PUBLISHED, metric)}"
                    for key in own.known
                ),
            )
            for batch in batches
        ]
        network = measured.measure(f"{own.head}/{inside[0]}", PUBLISHED, RATE)
        ours = named(network.row.model or "") if network else DASH
        made.append(
            StudyTable(
                name=f"table-{own.numbers[place]}",
                title=f"Table {own.numbers[place]}: {WORDS[metric]} by {own.words}, printed / measured",
                columns=("batch", *(f"{key:g}" for key in own.known)),
                rows=tuple(lines),
                note=f"Printed: alexnet (512). Measured: {ours}. {INTERVALS}",
            )
        )
    return made


def _samples(measured: Measured) -> str:
    counts: list[int] = []
    for network, data in measured.rows():
        for batch in measured.batches(network, data):
            found = measured.measure(f"table-4/{network}/{data}/{batch}", PUBLISHED, RATE)
            counts += [found.n] if found is not None and found.n else []
    return f"Samples in a cell: {min(counts):,} to {max(counts):,}." if counts else ""

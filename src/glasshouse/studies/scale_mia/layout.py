"""The paper's tables, printed and measured side by side, and those that go beyond them."""

from collections.abc import Callable, Sequence

from glasshouse.exhibits import StudyTable
from glasshouse.spelling import DASH
from glasshouse.studies.measured import Measured
from glasshouse.studies.scale_mia import cells, printed
from glasshouse.studies.scale_mia.cells import (
    CODED,
    HEADS,
    PSNR,
    PUBLISHED,
    RATE,
    StarvedCell,
    Table3Cell,
    Table4Cell,
)
from glasshouse.studies.showing import bracketed, table

WORDS = {
    RATE: "recovery rate",
    PSNR: "PSNR of the recovered (dB)",
    cells.RETURNED: "PSNR of the returned (dB)",
    cells.BLIND: "mean image, for comparison (dB)",
    "online-seconds": "seconds",
}
LINEAR = {"alexnet": 512, "resnet": 512, "vit": 512, "cnn": 1024, "vgg": 1024, "mlp": 200}
"""The neurons of the first linear layer, which the paper shows beside a network's name."""

RIVALS = {
    "dlg": "DLG",
    "idlg": "iDLG",
    "inverting-gradients": "Inverting Gradients",
    "gradinversion": "GradInversion",
    "fishing": "Fishing",
    "eluding": "Eluding",
    "robbing-the-fed": "Robbing the Fed",
    "scale-mia-coded": "Scale-MIA, coded",
}
INTERVALS = (
    "Intervals are 95%: over rounds with other victims where a cell has four or more, else as if "
    "samples were independent; those of the recovered or returned images alone always the latter."
)
QUESTIONS = {
    "collisions": ("Collisions: recovery rate by the number of directions", "batch", ""),
    "dp": (
        "Differential privacy: recovery rate by noise multiplier",
        "noise",
        "Clients clip their updates to length 1, and the mean of 8 gets normal noise of a standard deviation "
        "of the multiplier over 8. The attacks with a norm keep their updates below it. ",
    ),
    "quantisation": ("Quantisation: recovery rate by bits of an entry", "bits", ""),
    "local-steps": (
        "Local steps: recovery rate after several steps of each client",
        "steps",
        "Steps are on all of a client's images, minibatches on parts of them, one epoch. ",
    ),
    "laws": ("Laws of the latents' brightness: recovery rate", "data", ""),
}
"""The title of a table beyond the paper's, what it varies, and what its reader should know."""


def tables(measured: Measured) -> list[StudyTable]:
    """Tables 3 to 8 and those beyond them, as far as their cells are done."""
    laid_out = []
    if cells.table_4(measured):
        laid_out += [_table_4(measured, "rate", RATE), _table_4(measured, "psnr", PSNR)]
        laid_out += [_resolved(measured), _quality(measured)]
    laid_out.append(_heads(measured))
    laid_out.append(_table_3(measured))
    laid_out += [_starved(measured, first, metric) for first in printed.AMOUNTS for metric in (RATE, PSNR)]
    laid_out += [_varied(measured, question) for question in QUESTIONS]
    laid_out += [_fits(measured), _vetting(measured)]
    return [shown for shown in laid_out if shown.rows]


def number(value: float | None, metric: str = RATE) -> str:
    """One decimal for dB, three for all else."""
    return DASH if value is None else format(value, _form(metric))


def named(network: str) -> str:
    """A network with its k."""
    return f"{network} ({LINEAR[network]})" if network in LINEAR else network


def _measured(measured: Measured, cell: str, attack: str, metric: str) -> str:
    return bracketed(measured.estimate(cell, attack, metric), _form(metric))


def _form(metric: str) -> str:
    return ".1f" if "psnr" in metric else ".3f"


def _table_4(measured: Measured, name: str, metric: str) -> StudyTable:
    def entry(cell: Table4Cell) -> str:
        known = printed.table_4(cell.network, cell.data, cell.batch).get(metric)
        rate = _measured(measured, str(cell), CODED, metric)
        return DASH if known is None and rate == DASH else f"{number(known, metric)} / {rate}"

    rates = [measured.measure(str(cell), CODED, RATE) for cell in Table4Cell.matching(measured.cells)]
    counts = [rate.n for rate in rates if rate is not None and rate.n]
    samples = f"Samples in a cell: {min(counts):,} to {max(counts):,}." if counts else ""
    title = f"Table 4: {WORDS[metric]}, printed / measured with {CODED}"
    return _like_table_4(measured, name, title, entry, f"Recovered: 18 dB or more. {INTERVALS} {samples}")


def _resolved(measured: Measured) -> StudyTable:
    """The same victims with collisions resolved, beside the share that is alone in its bin."""

    def entry(cell: Table4Cell) -> str:
        alone = measured.value(str(cell), None, cells.BOUND)
        return (
            DASH if alone is None else f"{_measured(measured, str(cell), cells.PEELED, RATE)} ({alone:.3f})"
        )

    title = "Collisions resolved: recovery rate (and the share of samples alone in their bin)"
    note = (
        "The autoencoders and victims of Table 4, with the rows shared among several directions and lone "
        f"samples taken out of the bins of the others. Alone: (1 - 1/k)^(m-1). {INTERVALS}"
    )
    return _like_table_4(measured, "resolved", title, entry, note)


def _like_table_4(
    measured: Measured, name: str, title: str, entry: Callable[[Table4Cell], str], note: str
) -> StudyTable:
    """A line for each network and data set, a column for each batch size."""
    rows = cells.table_4(measured)
    batches = sorted({batch for by_batch in rows.values() for batch in by_batch})
    lines = [
        (named(network), data, *(entry(Table4Cell(network, data, batch)) for batch in batches))
        for network, data in rows
    ]
    return table(f"table-4-{name}", title, ("network (k)", "data", *map(str, batches)), lines, note)


def _quality(measured: Measured) -> StudyTable:
    """All samples, not the recovered ones alone, beside the blind guess; and the seconds."""
    lines = []
    for (network, data), batches in cells.table_4(measured).items():
        batch = min(256, max(batches))
        cell = str(Table4Cell(network, data, batch))
        line = [named(network), data, str(batch)]
        for metric in (RATE, "psnr", "ssim"):
            measure = measured.measure(cell, CODED, metric)
            chance = number(None if measure is None else measure.chance, metric)
            line.append(f"{_measured(measured, cell, CODED, metric)} / {chance}")
        seconds = [measured.value(cell, CODED, f"{phase}-seconds") for phase in ("offline", "online")]
        lines.append((*line, *map(number, seconds)))
    return table(
        "table-4-quality",
        f"All samples, {CODED}: measured / blind guess, and the seconds of both phases",
        ("network (k)", "data", "batch", WORDS[RATE], "PSNR (dB)", "SSIM", "offline (s)", "online (s)"),
        lines,
        "The blind guess is the auxiliary image nearest to each sample, picked knowing the sample: an "
        "oracle. Where nothing was returned for a sample, grey is judged.",
    )


def _heads(measured: Measured) -> StudyTable:
    """The published head and ours, from the exact sum and from rounded ones."""
    lines = []
    for cell in cells.HeadsCell.matching(measured.cells):
        rate = measured.measure(str(cell), PUBLISHED, RATE)
        known = printed.table_4(rate.row.model or "", rate.row.data or "", cell.batch) if rate else {}
        alone, blind = measured.value(str(cell), None, cells.BOUND), None if rate is None else rate.chance
        rates = [_measured(measured, str(cell), spec, RATE) for spec in HEADS]
        channel = cell.channel if cell.channel == cells.IDEAL else f"{cell.channel} bits"
        lines.append((channel, str(cell.batch), *map(number, (known.get(RATE), alone, blind)), *rates))
    return table(
        "heads",
        "Heads: recovery rate as published and with our head, from an exact sum and from quantised ones",
        ("sum", "batch", "printed", "alone in their bin", "blind guess", *HEADS),
        lines,
        "With the last layer drawn, the attack is that of the authors' code; the paper leaves it as it is. "
        f"Printed: from an exact sum, with positions taken from the victims' activations. {INTERVALS}",
    )


def _table_3(measured: Measured) -> StudyTable:
    """PSNR, what the mean of the attacker's images would have, and seconds."""
    done = Table3Cell.matching(measured.cells)
    batches = sorted({cell.batch for cell in done})

    def entry(attack: str, batch: int, metric: str) -> str:
        network = printed.TABLE_3_NETWORKS.get(attack, "resnet")
        known = number(printed.table_3(network, "cifar10", attack, batch).get(metric), metric)
        cell = str(Table3Cell(attack, batch))
        spec = next(iter(cells.attacks(measured, [cell])), attack)
        seen = _measured(measured, cell, spec, metric)
        return DASH if known == seen == DASH else f"{known} / {seen}"

    lines = []
    for attack, words in RIVALS.items():
        for metric in (PSNR, cells.RETURNED, cells.BLIND, "online-seconds"):
            entries = [entry(attack, batch, metric) for batch in batches]
            if any(text != DASH for text in entries):
                lines.append((words, WORDS[metric], *entries))
    return table(
        "table-3",
        "Table 3: Scale-MIA, with our head, and its rivals, printed / measured",
        ("attack", "metric", *map(str, batches)),
        lines,
        "No PSNR is counted above 100 dB here. DLG and iDLG, of which the paper has one row, attack a CNN, "
        "all others the ResNet. They, Inverting Gradients and GradInversion read the update of one client "
        "that holds the batch; all others craft what they send. Fishing returns one image of a batch, and "
        "Eluding those of one of its clients: the paper does not have it. A single client cannot be summed "
        "securely: in the first column the server reads its update. The mean image is that of the attacker's "
        "own "
        f"images. {_effort(measured, done)}{INTERVALS}",
    )


def _effort(measured: Measured, done: Sequence[Table3Cell]) -> str:
    """Which attacks ran with options of their own, and where."""
    batches: dict[str, list[int]] = {}
    for cell in sorted(done, key=lambda cell: cell.batch):
        for spec in cells.attacks(measured, [str(cell)]):
            batches.setdefault(spec, []).append(cell.batch)
    changed = [
        f"{spec} at {', '.join(map(str, sizes))}" for spec, sizes in batches.items() if spec not in RIVALS
    ]
    return f"Options other than the defaults: {'; '.join(changed)}. " if changed else ""


def _starved(measured: Measured, first: int, metric: str) -> StudyTable:
    """Tables 5 to 8: recovery rate or PSNR by what the attacker has; one with all classes has all images."""
    done = [cell for cell in StarvedCell.matching(measured.cells) if cell.table == first]
    amounts = printed.AMOUNTS[first]

    def entry(amount: float, batch: int) -> str:
        known = printed.starved(*printed.STARVED_TARGET, first, amount, batch).get(metric)
        whole = amount == max(amounts)
        cell = StarvedCell(5, 1.0, batch) if whole else StarvedCell(first, amount, batch)
        return f"{number(known, metric)} / {_measured(measured, str(cell), CODED, metric)}"

    batches = sorted({cell.batch for cell in done})
    rate = measured.measure(str(done[0]), CODED, RATE) if done else None
    network = DASH if rate is None else named(rate.row.model or "")
    number_of_table = first if metric == RATE else first + 1
    by = "share of the training images" if first == 5 else "number of classes"
    return table(
        f"table-{number_of_table}",
        f"Table {number_of_table}: {WORDS[metric]} by {by}, printed / measured",
        ("batch", *(f"{amount:g}" for amount in amounts)),
        [(str(batch), *(entry(amount, batch) for amount in amounts)) for batch in batches],
        f"Printed: alexnet (512). Measured: {network}. {INTERVALS}",
    )


def _varied(measured: Measured, question: str) -> StudyTable:
    """Recovery rates of some attacks while one thing is varied."""
    title, what, note = QUESTIONS[question]
    by_value = cells.varied(measured, question)
    specs = cells.attacks(measured, by_value.values())
    lines = []
    for value, cell in by_value.items():
        rate = measured.measure(cell, specs[0], RATE) if specs else None
        alone, blind = measured.value(cell, None, cells.BOUND), None if rate is None else rate.chance
        rates = [_measured(measured, cell, spec, RATE) for spec in specs]
        lines.append((value, number(alone), number(blind), *rates))
    columns = (what, "alone in their bin", "blind guess", *specs)
    return table(question, title, columns, lines, note + INTERVALS)


def _fits(measured: Measured) -> StudyTable:
    lines = []
    for cell in cells.Figure6Cell.matching(measured.cells):
        gaps = [measured.value(str(cell), law, cells.DISTANCE) for law in cells.LAWS]
        lines.append((f"{cell.network}, {cell.data}", *map(number, gaps)))
    title = "How well laws fit the latents' brightness: largest gap between the distribution functions"
    return table("fits", title, ("network, data", *cells.LAWS), lines)


def _vetting(measured: Measured) -> StudyTable:
    """What a client that vets would have said to the first model of each cell."""
    lines = []
    for attack in cells.attacks(measured, measured.cells):
        alarms = [measured.measure(cell, attack, cells.ALARM) for cell in measured.cells]
        known = [alarm for alarm in alarms if alarm is not None and alarm.value is not None]
        if known:
            flagged = sum(alarm.value or 0.0 for alarm in known)
            reasons = [reason for alarm in known if alarm.row.note for reason in alarm.row.note.split("; ")]
            usual = max(reasons, key=reasons.count, default=DASH)
            lines.append((attack, f"{flagged:.0f} of {len(known)}", usual))
    title = "What a client notices: models that glasshouse vet flags"
    return table("vetting", title, ("attack", "flagged", "the most frequent reason"), lines)

"""Tables of what goes beyond the paper's: autoencoders, heads, and one thing varied at a time."""

from collections import Counter

from glasshouse.exhibits import StudyTable
from glasshouse.spelling import DASH
from glasshouse.studies.measured import Measured
from glasshouse.studies.scale_mia import addresses, autoencoders, cells
from glasshouse.studies.scale_mia.addresses import AutoencoderCell, Figure6Cell, HeadsCell, Table4Cell
from glasshouse.studies.scale_mia.autoencoders import DECODABLE, DECODED
from glasshouse.studies.scale_mia.cells import BOUND, HEADS, PUBLISHED, RATE
from glasshouse.studies.scale_mia.layout import INTERVALS, entry, number, tried
from glasshouse.studies.showing import bracketed, table

EXACT = "from an exact sum. "
QUESTIONS = {
    "weights": (
        "Weights: recovery rate where clients send how their weights changed, as in the authors' code",
        "batch",
        "Everywhere else they send gradients, as the paper says. Weights are rounded to single precision, "
        f"{EXACT}",
    ),
    "collisions": ("Collisions: recovery rate by the number of directions", "batch", ""),
    "dp": (
        "Differential privacy: recovery rate by noise multiplier",
        "noise",
        "Clients clip their updates to length 1, and the mean of 8 gets normal noise of a standard deviation "
        f"of the multiplier over 8, {EXACT}The attacks with a norm keep their updates below it. ",
    ),
    "quantisation": ("Quantisation: recovery rate by bits of an entry", "bits", ""),
    "local-steps": (
        "Local steps: recovery rate after several steps of each client",
        "steps",
        f"Steps are on all of a client's images, minibatches on parts of them, one epoch, {EXACT}",
    ),
    "laws": ("Laws of the latents' brightness: recovery rate", "data", ""),
}
"""The title of a table beyond the paper's, what it varies, and what its reader should know."""


def beyond(measured: Measured) -> list[StudyTable]:
    """As many as the finished cells allow."""
    laid_out = [_autoencoders(measured), _heads(measured)]
    laid_out += [_varied(measured, question) for question in QUESTIONS]
    laid_out += [_fits(measured), _vetting(measured)]
    return [shown for shown in laid_out if shown.rows]


def exact(measured: Measured, batch: int) -> str:
    """The cell of Table 4 with the network and data of `heads/*`: where all heads meet an exact sum."""
    found = (
        str(cell)
        for cell in Table4Cell.matching(measured.cells)
        if cell.batch == batch and measured.measure(str(cell), cells.DRAWN, RATE) is not None
    )
    return next(found, "")


def _autoencoders(measured: Measured) -> StudyTable:
    lines = []
    for cell in AutoencoderCell.matching(measured.cells):
        decoded = measured.measure(str(cell), None, DECODED)
        lines.append(
            (
                *(cell.network, cell.data, cell.granted),
                bracketed(measured.estimate(str(cell), None, DECODED), ".1f"),
                bracketed(measured.estimate(str(cell), None, DECODABLE)),
                number(measured.value(str(cell), None, autoencoders.SECONDS), "psnr"),
                (decoded.row.note if decoded else None) or DASH,
            )
        )
    return table(
        "autoencoders",
        "Autoencoders: what each makes of training images that it was not trained on",
        ("network", "data", "of the images", "PSNR (dB)", "share with 18 dB or more", "seconds", "training"),
        lines,
        "No recovery rate can be much higher than this share, whoever finds the latents.",
    )


def _heads(measured: Measured) -> StudyTable:
    """The published head and ours, from the exact sum and from rounded ones."""
    rounded = HeadsCell.matching(measured.cells)
    batches = sorted({cell.batch for cell in rounded})
    places = [("exact", batch, exact(measured, batch)) for batch in batches]
    places += [(f"{cell.bits} bits", cell.batch, str(cell)) for cell in rounded]
    lines = []
    for channel, batch, cell in places:
        rate = measured.measure(cell, PUBLISHED, RATE)
        known = rate.row.printed if rate else None
        alone, blind = measured.value(cell, None, BOUND), None if rate is None else rate.chance
        rates = [entry(measured, cell, spec, RATE) for spec in HEADS]
        if rate is not None:
            lines.append((channel, str(batch), *map(number, (known, alone, blind)), *rates))
    return table(
        "heads",
        "Heads: recovery rate as published and with our head, from an exact sum and from quantised ones",
        ("sum", "batch", "printed", "alone in their bin", "oracle", *HEADS),
        lines,
        "With the last layer drawn, the attack is that of the authors' code; the paper leaves it as it is. "
        f"Printed: from an exact sum, with positions taken from the victims' activations. {INTERVALS}",
    )


def _varied(measured: Measured, question: str) -> StudyTable:
    """Recovery rates of some attacks while one thing is varied."""
    title, what, note = QUESTIONS[question]
    by_value = addresses.varied(measured, question)
    specs = tried(measured, list(by_value.values()))
    lines = []
    for value, cell in by_value.items():
        rate = measured.measure(cell, specs[0], RATE) if specs else None
        alone, blind = measured.value(cell, None, BOUND), None if rate is None else rate.chance
        rates = [entry(measured, cell, spec, RATE) for spec in specs]
        lines.append((value, number(alone), number(blind), *rates))
    columns = (what, "alone in their bin", "oracle", *specs)
    return table(question, title, columns, lines, note + INTERVALS)


def _fits(measured: Measured) -> StudyTable:
    lines = []
    for cell in Figure6Cell.matching(measured.cells):
        gaps = [measured.estimate(str(cell), law, autoencoders.DISTANCE) for law in autoencoders.LAWS]
        lines.append((f"{cell.network}, {cell.data}", *map(bracketed, gaps)))
    title = "How well laws fit the latents' brightness: largest gap between the distribution functions"
    return table("fits", title, ("network, data", *autoencoders.LAWS), lines)


def _vetting(measured: Measured) -> StudyTable:
    """What a client that vets would have said to the first model of each cell."""
    lines = []
    for attack in tried(measured, measured.cells):
        alarms = [measured.measure(cell, attack, cells.ALARM) for cell in measured.cells]
        known = [alarm for alarm in alarms if alarm is not None and alarm.value is not None]
        if known:
            flagged = sum(alarm.value or 0.0 for alarm in known)
            reasons = Counter(
                reason for alarm in known if alarm.row.note for reason in alarm.row.note.split("; ")
            )
            usual = next((reason for reason, _ in reasons.most_common(1)), DASH)
            lines.append((attack, f"{flagged:.0f} of {len(known)}", usual))
    title = "What a client notices: models that glasshouse vet flags"
    return table("vetting", title, ("attack", "flagged", "the most frequent reason"), lines)

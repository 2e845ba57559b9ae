"""The tables that go beyond the paper's."""

from dataclasses import dataclass

from glasshouse.exhibits import StudyTable
from glasshouse.spelling import DASH
from glasshouse.studies.scale_mia.brightness import DISTANCE, LAWS
from glasshouse.studies.scale_mia.measured import Measured
from glasshouse.studies.scale_mia.rows import BOUND
from glasshouse.studies.scale_mia.spelling import INTERVALS, RATE, number, shown


@dataclass(frozen=True)
class Question:
    """What is varied, in the cells under `head`, while the recovery rates of some attacks are watched."""

    head: str
    title: str
    varied: str
    note: str = ""


QUESTIONS = (
    Question("collisions", "Collisions: recovery rate by the number of directions", "batch"),
    Question(
        "dp",
        "Differential privacy: recovery rate by noise multiplier",
        "noise",
        "Clients clip their updates to length 1, and the mean of 8 gets normal noise of a standard deviation "
        "of the multiplier over 8. The attacks with a norm keep their updates below it.",
    ),
    Question("quantisation", "Quantisation: recovery rate by bits of an entry", "bits"),
    Question(
        "local-steps",
        "Local steps: recovery rate after several steps of each client",
        "steps",
        "Steps are on all of a client's images, minibatches on parts of them, one epoch.",
    ),
    Question("laws", "Laws of the latents' brightness: recovery rate", "data"),
)


def further_tables(measured: Measured) -> list[StudyTable]:
    """One table for each question, as far as its cells are done."""
    made = [_table(measured, question) for question in QUESTIONS if measured.under(question.head)]
    made += [_fits(measured)] if measured.under("figure-6") else []
    flagged = _vetting(measured)
    return made + ([flagged] if flagged.rows else [])


def _table(measured: Measured, question: Question) -> StudyTable:
    head = question.head
    names = measured.under(head)
    attacks = list(dict.fromkeys(own for name in names for own in measured.attacks(f"{head}/{name}")))
    lines = []
    for name in names:
        cell = f"{head}/{name}"
        found = measured.measure(cell, attacks[0], RATE)
        alone, blind = measured.value(cell, None, BOUND), None if found is None else found.chance
        rates = [shown(measured, cell, attack, RATE) for attack in attacks]
        lines.append((name, number(alone), number(blind), *rates))
    return StudyTable(
        name=head,
        title=question.title,
        columns=(question.varied, "alone in their bin", "blind guess", *attacks),
        rows=tuple(lines),
        note=f"{question.note} {INTERVALS}".strip(),
    )


def _fits(measured: Measured) -> StudyTable:
    lines = []
    for name in measured.under("figure-6"):
        gaps = [measured.value(f"figure-6/{name}", law, DISTANCE) for law in LAWS]
        lines.append((name.replace("/", ", "), *map(number, gaps)))
    return StudyTable(
        name="fits",
        title="How well laws fit the latents' brightness: largest gap between the distribution functions",
        columns=("network, data", *LAWS),
        rows=tuple(lines),
    )


def _vetting(measured: Measured) -> StudyTable:
    """What a client that vets would have said to the first model of each cell."""
    lines = []
    for attack in dict.fromkeys(attack for cell in measured.cells for attack in measured.attacks(cell)):
        found = [measured.measure(cell, attack, "vet-alarm") for cell in measured.cells]
        known = [own for own in found if own is not None and own.value is not None]
        if known:
            flagged = sum(own.value or 0.0 for own in known)
            reasons = [reason for own in known for reason in own.row.assumes]
            usual = max(reasons, key=reasons.count, default=DASH)
            lines.append((attack, f"{flagged:.0f} of {len(known)}", usual))
    return StudyTable(
        name="vetting",
        title="What a client notices: models that glasshouse vet flags",
        columns=("attack", "flagged", "the most frequent reason"),
        rows=tuple(lines),
    )

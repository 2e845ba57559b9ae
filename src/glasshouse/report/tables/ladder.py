"""The ladder of realism as a table: every rung, how near the images came, and what a guess would reach."""

from glasshouse.report.tables.table import (
    Cell,
    Table,
    columns,
    number_cell,
    ranged_column,
    spanned_cell,
    text_cell,
)
from glasshouse.report.words.ladder import rung_words
from glasshouse.verdicts.ladder import Ladder, Step


def ladder_table(ladder: Ladder) -> Table:
    """A row for each rung, the easiest first, the defended ones last."""
    heads = (
        *columns("rung", "what the attacker faces"),
        ranged_column("mean PSNR (dB)"),
        *columns("mean image, blind (dB)", "nearest image, an oracle (dB)", "images", numeric=True),
    )
    rows = tuple(_row(step) for step in (*ladder.steps, *ladder.defended))
    return Table("ladder-table", "From the easiest update to invert to those that clients send", heads, rows)


def _row(step: Step) -> tuple[Cell, ...]:
    psnr = step.psnr
    faced = step.conditions if psnr.value is not None else f"{step.conditions} (not tried: {psnr.reason})"
    numbers = (number_cell(step.blind), number_cell(psnr.chance), text_cell(psnr.n))
    return (text_cell(rung_words(step)), text_cell(faced), spanned_cell(psnr), *numbers)

"""The federated model beside the central one, and under each defence, as tables."""

from glasshouse.report.tables.table import Table, columns, ranged_column, spanned_cell, text_cell
from glasshouse.report.words.names import defence_words
from glasshouse.report.words.robustness import pair_labels, pair_verdict
from glasshouse.verdicts.comparison import Comparison, find
from glasshouse.verdicts.measure import Measure
from glasshouse.verdicts.metrics import CENTRAL


def comparison_table(comparison: Comparison) -> Table:
    """Central beside federated with intervals, their difference and who is ahead."""
    both = any(pair.central and pair.federated for pair in comparison.pairs)
    one = "federated" if comparison.of_federation else "accuracy"
    numbered = ("trained centrally", "federated", "difference") if both else (one,)
    heads = [*columns("attack"), *map(ranged_column, numbered), *(columns("verdict") if both else ())]
    rows = []
    for label, pair in zip(pair_labels(comparison), comparison.pairs):
        numbers = (pair.central, pair.federated, pair.difference) if both else (pair.federated,)
        cells = [text_cell(label), *map(spanned_cell, numbers)]
        rows.append((*cells, text_cell(pair_verdict(pair))) if both else tuple(cells))
    caption = "Share of the test images classified right, and how sharp the loss is"
    return Table("robustness-table", caption, tuple(heads), tuple(rows))


def defences_table(comparison: Comparison) -> Table | None:
    """The same numbers under each defence, a row for each model; None where no defence was tried."""
    models = dict.fromkeys(_model(m) for m in comparison.measures)
    if sum(not central for central, _ in models) < 2:
        return None
    rows = []
    for central, defence in models:
        measures = [m for m in comparison.measures if _model(m) == (central, defence)]
        numbers = [find(measures, pair.metric, pair.attack) for pair in comparison.pairs]
        name = "trained centrally" if central else defence_words(defence)
        rows.append((text_cell(name), *map(spanned_cell, numbers)))
    heads = (*columns("model"), *map(ranged_column, pair_labels(comparison)))
    return Table("robustness-defences", "The same under each defence", heads, tuple(rows), folded=True)


def _model(measure: Measure) -> tuple[bool, str]:
    return measure.row.strategy == CENTRAL, measure.row.defence or "none"

"""The paper's tables and figures, printed and measured side by side."""

from collections.abc import Sequence

from glasshouse.exhibits import Chart, Series, StudyTable
from glasshouse.measures.estimate import Estimate, mean
from glasshouse.spelling import DASH
from glasshouse.studies.measured import Measured
from glasshouse.studies.mia_bad.cells import (
    FEDERATED,
    MODES,
    NULL_CURVE,
    SAMPLE,
    SET_RIVALS,
    SINGLE_RIVALS,
    USUAL,
    TableCell,
    batch_batch,
    batch_sample,
    batch_sizes,
    columns,
    table_rows,
)
from glasshouse.studies.mia_bad.printed import mix, printed
from glasshouse.studies.showing import bracketed, chart, series_of, table
from glasshouse.studies.study import Presentation

PROTOCOLS = {"batch-sample": batch_sample, "batch-batch": batch_batch}
FITS = ("train-accuracy", "test-accuracy", "train-test-gap")
LEAKS = {
    "balanced accuracy, sample-sample": (SAMPLE, "balanced-accuracy"),
    "AUC, loss": ("loss-threshold", "auc"),
    "TPR at 1% FPR, loss": ("loss-threshold", "tpr-at-1%-fpr"),
    "TPR at 1% FPR, lira": ("lira", "tpr-at-1%-fpr"),
    "TPR at 0.1% FPR, lira": ("lira", "tpr-at-0.1%-fpr"),
}
SIGNED = ("train-test-gap", "advantage", "auc-over-set-loss")
"""The metrics that lie between -1 and 1; all others lie between 0 and 1."""


def present(measured: Measured) -> Presentation:
    """Everything that the finished cells allow."""
    rows = table_rows(measured)
    tables: list[StudyTable] = []
    charts: list[Chart] = []
    for row in rows:
        tables += [_accuracy_table(measured, row, protocol) for protocol in PROTOCOLS]
        tables += [_rivals_table(measured, row), _fitting_table(measured, row)]
        charts.append(_figure_4(measured, row))
        if len(columns(measured, row)) > 3:
            charts.append(_batches_chart(measured, row))
    charts += [figure for protocol in PROTOCOLS if (figure := _figure_5(measured, rows, protocol))]
    return Presentation(tuple(tables), tuple(charts))


def _pooled(measured: Measured, cell: str, attack: str | None, metric: str) -> Estimate | None:
    return measured.over_seeds(cell, attack, metric, (-1.0 if metric in SIGNED else 0.0, 1.0))


def _accuracy_table(measured: Measured, row: TableCell, protocol: str) -> StudyTable:
    """The paper's table: printed / measured, in attack accuracy at the paper's mix."""
    ratio = mix(row.data)
    inside = columns(measured, row)
    lines = []
    for mode in MODES:
        line = [mode]
        for column in inside:
            spec = _spec(column, protocol)
            accuracy = _pooled(measured, row.at(mode, column), spec, f"accuracy-at-{ratio}:1")
            known = printed(row.data, mode, column)
            line.append(f"{DASH if known is None else f'{known:.3f}'} / {bracketed(accuracy)}")
        lines.append(tuple(line))
    return table(
        f"{_stem(row)}-{protocol}",
        f"{_heading(row)}: attack accuracy, printed / measured ({protocol})",
        ("training", *inside),
        lines,
        f'Accuracy at {ratio} members to one other, as in the paper: always saying "member" gives '
        f"{ratio / (ratio + 1):.3f}. The column sample is sample-sample. {_counts(measured, row)}",
    )


def _rivals_table(measured: Measured, row: TableCell) -> StudyTable:
    """AUC of every attack on single records, and on batches of the usual size."""
    sets = [f"{name}(batch_size={USUAL})" for name in SET_RIVALS]
    specs = [("sample", spec, spec, "auc") for spec in (SAMPLE, *SINGLE_RIVALS)]
    specs += [(str(USUAL), spec, spec, "auc") for spec in (batch_sample(USUAL), batch_batch(USUAL), *sets)]
    specs.append((str(USUAL), NULL_CURVE, f"null curve at {USUAL}", "null-auc"))
    lines = []
    for column, spec, name, metric in specs:
        aucs = [_pooled(measured, row.at(mode, column), spec, metric) for mode in MODES]
        lines.append((name, *map(bracketed, aucs)))
    note = f"batch-batch and the set- attacks judge batches of {USUAL}, the others single records. "
    title = f"{_heading(row)}: AUC of all attacks (chance 0.5)"
    return table(f"rivals-{_stem(row)}", title, ("attack", *MODES), lines, note + _counts(measured, row))


def _fitting_table(measured: Measured, row: TableCell) -> StudyTable:
    """How well each target fits its data, and the sample-wise attack beside it, also at matched accuracy."""

    def line(name: str, cell: str, hidden: Sequence[str] = ()) -> tuple[str, ...]:
        fits = [bracketed(_pooled(measured, cell, None, metric)) for metric in FITS]
        leaks = [
            DASH if attack in hidden else bracketed(_pooled(measured, cell, attack, metric))
            for attack, metric in LEAKS.values()
        ]
        return (name, *fits, *leaks)

    lines = [line(mode, row.at(mode)) for mode in MODES]
    lines += [
        line(f"central, stopped like {mode}", row.matched(mode), hidden=(SAMPLE, "lira"))
        for mode in FEDERATED
    ]
    return table(
        f"fitting-{_stem(row)}",
        f"{_heading(row)}: fitting and leaking",
        ("training", *FITS, *LEAKS),
        lines,
        "A central model is stopped after the round at which it fits its training data most like the "
        "federated one. Its shadow models were trained to the end, so only the AUC of the loss is compared. "
        + _counts(measured, row),
    )


def _counts(measured: Measured, row: TableCell) -> str:
    """On how many records and seeds a row's numbers rest."""
    auc, tpr = (
        measured.measure(row.at(MODES[0]), "loss-threshold", metric) for metric in ("auc", "tpr-at-1%-fpr")
    )
    if auc is None or tpr is None or auc.n is None or tpr.n is None:
        return ""
    seeds = len(auc.values)
    members, everyone = tpr.n // seeds, auc.n // seeds
    of_seeds = f"means over {seeds} seeds with their t interval" if seeds > 1 else "one seed"
    return f"n = {members:,} members and {everyone - members:,} others; {of_seeds}."


def _figure_4(measured: Measured, row: TableCell) -> Chart:
    """The paper's Figure 4: attack accuracy by number of clients."""
    ratio = mix(row.data)
    paper = tuple(printed(row.data, mode, "sample") for mode in MODES)
    series = [Series(name="sample-wise, printed", values=paper, printed=True)]
    for name, column in (("sample-sample", "sample"), *((protocol, str(USUAL)) for protocol in PROTOCOLS)):
        accuracies = [
            _pooled(measured, row.at(mode, column), _spec(column, name), f"accuracy-at-{ratio}:1")
            for mode in MODES
        ]
        series.append(series_of(f"{name}, measured", accuracies))
    return chart(
        f"figure-4-{row.data}-{row.model}",
        f"Figure 4, {row.data}, {row.model}: attack accuracy by number of clients",
        ("training", f"attack accuracy at {ratio}:1"),
        MODES,
        filter(_drawn, series),
        chance=ratio / (ratio + 1),
        note=f"Batches of {USUAL}.",
    )


def _figure_5(measured: Measured, rows: list[TableCell], protocol: str) -> Chart | None:
    """The paper's Figure 5: batch-wise minus sample-wise accuracy, by data set and number of clients."""
    series = []
    for mode in FEDERATED:
        paper = tuple(_printed_gain(measured, row, mode) for row in rows)
        series.append(Series(name=f"{mode}, printed", values=paper, printed=True))
        gains = [_measured_gain(measured, row, mode, protocol) for row in rows]
        series.append(series_of(f"{mode}, measured", gains))
    if not any(_drawn(line) for line in series if not line.printed):
        return None
    return chart(
        f"figure-5-{protocol}",
        f"Figure 5: accuracy of {protocol} minus sample-sample",
        ("data set, network", "advantage of batch-wise"),
        (f"{row.data}, {row.model}" for row in rows),
        (line for line in series if _drawn(line) or not line.printed),
        kind="bars",
        chance=0.0,
        note="Printed and measured: the mean over the batch sizes of the row's table. "
        "Intervals are over the seeds.",
    )


def _batches_chart(measured: Measured, row: TableCell) -> Chart:
    """AUC on whole batches against their size, beside the null curve."""
    sizes = batch_sizes(measured, row)
    series = []
    for mode in ("central", "10-clients"):
        for name, spec, metric in (
            ("batch-batch", batch_batch, "auc"),
            ("mean loss", "set-loss(batch_size={})".format, "auc"),
            ("summed LLR", "set-llr(batch_size={})".format, "auc"),
            ("null curve", lambda _: NULL_CURVE, "null-auc"),
        ):
            aucs = [_pooled(measured, row.at(mode, size), spec(size), metric) for size in sizes]
            series.append(series_of(f"{name}, {mode}", aucs))
    title = f"{_heading(row)}: AUC on whole batches against their size"
    return chart(f"batches-{_stem(row)}", title, ("batch size", "AUC"), map(str, sizes), series, chance=0.5)


def _measured_gain(measured: Measured, row: TableCell, mode: str, protocol: str) -> Estimate:
    """Batch-wise minus sample-wise accuracy, mean over the seeds with its t interval."""
    metric = f"accuracy-at-{mix(row.data)}:1"
    single = measured.by_seed(row.at(mode), SAMPLE, metric)
    batch = [
        measured.by_seed(row.at(mode, size), PROTOCOLS[protocol](size), metric)
        for size in batch_sizes(measured, row)
    ]
    gains = []
    for seed, base in single.items():
        known = [accuracies[seed] for accuracies in batch if seed in accuracies]
        gains += [sum(known) / len(known) - base] if known else []
    return mean(gains) if gains else Estimate(None, None, None, 0)


def _printed_gain(measured: Measured, row: TableCell, mode: str) -> float | None:
    """The paper's gain, over the batch sizes that were measured here."""
    single = printed(row.data, mode, "sample")
    batch = [printed(row.data, mode, str(size)) for size in batch_sizes(measured, row)]
    known = [accuracy for accuracy in batch if accuracy is not None]
    return None if single is None or not known else sum(known) / len(known) - single


def _stem(row: TableCell) -> str:
    return f"{row.table}-{row.data}-{row.model}"


def _heading(row: TableCell) -> str:
    return f"{'Table I' if row.table == 'table-1' else 'Table II'}, {row.data}, {row.model}"


def _spec(column: str, protocol: str) -> str:
    return SAMPLE if column == "sample" else PROTOCOLS[protocol](int(column))


def _drawn(series: Series) -> bool:
    return any(value is not None for value in series.values)

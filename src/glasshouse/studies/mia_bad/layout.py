"""The paper's tables and figures, printed and measured side by side."""

from collections.abc import Iterator, Sequence

from glasshouse.exhibits import Chart, Series, StudyTable
from glasshouse.measures.estimate import Estimate
from glasshouse.spelling import DASH
from glasshouse.studies.measured import Measured
from glasshouse.studies.mia_bad import cells
from glasshouse.studies.mia_bad.cells import MODES, SAMPLE, USUAL, TableCell, batch_batch, batch_sample
from glasshouse.studies.mia_bad.pretrained import RANDOM
from glasshouse.studies.mia_bad.printed import mix, printed
from glasshouse.studies.showing import bracketed, chart, series_of, table
from glasshouse.studies.study import Presentation
from glasshouse.verdicts.seeds import across_seeds

PROTOCOLS = {"batch-sample": batch_sample, "batch-batch": batch_batch}
FITS = ("train-accuracy", "test-accuracy", "train-test-gap")
LEAKS = {
    "balanced accuracy, sample-sample": (SAMPLE, "balanced-accuracy"),
    "AUC, loss": ("loss-threshold", "auc"),
    "TPR at 1% FPR, loss": ("loss-threshold", "tpr-at-1%-fpr"),
    "TPR at 1% FPR, lira": ("lira", "tpr-at-1%-fpr"),
    "TPR at 0.1% FPR, lira": ("lira", "tpr-at-0.1%-fpr"),
}
SIGNED = ("train-test-gap", "advantage")
"""The metrics that lie between -1 and 1; all others lie between 0 and 1."""
INTERVALS = "95% intervals are over records where the seeds agree, else over seeds and records."


def present(measured: Measured) -> Presentation:
    """Everything that the finished cells allow."""
    rows = cells.table_rows(measured)
    tables = [shown for row, columns in rows.items() for shown in _tables(measured, row, columns)]
    charts: list[Chart] = []
    for row, columns in rows.items():
        charts.append(_figure_4(measured, row))
        if len(columns) > 3:
            charts.append(_batches_chart(measured, row))
    charts += [figure for protocol in PROTOCOLS if (figure := _figure_5(measured, list(rows), protocol))]
    return Presentation(tuple(tables), tuple(charts))


def _pooled(measured: Measured, cell: str, attack: str | None, metric: str) -> Estimate | None:
    return measured.over_seeds(cell, attack, metric, (-1.0 if metric in SIGNED else 0.0, 1.0))


def _tables(measured: Measured, row: TableCell, columns: Sequence[str]) -> Iterator[StudyTable]:
    """The paper's table under both protocols, the AUCs of all attacks, and how well each target fits."""
    stem, heading, counts, ratio = _stem(row), _heading(row), _counts(measured, row), mix(row.data)
    for protocol in PROTOCOLS:
        yield table(
            f"{stem}-{protocol}",
            f"{heading}: attack accuracy, printed / measured ({protocol})",
            ("training", *columns),
            [
                (mode, *(_accuracy(measured, row, mode, column, protocol) for column in columns))
                for mode in MODES
            ],
            f'Accuracy at {ratio} members to one other, as in the paper: always saying "member" gives '
            f"{ratio / (ratio + 1):.3f}. The column sample is sample-sample. {counts}",
        )
    yield table(
        f"rivals-{stem}",
        f"{heading}: AUC of all attacks (chance 0.5)",
        ("attack", *MODES),
        _rivals(measured, row),
        f"batch-batch and the set- attacks judge batches of {USUAL}, the others single records. {counts}",
    )
    yield table(
        f"fitting-{stem}",
        f"{heading}: fitting and leaking",
        ("training", *FITS, *LEAKS),
        _fitting(measured, row),
        "A central model is stopped after as many epochs as make up the round at which it fits its training "
        "data most like the federated one. Its shadow models were trained to the end, so only the loss is "
        f"compared. {counts}",
    )


def _accuracy(measured: Measured, row: TableCell, mode: str, column: str, protocol: str) -> str:
    """Printed / measured, in attack accuracy at the paper's mix."""
    known = printed(row.data, mode, column)
    accuracy = _at_mix(measured, row, mode, column, protocol)
    return f"{DASH if known is None else f'{known:.3f}'} / {bracketed(accuracy)}"


def _at_mix(measured: Measured, row: TableCell, mode: str, column: str, protocol: str) -> Estimate | None:
    spec = SAMPLE if column == "sample" else PROTOCOLS[protocol](column)
    return _pooled(measured, row.at(mode, column), spec, cells.own_metric(row.data))


def _rivals(measured: Measured, row: TableCell) -> Iterator[tuple[str, ...]]:
    """AUC of every attack on single records, and on batches of the usual size."""
    sets = [f"{name}(batch_size={USUAL})" for name in cells.SET_RIVALS]
    specs = [("sample", spec, spec, "auc") for spec in (SAMPLE, *cells.SINGLE_RIVALS)]
    specs += [(str(USUAL), spec, spec, "auc") for spec in (batch_sample(USUAL), batch_batch(USUAL), *sets)]
    specs.append((str(USUAL), cells.NULL_CURVE, f"null curve at {USUAL}", "null-auc"))
    for column, spec, name, metric in specs:
        yield name, *(bracketed(_pooled(measured, row.at(mode, column), spec, metric)) for mode in MODES)


def _fitting(measured: Measured, row: TableCell) -> Iterator[tuple[str, ...]]:
    """How well each target fits its data, and the sample-wise attack beside it, also at matched accuracy."""
    targets = [(mode, row.at(mode)) for mode in MODES]
    targets += [(f"central, stopped like {mode}", row.matched(mode)) for mode in cells.FEDERATED]
    for name, cell in targets:
        fits = [_pooled(measured, cell, None, metric) for metric in FITS]
        leaks = [_pooled(measured, cell, attack, metric) for attack, metric in LEAKS.values()]
        yield name, *map(bracketed, fits + leaks)


def _counts(measured: Measured, row: TableCell) -> str:
    """On how many records and seeds a row's numbers rest."""
    auc, tpr = (
        measured.measure(row.at(MODES[0]), "loss-threshold", metric) for metric in ("auc", "tpr-at-1%-fpr")
    )
    if auc is None or tpr is None or auc.n is None or tpr.n is None or not auc.values:
        return ""
    seeds = len(auc.values)
    members, everyone = tpr.n // seeds, auc.n // seeds
    of_seeds = f"means over {seeds} seeds" if seeds > 1 else "one seed"
    return f"n = {members:,} members and {everyone - members:,} others; {of_seeds}. {INTERVALS}"


def _figure_4(measured: Measured, row: TableCell) -> Chart:
    """The paper's Figure 4: attack accuracy by number of clients."""
    ratio = mix(row.data)
    paper = tuple(printed(row.data, mode, "sample") for mode in MODES)
    series = [Series(name="sample-wise, printed", values=paper, printed=True)]
    for name, column in (("sample-sample", "sample"), *((protocol, str(USUAL)) for protocol in PROTOCOLS)):
        accuracies = [_at_mix(measured, row, mode, column, name) for mode in MODES]
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
    for mode in cells.FEDERATED:
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
        note=f"Printed and measured: the mean over the batch sizes of the row's table. {INTERVALS}",
    )


def _batches_chart(measured: Measured, row: TableCell) -> Chart:
    """AUC on whole batches against their size, beside the null curve."""
    sizes = cells.batch_sizes(measured, row)
    series = []
    for mode in ("central", "10-clients"):
        for name, spec, metric in (
            ("batch-batch", batch_batch, "auc"),
            ("mean loss", "set-loss(batch_size={})".format, "auc"),
            ("summed LLR", "set-llr(batch_size={})".format, "auc"),
            ("null curve", lambda _: cells.NULL_CURVE, "null-auc"),
        ):
            aucs = [_pooled(measured, row.at(mode, size), spec(size), metric) for size in sizes]
            series.append(series_of(f"{name}, {mode}", aucs))
    title = f"{_heading(row)}: AUC on whole batches against their size"
    return chart(f"batches-{_stem(row)}", title, ("batch size", "AUC"), map(str, sizes), series, chance=0.5)


def _measured_gain(measured: Measured, row: TableCell, mode: str, protocol: str) -> Estimate | None:
    """Batch-wise minus sample-wise accuracy."""
    metric = cells.own_metric(row.data)
    gains = cells.gains(measured, row, mode, PROTOCOLS[protocol], metric)
    return across_seeds(list(gains.values()), bounds=(-1.0, 1.0)) if gains else None


def _printed_gain(measured: Measured, row: TableCell, mode: str) -> float | None:
    """The paper's gain, over the batch sizes that were measured here."""
    single = printed(row.data, mode, "sample")
    batch = [printed(row.data, mode, str(size)) for size in cells.batch_sizes(measured, row)]
    known = [accuracy for accuracy in batch if accuracy is not None]
    return None if single is None or not known else sum(known) / len(known) - single


def _stem(row: TableCell) -> str:
    return f"{row.table}-{row.data}-{row.model}"


def _heading(row: TableCell) -> str:
    illustration = " (an illustration: from random weights)" if row.model == RANDOM else ""
    return f"{'Table I' if row.table == 'table-1' else 'Table II'}, {row.data}, {row.model}{illustration}"


def _drawn(series: Series) -> bool:
    return any(value is not None for value in series.values)

"""The paper's tables and figures, printed and measured side by side."""

from glasshouse.exhibits import Chart, Series, StudyTable
from glasshouse.measures.estimate import Estimate, mean
from glasshouse.spelling import DASH
from glasshouse.studies.mia_bad.cells import (
    NULL_CURVE,
    SAMPLE,
    SET_RIVALS,
    SINGLE_RIVALS,
    batch_batch,
    batch_sample,
)
from glasshouse.studies.mia_bad.claims import FEDERATED, MODES, USUAL
from glasshouse.studies.mia_bad.measured import Measured
from glasshouse.studies.mia_bad.printed import mix, printed
from glasshouse.studies.showing import bracketed, series_of
from glasshouse.studies.study import Presentation

Row = tuple[str, str, str]
PROTOCOLS = {"batch-sample": batch_sample, "batch-batch": batch_batch}
LEAKS = {
    "balanced accuracy, sample-sample": (SAMPLE, "balanced-accuracy"),
    "AUC, loss": ("loss-threshold", "auc"),
    "TPR at 1% FPR, loss": ("loss-threshold", "tpr-at-1%-fpr"),
    "TPR at 1% FPR, lira": ("lira", "tpr-at-1%-fpr"),
    "TPR at 0.1% FPR, lira": ("lira", "tpr-at-0.1%-fpr"),
}


def present(measured: Measured) -> Presentation:
    """Everything that the finished cells allow."""
    rows = measured.rows()
    tables: list[StudyTable] = []
    charts: list[Chart] = []
    for row in rows:
        tables += [_accuracy_table(measured, row, protocol) for protocol in PROTOCOLS]
        tables.append(_rivals_table(measured, row))
        tables.append(_fitting_table(measured, row))
        charts.append(_figure_4(measured, row))
        if len(measured.columns(row)) > 3:
            charts.append(_batches_chart(measured, row))
    charts += _figure_5(measured, rows)
    return Presentation(tuple(tables), tuple(charts))


def _accuracy_table(measured: Measured, row: Row, protocol: str) -> StudyTable:
    """The paper's table: printed / measured, in attack accuracy at the paper's mix."""
    table, data, model = row
    ratio = mix(data)
    columns = measured.columns(row)
    lines = []
    for mode in MODES:
        line = [mode]
        for column in columns:
            found = measured.measure(
                f"{table}/{data}/{model}/{mode}/{column}", _spec(column, protocol), f"accuracy-at-{ratio}:1"
            )
            line.append(f"{_printed(data, mode, column)} / {bracketed(found)}")
        lines.append(tuple(line))
    chance = ratio / (ratio + 1)
    return StudyTable(
        name=f"{table}-{data}-{model}-{protocol}",
        title=f"{_heading(row)}: attack accuracy, printed / measured ({protocol})",
        columns=("training", *columns),
        rows=tuple(lines),
        note=f'Accuracy at {ratio} members to one other, as in the paper: always saying "member" gives '
        f"{chance:.3f}. The column sample is sample-sample. {_counts(measured, '/'.join(row))}",
    )


def _rivals_table(measured: Measured, row: Row) -> StudyTable:
    """AUC of every attack on single records, and on batches of the usual size."""
    head = "/".join(row)
    specs = [("sample", spec) for spec in (SAMPLE, *SINGLE_RIVALS)]
    specs.append((str(USUAL), batch_sample(USUAL)))
    specs += [(str(USUAL), spec) for spec in (batch_batch(USUAL), *_set_specs())]
    lines = []
    for column, spec in specs:
        found = [measured.measure(f"{head}/{mode}/{column}", spec, "auc") for mode in MODES]
        lines.append((spec, *(bracketed(own) for own in found)))
    nulls = [measured.measure(f"{head}/{mode}/{USUAL}", NULL_CURVE, "null-auc") for mode in MODES]
    lines.append((f"null curve at {USUAL}", *(bracketed(own) for own in nulls)))
    return StudyTable(
        name=f"rivals-{'-'.join(row)}",
        title=f"{_heading(row)}: AUC of all attacks (chance 0.5)",
        columns=("attack", *MODES),
        rows=tuple(lines),
        note=f"batch-batch and the set- attacks judge batches of {USUAL}, the others single records. "
        + _counts(measured, head),
    )


def _fitting_table(measured: Measured, row: Row) -> StudyTable:
    """How well each target fits its data, and the sample-wise attack beside it, also at matched accuracy."""
    _, data, model = row
    head = "/".join(row)
    metrics = ("train-accuracy", "test-accuracy", "train-test-gap")
    lines = [_fit_line(measured, mode, f"{head}/{mode}/sample", metrics) for mode in MODES]
    lines += [
        _fit_line(measured, f"central, stopped like {mode}", f"matched/{data}/{model}/{mode}", metrics)
        for mode in FEDERATED
    ]
    return StudyTable(
        name=f"fitting-{'-'.join(row)}",
        title=f"{_heading(row)}: fitting and leaking",
        columns=("training", *metrics, *LEAKS),
        rows=tuple(lines),
        note="A central model is stopped after the round at which it fits its training data most like the "
        "federated one. Its shadow models were trained to the end, so only the AUC of the loss is compared. "
        + _counts(measured, head),
    )


def _fit_line(measured: Measured, name: str, cell: str, metrics: tuple[str, ...]) -> tuple[str, ...]:
    fits = [bracketed(measured.measure(cell, None, metric)) for metric in metrics]
    leaks = [
        DASH
        if cell.startswith("matched") and attack != "loss-threshold"
        else bracketed(measured.measure(cell, attack, metric))
        for attack, metric in LEAKS.values()
    ]
    return (name, *fits, *leaks)


def _counts(measured: Measured, head: str) -> str:
    """On how many records and seeds a row's numbers rest."""
    auc = measured.measure(f"{head}/{MODES[0]}/sample", "loss-threshold", "auc")
    found = measured.measure(f"{head}/{MODES[0]}/sample", "loss-threshold", "tpr-at-1%-fpr")
    if auc is None or found is None or auc.n is None or found.n is None:
        return ""
    seeds = len(auc.values)
    members, everyone = found.n // seeds, auc.n // seeds
    of_seeds = f"means over {seeds} seeds with their t interval" if seeds > 1 else "one seed"
    return f"n = {members:,} members and {everyone - members:,} others; {of_seeds}."


def _figure_4(measured: Measured, row: Row) -> Chart:
    """The paper's Figure 4: attack accuracy by number of clients."""
    _, data, model = row
    ratio = mix(data)
    metric = f"accuracy-at-{ratio}:1"
    series = [
        Series(
            name="sample-wise, printed", values=tuple(printed(data, m, "sample") for m in MODES), printed=True
        )
    ]
    for name, column in (
        ("sample-sample", "sample"),
        ("batch-sample", str(USUAL)),
        ("batch-batch", str(USUAL)),
    ):
        found = [
            measured.measure(f"{'/'.join(row)}/{m}/{column}", _spec(column, name), metric) for m in MODES
        ]
        series.append(series_of(f"{name}, measured", found))
    return Chart(
        name=f"figure-4-{data}-{model}",
        title=f"Figure 4, {data}, {model}: attack accuracy by number of clients",
        x="training",
        y=f"attack accuracy at {ratio}:1",
        categories=MODES,
        chance=ratio / (ratio + 1),
        series=tuple(own for own in series if any(value is not None for value in own.values)),
        note=f"Batches of {USUAL}.",
    )


def _figure_5(measured: Measured, rows: list[Row]) -> list[Chart]:
    """The paper's Figure 5: batch-wise minus sample-wise accuracy, by data set and number of clients."""
    names = tuple(f"{data}, {model}" for _, data, model in rows)
    charts = []
    for protocol in PROTOCOLS:
        series = []
        for mode in FEDERATED:
            paper = tuple(_printed_gain(measured, row, mode) for row in rows)
            if any(value is not None for value in paper):
                series.append(Series(name=f"{mode}, printed", values=paper, printed=True))
            gains = [_measured_gain(measured, row, mode, protocol) for row in rows]
            series.append(series_of(f"{mode}, measured", gains))
        if not any(value is not None for own in series if not own.printed for value in own.values):
            continue
        charts.append(
            Chart(
                name=f"figure-5-{protocol}",
                title=f"Figure 5: accuracy of {protocol} minus sample-sample",
                kind="bars",
                x="data set, network",
                y="advantage of batch-wise",
                categories=names,
                chance=0.0,
                series=tuple(series),
                note="Printed and measured: the mean over the batch sizes of the row's table. "
                "Intervals are over the seeds.",
            )
        )
    return charts


def _batches_chart(measured: Measured, row: Row) -> Chart:
    """AUC on whole batches against their size, beside the null curve."""
    sizes = [column for column in measured.columns(row) if column != "sample"]
    series = []
    for mode in ("central", "10-clients"):
        head = f"{'/'.join(row)}/{mode}"
        for name, spec, metric in (
            ("batch-batch", batch_batch, "auc"),
            ("mean loss", lambda size: f"set-loss(batch_size={size})", "auc"),
            ("summed LLR", lambda size: f"set-llr(batch_size={size})", "auc"),
            ("null curve", lambda size: NULL_CURVE, "null-auc"),
        ):
            found = [measured.measure(f"{head}/{size}", spec(int(size)), metric) for size in sizes]
            series.append(series_of(f"{name}, {mode}", found))
    return Chart(
        name=f"batches-{'-'.join(row)}",
        title=f"{_heading(row)}: AUC on whole batches against their size",
        x="batch size",
        y="AUC",
        categories=tuple(sizes),
        chance=0.5,
        series=tuple(series),
    )


def _measured_gain(measured: Measured, row: Row, mode: str, protocol: str) -> Estimate:
    """Batch-wise minus sample-wise accuracy, mean over the seeds with its t interval."""
    head, metric = f"{'/'.join(row)}/{mode}", f"accuracy-at-{mix(row[1])}:1"
    single = measured.by_seed(f"{head}/sample", SAMPLE, metric)
    sizes = [column for column in measured.columns(row) if column != "sample"]
    batch = [measured.by_seed(f"{head}/{size}", _spec(size, protocol), metric) for size in sizes]
    gains = []
    for seed, base in single.items():
        known = [own[seed] for own in batch if seed in own]
        gains += [sum(known) / len(known) - base] if known else []
    return mean(gains) if gains else Estimate(None, None, None, 0)


def _printed_gain(measured: Measured, row: Row, mode: str) -> float | None:
    """The paper's gain, over the batch sizes that were measured here."""
    data = row[1]
    sizes = [column for column in measured.columns(row) if column != "sample"]
    single = printed(data, mode, "sample")
    known = [value for size in sizes if (value := printed(data, mode, size)) is not None]
    return None if single is None or not known else sum(known) / len(known) - single


def _spec(column: str, protocol: str) -> str:
    return SAMPLE if column == "sample" else PROTOCOLS[protocol](int(column))


def _set_specs() -> list[str]:
    return [f"{name}(batch_size={USUAL})" for name in SET_RIVALS]


def _printed(data: str, mode: str, column: str) -> str:
    value = printed(data, mode, column)
    return DASH if value is None else f"{value:.3f}"


def _heading(row: Row) -> str:
    table, data, model = row
    return f"{'Table I' if table == 'table-1' else 'Table II'}, {data}, {model}"

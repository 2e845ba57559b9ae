import pytest

from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.report.run import read_run
from glasshouse.store import write_json
from glasshouse.studies.mia_bad.cells import NULL_CURVE, SAMPLE, batch_batch, batch_sample
from glasshouse.studies.mia_bad.grid import MIABadStudy
from glasshouse.studies.mia_bad.printed import COLUMNS, ROWS, mix, printed


def test_mia_bad_has_the_papers_numbers():
    assert printed("cifar10", "central", "sample") == 0.833
    assert printed("cifar10", "central", "16") == 0.869
    assert printed("cifar10", "2-clients", "sample") == 0.721
    assert printed("cifar10", "10-clients", "32") == 0.796
    assert printed("cifar10", "10-clients", "256") == 0.786
    assert printed("fashion-mnist", "2-clients", "32") == 0.807
    assert printed("cifar100", "5-clients", "sample") == 0.757
    assert printed("mnist", "10-clients", "32") == 0.852
    known = {row: [column for column in COLUMNS if printed(*row, column) is not None] for row in ROWS}
    assert [known[row] for row in ROWS if row[0] == "cifar10"] == [list(COLUMNS)] * 4
    assert [known[row] for row in ROWS if row[0] != "cifar10"] == [["sample", "32"]] * 9


def test_what_mia_bad_does_not_print_is_null():
    assert printed("mnist", "central", "sample") is None
    assert printed("mnist", "2-clients", "64") is None
    assert printed("digits", "2-clients", "sample") is None
    assert (mix("cifar10"), mix("cifar100"), mix("mnist"), mix("fashion-mnist")) == (5, 5, 6, 6)


def of_seeds(cell, attack, metric, values):
    """A finding of the study for each value, with seeds from 0."""
    return [
        Finding(
            source="mia-bad",
            cell=cell,
            family="membership",
            attack=attack,
            metric=metric,
            value=value,
            low=value - 0.01,
            high=value + 0.01,
            n=4000 if metric.startswith("tpr") else 12000,
            seed=seed,
        )
        for seed, value in enumerate(values)
    ]


def made_up_rows(scale):
    """Findings for every cell of a scale, all metrics that its tables show, with two seeds."""
    for cell in MIABadStudy().cells(scale):
        kind, data, *_, column = cell.name.split("/")
        attacks = {SAMPLE, "loss-threshold", "gap", "shokri", "lira", "rmia"}
        if column.isdigit():
            rivals = {f"{name}(batch_size={column})" for name in ("set-loss", "set-vote", "set-llr")}
            attacks = {batch_sample(int(column)), batch_batch(int(column)), *rivals}
            yield from of_seeds(cell.name, NULL_CURVE, "null-auc", [0.7, 0.8])
            for wise in (batch_sample(int(column)), batch_batch(int(column))):
                yield from of_seeds(cell.name, wise, f"accuracy-at-{mix(data)}:1-over-sample", [0.01, 0.03])
        for attack in sorted(attacks):
            for metric in ("auc", "balanced-accuracy", "tpr-at-1%-fpr", f"accuracy-at-{mix(data)}:1"):
                yield from of_seeds(cell.name, attack, metric, [0.61, 0.63])
        if column == "sample" or kind == "matched":
            for metric in ("train-accuracy", "test-accuracy", "train-test-gap"):
                yield from of_seeds(cell.name, None, metric, [0.9, 0.8])


def shown(findings, folder):
    """The page of the study as the report reads it, checked on the way."""
    presentation = MIABadStudy().present(findings, Exhibits())
    write_json(folder / "results.json", [finding.row() for finding in findings])
    write_json(
        folder / "study.json",
        {
            "tables": [table.model_dump() for table in presentation.tables],
            "charts": [chart.model_dump() for chart in presentation.charts],
        },
    )
    return read_run(folder).study


@pytest.mark.parametrize("scale", ["smoke", "laptop", "paper"])
def test_mia_bads_tables_and_charts_fit_the_page_at_every_scale(scale, tmp_path):
    study = shown(list(made_up_rows(scale)), tmp_path)
    rows = {tuple(cell.name.split("/")[:3]) for cell in MIABadStudy().cells(scale)}
    rows = {row for row in rows if row[0] != "matched"}
    assert len(study.tables) == 4 * len(rows)
    names = [chart.name for chart in study.charts]
    assert len([name for name in names if name.startswith("figure-4")]) == len(rows)
    assert {name for name in names if name.startswith("figure-5")} == {
        "figure-5-batch-sample", "figure-5-batch-batch",
    }  # fmt: skip


def test_printed_and_measured_stand_side_by_side(tmp_path):
    study = shown(list(made_up_rows("laptop")), tmp_path)
    tables = {table.name: table for table in study.tables}
    table = tables["table-1-cifar10-lenet-batch-batch"]
    assert table.columns == ("training", "sample", "8", "16", "32", "64", "128", "256")
    cells = {row[0]: dict(zip(table.columns, row)) for row in table.rows}
    assert cells["central"]["16"].startswith("0.869 / 0.62")
    assert cells["10-clients"]["sample"].startswith("0.786 / 0.62")
    assert "0.833" in table.note
    assert "0.857" in tables["table-2-mnist-lenet-batch-sample"].note
    bars = {chart.name: chart for chart in study.charts}["figure-5-batch-sample"]
    series = {one.name: one for one in bars.series}
    place = bars.categories.index("fashion-mnist, lenet")
    assert series["2-clients, printed"].values[place] == pytest.approx(0.807 - 0.747)
    place = bars.categories.index("cifar10, lenet")
    assert series["2-clients, printed"].values[place] == pytest.approx(
        (0.751 + 0.755 + 0.757 + 0.753 + 0.753 + 0.751) / 6 - 0.721
    )
    assert series["2-clients, measured"].values[place] == pytest.approx(0.02)
    assert "over records where the seeds agree" in bars.note
    assert "n = 4,000 members and 8,000 others; means over 2 seeds" in table.note
    assert "over records where the seeds agree" in table.note
    assert "t interval" not in table.note
    four = {chart.name: chart for chart in study.charts}["figure-4-cifar10-lenet"]
    assert four.chance == pytest.approx(5 / 6)
    assert four.series[0].printed
    assert four.series[0].values == (0.833, 0.721, 0.769, 0.786)


def test_a_part_of_mia_bad_shows_no_figure_without_a_measured_point(tmp_path):
    part = [row for row in made_up_rows("smoke") if row.cell.startswith("matched")]
    assert not shown(part, tmp_path / "matched").charts
    part = [row for row in made_up_rows("smoke") if "/central/" in row.cell]
    names = [chart.name for chart in shown(part, tmp_path / "central").charts]
    assert names == ["figure-4-digits-mlp", "batches-table-1-digits-mlp"]


def test_efficientnet_from_random_weights_is_called_an_illustration(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSHOUSE_DATA", str(tmp_path))
    for scale, called in (("paper", True), ("laptop", False)):
        tables = shown(list(made_up_rows(scale)), tmp_path / scale).tables
        assert {"an illustration: from random weights" in table.title for table in tables} == {called}

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


HEAD = "table-1/cifar10/lenet"


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
            seed=seed,
        )
        for seed, value in enumerate(values)
    ]


def batch_gains(gains, mode="central"):
    """Findings in which the batch-wise attack is this much better on single records."""
    wise = of_seeds(
        f"{HEAD}/{mode}/32", batch_sample(32), "balanced-accuracy", [0.6 + gain for gain in gains]
    )
    return wise + of_seeds(f"{HEAD}/{mode}/sample", SAMPLE, "balanced-accuracy", [0.6] * len(gains))


def over_set_loss(gains):
    cell = f"{HEAD}/central/32"
    wise = of_seeds(cell, batch_batch(32), "auc", [0.8 + gain for gain in gains])
    return wise + of_seeds(cell, "set-loss(batch_size=32)", "auc", [0.8] * len(gains))


def over_null(gains):
    cell = f"{HEAD}/central/32"
    wise = of_seeds(cell, batch_batch(32), "auc", [0.8 + gain for gain in gains])
    return wise + of_seeds(cell, NULL_CURVE, "null-auc", [0.8] * len(gains))


def mitigations(gains):
    cells = [(f"{HEAD}/central/sample", gains), (f"{HEAD}/5-clients/sample", [0.0] * len(gains))]
    return [
        row
        for cell, own in cells
        for row in of_seeds(cell, SAMPLE, "balanced-accuracy", [0.6 + gain for gain in own])
    ]


def mitigations_of_loss(gains):
    central = of_seeds(f"{HEAD}/central/sample", "loss-threshold", "auc", [0.6 + gain for gain in gains])
    return central + of_seeds(f"{HEAD}/5-clients/sample", "loss-threshold", "auc", [0.6] * len(gains))


def matched_mitigations(gains, apart=0.01):
    cell, federated = "matched/cifar10/lenet/5-clients", f"{HEAD}/5-clients/sample"
    stopped = of_seeds(cell, "loss-threshold", "auc", [0.6 + gain for gain in gains])
    fits = of_seeds(cell, None, "train-accuracy", [0.8 + apart] * len(gains))
    fits += of_seeds(federated, None, "train-accuracy", [0.8] * len(gains))
    return stopped + fits + of_seeds(federated, "loss-threshold", "auc", [0.6] * len(gains))


def verdict_on(findings, claim):
    """The one verdict whose claim begins and ends so."""
    (found,) = [one for one in MIABadStudy().conclude(findings) if one.claim == claim]
    return found


@pytest.mark.parametrize(("made_up", "claim"), [
    (batch_gains, "Batch-wise is better (judging single records: balanced accuracy)"),
    (over_set_loss, "Batch-wise is better (judging batches: AUC above the mean loss's)"),
    (over_null, "Batch-wise is better (judging batches: AUC above the null curve)"),
    (mitigations, "Federation mitigates (5 clients)"),
    (mitigations_of_loss, "Federation mitigates, whatever the threshold (5 clients)"),
    (matched_mitigations, "Federation mitigates at matched train accuracy (5 clients)"),
])  # fmt: skip
@pytest.mark.parametrize(("gains", "verdict"), [
    ([0.05, 0.06, 0.055], "holds"),
    ([-0.05, -0.06, -0.055], "refuted: it is the other way round"),
    ([0.001, -0.001, 0.0], "refuted: no difference"),
    ([0.1, -0.1, 0.05], "not shown"),
    ([0.05], "open"),
    ([], "open"),
])  # fmt: skip
def test_a_claim_of_mia_bad_is_judged_by_the_interval_of_the_gain(made_up, claim, gains, verdict):
    found = verdict_on(made_up(gains), claim)
    assert found.verdict == verdict
    if verdict == "open":
        assert f"{len(gains)} comparisons could be made" in found.reason
    else:
        assert f"{sum(gains) / len(gains):+.4f}" in found.reason
        assert "n = 3" in found.reason


def test_a_central_model_that_fits_otherwise_is_no_match():
    claim = "Federation mitigates at matched train accuracy (5 clients)"
    assert verdict_on(matched_mitigations([0.05, 0.06, 0.055], apart=0.1), claim).verdict == "open"


@pytest.mark.parametrize("rival", ["set-loss(batch_size=32)", NULL_CURVE])
def test_attacks_at_the_end_of_the_scale_are_not_compared(rival):
    cell, metric = f"{HEAD}/central/32", "null-auc" if rival == NULL_CURVE else "auc"
    findings = of_seeds(cell, batch_batch(32), "auc", [1.0, 0.999]) + of_seeds(
        cell, rival, metric, [1.0, 1.0]
    )
    named = "the null curve" if rival == NULL_CURVE else "the mean loss's"
    assert (
        verdict_on(findings, f"Batch-wise is better (judging batches: AUC above {named})").verdict == "open"
    )


def test_ways_of_training_with_the_same_records_count_once():
    findings = batch_gains([0.04, 0.05]) + batch_gains([0.08, 0.09], mode="2-clients")
    found = verdict_on(findings, "Batch-wise is better (judging single records: balanced accuracy)")
    assert "n = 2" in found.reason
    assert "+0.0650" in found.reason


def by_size(slopes, sizes=(8, 16, 32, 64)):
    """Findings in which an attack on batches changes by a slope with each doubling of their size."""
    return [
        row
        for doublings, size in enumerate(sizes)
        for row in of_seeds(
            f"{HEAD}/central/{size}", batch_batch(size), "auc", [0.6 + doublings * slope for slope in slopes]
        )
    ]


@pytest.mark.parametrize(("slopes", "verdict"), [
    ([0.0011, -0.001, 0.0005], "holds"),
    ([0.02, 0.03, 0.025], "refuted"),
    ([-0.02, -0.03, -0.025], "refuted"),
    ([0.02, -0.03, 0.0], "not shown"),
    ([0.02], "open"),
])  # fmt: skip
def test_independence_of_the_batch_size_is_judged_by_the_slope(slopes, verdict):
    found = verdict_on(by_size(slopes), "The gain does not depend on the batch size (judging batches: AUC)")
    assert found.verdict == verdict
    if verdict != "open":
        assert f"change with each doubling: {sum(slopes) / len(slopes):+.4f}" in found.reason


def test_two_batch_sizes_are_too_few_for_a_slope():
    findings = by_size([0.02, 0.03, 0.025], sizes=(8, 16))
    found = verdict_on(findings, "The gain does not depend on the batch size (judging batches: AUC)")
    assert found.verdict == "open"


def made_up_rows(scale):
    """Findings for every cell of a scale, all metrics that its tables show, with two seeds."""
    for cell in MIABadStudy().cells(scale):
        kind, data, *_, column = cell.name.split("/")
        attacks = {SAMPLE, "loss-threshold", "gap", "shokri", "lira", "rmia"}
        if column.isdigit():
            rivals = {f"{name}(batch_size={column})" for name in ("set-loss", "set-vote", "set-llr")}
            attacks = {batch_sample(int(column)), batch_batch(int(column)), *rivals}
            yield from of_seeds(cell.name, NULL_CURVE, "null-auc", [0.7, 0.8])
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
    assert series["2-clients, measured"].values[place] == pytest.approx(0.0)
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

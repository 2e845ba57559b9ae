"""The study `batch-robustness`: its schedules, images and cells, and its verdicts on made-up findings."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from glasshouse.findings import Finding
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import read_vector
from glasshouse.progress import Progress
from glasshouse.studies.batch_robustness import cells
from glasshouse.studies.batch_robustness.cells import TIME, attack_name, central_cell, training_time
from glasshouse.studies.batch_robustness.claims import verdicts
from glasshouse.studies.batch_robustness.figures import charts
from glasshouse.studies.batch_robustness.grid import DIGITS, BatchRobustnessStudy
from glasshouse.studies.batch_robustness.layout import tables
from glasshouse.studies.batch_robustness.measured import (
    TOP,
    WEAK_PGD,
    CentralAddress,
    FederatedAddress,
    Line,
    Models,
    Points,
)
from glasshouse.studies.batch_robustness.printed import BENCHMARK, EPS, FIXED, SCALED
from glasshouse.studies.batch_robustness.training import (
    first_model,
    materials,
    train_central,
    train_federated,
)
from glasshouse.studies.study import Workplace

BATCHES = (32, 64, 128, 256)
TINY = dataclasses.replace(
    DIGITS, model="lenet", train=64, epochs=2, test=100, attacked=20, curved=32, probed=5
)


@pytest.fixture
def place(tmp_path):
    with Engine(1) as engine, Progress(quiet=True) as progress:
        yield Workplace(engine, 0, tmp_path / "own", tmp_path / "shared", progress)


def test_schedules_are_the_papers():
    assert FIXED.lr(32) == FIXED.lr(1024) == 0.01
    assert [SCALED.lr(batch) for batch in (32, 64, 1024)] == pytest.approx([0.005, 0.01, 0.16])
    recipe = BENCHMARK.recipe(64, 100, "float32")
    assert (recipe.lr, recipe.momentum, recipe.schedule) == (0.01, 0.9, "halving")
    assert [EPS[channels][-1] for channels in (1, 3)] == [0.3, 0.02]


def test_every_figure_of_the_paper_has_its_cells_at_paper_scale():
    names = {cell.name for cell in BatchRobustnessStudy().cells("paper")}
    for data, models in (("mnist", ("m1", "stdcnn")), ("cifar10", ("c1", "resnet18"))):
        for model, schedule, batch in itertools.product(
            models,
            ("lr", "lr-m0.2", "lr-m0.5", "lr-m0.9", "lr-bs", "lr-bs-m0.9", "benchmark"),
            (16, 8192),
        ):
            assert f"grid/{data}/{model}/{schedule}/{batch}" in names
    for model, schedule in itertools.product(("m1", "stdcnn"), ("lr", "lr-bs", "benchmark")):
        assert f"grid/fashion-mnist/{model}/{schedule}/64" in names


def test_the_names_of_cells_are_read_by_the_objects_that_write_them():
    for cell in BatchRobustnessStudy().cells("paper"):
        central, federated = CentralAddress.parse(cell.name), FederatedAddress.parse(cell.name)
        assert (central is None) != (federated is None)
        assert str(central or federated) == cell.name


def test_the_images_of_the_hessian_are_the_same_for_all_seeds_and_no_test_image_is_trained_on():
    first, second = (materials(TINY, seed) for seed in (0, 1))
    assert torch.equal(first.curved.x, second.curved.x)
    assert torch.equal(first.test.x, second.test.x)
    assert not torch.equal(first.train.x, second.train.x)
    for own in (first, second):
        assert len(own.train) == TINY.train
        rows = {image.numpy().tobytes() for image in own.train.x}
        assert {image.numpy().tobytes() for image in own.curved.x} <= rows
        assert not rows & {image.numpy().tobytes() for image in own.test.x}


def test_models_that_share_a_seed_start_from_the_same_weights():
    images = materials(TINY, 0).train
    same, again, other = (read_vector(first_model(DIGITS, images, seed)) for seed in (0, 0, 1))
    assert torch.equal(same, again)
    assert not torch.equal(same, other)


def test_one_client_with_all_data_in_one_batch_trains_like_the_central_model():
    central = train_central(TINY, FIXED, TINY.train, 0).model
    with Engine(1) as engine:
        federated = train_federated(TINY, FIXED, "iid", 1, TINY.train, engine, 0).model
    assert torch.allclose(read_vector(central), read_vector(federated), atol=1e-6)


def test_clients_with_one_step_a_round_train_like_the_effective_batch():
    central = train_central(TINY, SCALED, 64, 0).model
    with Engine(1) as engine:
        federated = train_federated(TINY, SCALED, "iid", 4, 16, engine, 0).model
    assert torch.allclose(read_vector(central), read_vector(federated), atol=1e-5)


def test_a_cell_measures_accuracy_robustness_and_curvature(place):
    grid = {cell.name: cell for cell in BatchRobustnessStudy().cells("smoke")}
    found = grid["grid/digits/stdcnn/lr-m0.9/256"].run(place)
    named = {(row.attack, row.metric): row for row in found}
    assert all(row.n for row in found)
    clean = named[None, "test-accuracy"].value
    for attack in ("fgsm", "pgd"):
        weak, strong = (named[attack_name(attack, eps), "robust-accuracy"] for eps in EPS[1])
        assert strong.value <= weak.value
        assert weak.chance is not None
        assert weak.assumes == ("the 200 records in question, with their labels",)
    assert 0 <= clean <= 1
    assert named[None, "eigenvalue-residual"].value <= 3e-3
    assert named[None, "hessian-products"].value >= 1
    assert named[None, "top-eigenvalue"].low < named[None, "top-eigenvalue"].value


def test_schedules_that_come_to_the_same_training_share_one_model(place, monkeypatch):
    trained = []

    def counted(learner, schedule, *rest):
        trained.append(schedule.name)
        return train_central(learner, schedule, *rest)

    monkeypatch.setattr(cells, "train_central", counted)
    found = [central_cell(TINY, schedule, 64, place) for schedule in (FIXED, SCALED, BENCHMARK)]
    assert trained == ["lr", "benchmark"]
    assert found[0] == found[1] != found[2]


def test_what_was_done_beyond_a_schedule_is_a_note_and_no_grant(place):
    coarse = dataclasses.replace(TINY, precision="bfloat16")
    for row in central_cell(coarse, FIXED, 64, place):
        assert row.note == "trained with bfloat16 passes"
        assert "bfloat16" not in " ".join(row.assumes)


def test_a_training_that_diverges_says_so(place, monkeypatch):
    def broken(*given):
        case = train_central(*given)
        with torch.no_grad():
            next(case.model.parameters()).fill_(np.nan)
        return case

    monkeypatch.setattr(cells, "train_central", broken)
    row, *_ = central_cell(TINY, FIXED, 16, place)
    assert row.value is None
    assert "diverged" in row.reason
    assert row.assumes == ()


def test_flat_lines_are_called_flat_and_steep_ones_are_not():
    flat = _verdicts({"lr": (-0.05, 0.5), "lr-bs": (0.0, 0.0)})
    assert [flat[number].verdict for number in ("1", "2", "4", "5", "6")] == ["holds"] * 5
    steep = _verdicts({"lr": (0.0, 0.0), "lr-bs": (-0.05, 0.5)})
    assert [steep[number].verdict for number in ("1", "2", "4", "5", "6")] == ["refuted"] * 5


def test_the_counterexample_needs_robustness_and_curvature_to_rise_together():
    both = _verdicts({"lr": (0.04, 0.5)})["3"]
    assert both.verdict == "holds"
    assert {cell.split("/")[2] for cell in both.cells} == {"stdcnn"}
    assert _verdicts({"lr": (-0.04, 0.5)})["3"].verdict == "mixed"
    assert _verdicts({"lr": (-0.04, -0.5)})["3"].verdict == "refuted"


def test_claims_are_asked_of_the_data_sets_that_the_paper_makes_them_about():
    momenta = {"lr": (0.0, 0.0), "lr-m0.2": (0.0, 0.0), "lr-m0.5": (0.0, 0.0), "lr-m0.9": (0.0, 0.0)}
    found = _verdicts({**momenta, "lr-bs": (0.0, 0.0), "lr-bs-m0.9": (0.0, 0.0)})
    for number in ("1", "2", "7", "8", "9", "10"):
        assert {cell.split("/")[1] for cell in found[number].cells} == {"mnist"}
    assert {cell.split("/")[1] for cell in found["3"].cells} == {"fashion-mnist"}
    assert {cell.split("/")[1] for cell in found["4"].cells} == {"mnist", "fashion-mnist"}


def test_a_line_on_which_models_learned_nothing_is_open_and_says_so():
    rows = _findings({"lr": (0.0, 0.5), "lr-bs": (0.0, 0.0)}, data=("mnist",), models=("m1",))
    dead = [
        dataclasses.replace(row, low=0.09, chance=0.1)
        if row.cell == "grid/mnist/m1/lr-bs/256" and row.metric == "test-accuracy" and row.seed in seeds
        else row
        for seeds in [(0, 2)]
        for row in rows
    ]
    found = _by_number(verdicts(Models(dead)))
    for number in ("4", "5", "6"):
        assert found[number].verdict == "open"
        assert "2 of 3 models with LR/BS and batch 256 learned nothing" in found[number].reason
    assert found["2"].verdict == "holds"


def test_momentum_is_judged_in_pairs_and_by_its_order():
    momenta = {"lr": 0.0, "lr-m0.2": 0.3, "lr-m0.5": 1.0, "lr-m0.9": 3.3}
    gains = {name: (0.05 * more, -0.5 * more) for name, more in momenta.items()}
    found = _verdicts(dict.fromkeys(momenta, (0.0, 0.0)), gains=gains)
    assert [found[number].verdict for number in ("7", "8", "9", "10")] == ["holds", "holds", "holds", "open"]
    assert all("batch 32" in part.what or "batch " in part.what for part in found["8"].parts)
    scaled = {"lr-bs": (0.0, 0.0), "lr-bs-m0.9": (0.0, 0.0)}
    assert _verdicts(scaled, gains={"lr-bs-m0.9": (0.005, 0.0)})["10"].verdict == "holds"
    assert _verdicts(scaled, gains={"lr-bs-m0.9": (0.1, 0.0)})["10"].verdict == "refuted"


def test_lines_shorter_than_the_papers_leave_its_claims_open():
    found = _verdicts({"lr": (-0.05, 0.5), "lr-bs": (0.0, 0.0)}, images=2048)
    for number in ("1", "2", "3", "4", "5", "6"):
        assert found[number].verdict == "open"
        assert "not trained far enough" in found[number].reason


def test_federations_are_compared_with_the_central_model_of_their_effective_batch():
    rows = _findings({"lr": (-0.04, 0.5)}, data=("fashion-mnist",), models=("stdcnn",))
    central = 0.5 - 0.04 * BATCHES.index(128)
    for seed, (division, worse) in itertools.product((0, 1, 2), (("iid", 0.0), ("shards", 0.2))):
        cell = f"federated/fashion-mnist/stdcnn/lr/{division}/4x32"
        rows += _model(cell, "fashion-mnist", "stdcnn", seed, central - worse + 0.001 * seed, 16.0)
    found = _by_number(verdicts(Models(rows)))
    assert found["A"].verdict == "holds"
    assert found["B"].verdict == "mixed"  # accuracies fall, the eigenvalue stays
    assert {part.verdict for part in found["B"].parts} == {"holds", "refuted"}


def test_lines_know_slopes_and_correlations_and_the_page_draws_them():
    measured = Models(_findings({"lr": (-0.04, 0.5), "lr-bs": (0.0, 0.0), "benchmark": (0.01, 0.1)}))
    line = Line("grid", "mnist", "m1", "lr")
    assert measured.batches(line) == list(BATCHES)
    assert [slope.value for slope in measured.slopes(line, TOP)] == pytest.approx([0.5] * 3)
    assert [slope.value for slope in measured.slopes(line, WEAK_PGD)] == pytest.approx([-0.04] * 3)
    assert measured.correlation(line, TOP, WEAK_PGD).value < -0.85
    drawn = charts(measured)
    assert {"Figure 1", "Figure 2", "Figure 3", "Figure 4", "Figure 9"} <= {
        chart.title.partition(":")[0] for chart in drawn
    }
    assert len({chart.name for chart in drawn}) == len(drawn)
    assert all(len(row) == len(table.columns) for table in tables(measured) for row in table.rows)


def test_models_that_learned_nothing_are_named_and_left_out():
    rows = _findings({"lr": (-0.04, 0.5)}, data=("mnist",), models=("m1",))
    cell = "grid/mnist/m1/lr/256"
    dead = dataclasses.replace(
        next(row for row in rows if row.cell == cell and row.metric == "test-accuracy"), low=0.09, chance=0.1
    )
    rows = [dead if (row.cell, row.metric, row.seed) == (cell, "test-accuracy", 0) else row for row in rows]
    measured = Models(rows)
    assert measured.collapsed == [(cell, 0)]
    assert sorted(measured.at(CentralAddress.parse(cell), TOP)) == [1, 2]
    shown = {table.name: table for table in tables(measured)}["collapsed"]
    assert shown.rows == (("grid/mnist/m1/lr", 1),)
    assert "n = 12 models" in shown.note


def test_nothing_is_compared_where_an_attack_leaves_nothing():
    rows = [
        dataclasses.replace(row, value=0.01) if row.attack == attack_name("pgd", 0.3) else row
        for row in _findings({"lr-bs": (0.0, 0.0)})
    ]
    found = _by_number(verdicts(Models(rows)))["5"]
    assert found.verdict == "holds"
    spent = [part for part in found.parts if part.verdict == "open"]
    assert {part.what for part in spent} == {"change of PGD accuracy with each doubling of the batch"}
    assert all("nothing to compare" in part.measured for part in spent)


def test_what_goes_with_time_is_told_from_what_goes_with_the_batch():
    rng = np.random.default_rng(0)
    time, batch = rng.uniform(0, 6, 60), rng.integers(5, 11, 60).astype(float)
    hill = -((time - 3) ** 2)  # rises and falls, as curvature does
    points = Points(time, batch, hill + 0.2 * batch)
    assert points.of_time() > 0.9 > points.of_batch()
    assert points.gain_of_time() == pytest.approx(points.of_time() - points.of_batch())


def test_training_time_is_the_sum_of_the_rates_over_what_momentum_forgets():
    assert training_time(FIXED.recipe(32, 2, "float32"), 64) == pytest.approx(4 * 0.01)
    assert training_time(SCALED.recipe(64, 1, "float32"), 640) == pytest.approx(10 * 0.01)
    halved = training_time(BENCHMARK.recipe(64, 10, "float32"), 64)
    assert halved == pytest.approx((5 * 0.01 + 5 * 0.005) / 0.1)


def _verdicts(trends, gains=None, images=55_000):
    return _by_number(verdicts(Models(_findings(trends, gains or {}, images=images))))


def _by_number(found):
    return {verdict.claim.partition(".")[0]: verdict for verdict in found}


def _findings(trends, gains=None, data=("mnist", "fashion-mnist"), models=("m1", "stdcnn"), *, images=55_000):
    """Lines that change by so much with each doubling: accuracies, and eigenvalues in doublings."""
    made = []
    for (setting, (fall, rise)), name, model, seed in itertools.product(
        trends.items(), data, models, (0, 1, 2)
    ):
        higher, wider = (gains or {}).get(setting, (0.0, 0.0))
        for place, batch in enumerate(BATCHES):
            accuracy = 0.5 + higher + fall * place + 0.001 * seed
            eigenvalue = 2.0 ** (3 + wider + rise * place + 0.01 * seed)
            cell = f"grid/{name}/{model}/{setting}/{batch}"
            steps = 100 * -(-images // batch)
            made += _model(cell, name, model, seed, accuracy, eigenvalue, images, steps)
    return made


def _model(cell, data, model, seed, accuracy, eigenvalue, images=55_000, steps=0):
    def around(value):
        return {"value": value, "low": value * 0.998, "high": value * 1.002}

    common = {
        "source": "batch-robustness",
        "cell": cell,
        "data": data,
        "model": model,
        "seed": seed,
        "n": 100,
    }
    rows = [
        Finding(**common, **around(accuracy), family="utility", metric="test-accuracy"),
        Finding(**common | {"n": images}, family="utility", metric="train-accuracy", value=accuracy),
        Finding(**common | {"n": steps}, family="utility", metric=TIME, value=1.0),
        Finding(**common, **around(eigenvalue), family="curvature", metric="top-eigenvalue"),
        Finding(**common, family="curvature", metric="input-eigenvalue", value=eigenvalue),
    ]
    for attack, eps in itertools.product(("fgsm", "pgd"), EPS[1]):
        rows.append(
            Finding(
                **common,
                family="evasion",
                adversary="owner",
                attack=attack_name(attack, eps),
                metric="robust-accuracy",
                **around(accuracy),
            )
        )
    return rows

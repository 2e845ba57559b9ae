"""The study `fed-fsnet`: its grid, its images, its cells, and its verdicts on made-up findings."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from glasshouse.attacks import ATTACKS
from glasshouse.errors import BadInput
from glasshouse.federation.federation import Diverged
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import read_vector
from glasshouse.progress import Progress
from glasshouse.studies.fed_fsnet import training
from glasshouse.studies.fed_fsnet.cells import ATTACKED, candidates, leak_cell, table_cell
from glasshouse.studies.fed_fsnet.grid import (
    ABLATIONS,
    ALL,
    BENCHMARKS,
    FEDAVG,
    FSNET,
    PAPERS,
    SMOKE,
    UPPER,
    FedFSNetStudy,
)
from glasshouse.studies.fed_fsnet.measured import (
    TARGETS,
    FederationAddress,
)
from glasshouse.studies.fed_fsnet.printed import OTHERS, RIVALS, TABLE_1, TABLE_2, WORDS, printed
from glasshouse.studies.fed_fsnet.training import Method, divided, first_model, train, undivided
from glasshouse.studies.study import SCALES, Workplace

TINY = replace(
    SMOKE,
    rounds=4,
    methods=(FEDAVG, FSNET),
    ablations=(),
    behind=(),
    epochs=1,
    options=(),
    nonmembers=30,
    test=60,
    local_test=20,
    moved=10,
)


@pytest.fixture
def place(tmp_path):
    with Engine(1) as engine, Progress(quiet=True) as progress:
        yield Workplace(engine, 0, tmp_path / "own", tmp_path / "shared", progress)


def test_both_tables_of_the_paper_have_their_cells_at_paper_scale():
    names = {cell.name for cell in FedFSNetStudy().cells("paper")}
    models = {"mnist": "lenet", "fashion-mnist": "lenet", "cifar10": "gn-cnn"}
    for (row, fraction), (data, model) in itertools.product({**TABLE_1, **TABLE_2}, models.items()):
        assert f"table/{data}/{model}/f-{fraction}/{row}" in names
    recipe = BENCHMARKS["paper"][0].recipe
    assert (recipe.epochs, recipe.batch_size, recipe.lr, recipe.momentum) == (10, 60, 0.01, 0)


def test_afl_has_no_cell_where_all_clients_take_part():
    names = [cell.name for cell in FedFSNetStudy().cells("paper")]
    assert any("f-0.1/afl" in name for name in names)
    assert not any("f-1.0/afl" in name for name in names)


@pytest.mark.parametrize("scale", SCALES)
def test_every_strategy_and_attack_of_the_grid_exists(scale):
    cells = FedFSNetStudy().cells(scale)
    assert len({cell.name for cell in cells}) == len(cells)
    assert all(cell.single for cell in cells)
    for benchmark in BENCHMARKS[scale]:
        for method in (*benchmark.methods, *benchmark.ablations, *benchmark.behind):
            STRATEGIES.make(benchmark.strategy(method))
    for spec in ATTACKED:
        ATTACKS.make(spec)


def test_every_method_has_its_words_and_its_place():
    assert [method.name for method in (*ALL, *ABLATIONS, *SMOKE.behind)] == list(WORDS)
    assert [method.name for method in PAPERS] == ["upper-bound", *RIVALS, "fed-fsnet"]
    assert {method.name for method in ALL} == {*(method.name for method in PAPERS), *OTHERS}


def test_the_names_of_cells_are_read_by_the_object_that_writes_them():
    for cell in FedFSNetStudy().cells("paper"):
        assert str(FederationAddress.parse(cell.name)) == cell.name


def test_a_methods_options_override_those_of_its_scale():
    benchmark = replace(SMOKE, options=(("feddf", (("steps", 400), ("patience", 100))),))
    short = Method("short", "feddf", (("steps", 7),))
    assert benchmark.strategy(short) == "feddf(steps=7, patience=100)"
    assert benchmark.strategy(FEDAVG) == "fedavg"


def test_printed_numbers_are_those_of_the_text():
    """Section 4.4.1 says 88.2% / 85.3%, 61.7% / 60.4% and 66.4% / 64.1% for f = 1.0."""
    assert printed("mnist", "fed-fsnet", 1.0) == pytest.approx((0.882, 0.853))
    assert printed("cifar10", "fed-fsnet", 1.0) == pytest.approx((0.617, 0.604))
    assert printed("fashion-mnist", "fed-fsnet", 1.0) == pytest.approx((0.664, 0.641))
    assert printed("digits", "fed-fsnet", 0.1) == printed("mnist", "scaffold", 0.1) == (None, None)


def test_clients_hold_everything_but_what_is_held_out_and_all_methods_hold_the_same():
    shards, iid = (divided(TINY, method, 0) for method in (FEDAVG, UPPER))
    assert np.array_equal(shards.members, iid.members)
    whole = undivided(TINY, 0)
    everything = np.concatenate([whole.members, whole.nonmembers, whole.auxiliary, whole.test])
    assert np.array_equal(np.sort(everything), np.arange(len(whole.pool)))
    assert all(np.array_equal(a, b) for a, b in zip(shards.clients, divided(TINY, FSNET, 0).clients))
    classes = [len(np.unique(shards.pool.y[client])) for client in shards.clients]
    assert max(classes) <= 4  # a shard may end in the next class
    assert min(len(np.unique(iid.pool.y[client])) for client in iid.clients) > 5


def test_another_seed_has_another_division_and_other_first_weights():
    first, other = (divided(TINY, FEDAVG, seed) for seed in (0, 1))
    assert not np.array_equal(first.test, other.test)
    same, again, new = (read_vector(first_model(TINY, first.pool, seed)) for seed in (0, 0, 1))
    assert torch.equal(same, again)
    assert not torch.equal(same, new)


def test_a_cell_measures_accuracy_bytes_and_time_and_shows_its_curve(place):
    result = table_cell(TINY, FEDAVG, True, place)
    found = {row.metric: row for row in result.findings}
    points = result.exhibits.training
    assert [point.round for point in points] == [1, 2, 3, 4]
    curve = [point.acc_global for point in points]
    assert found["test-accuracy"].value == curve[-1]
    assert found["local-accuracy"].value == points[-1].acc_local
    assert found["late-accuracy"].value == found["mean-accuracy"].value == pytest.approx(np.mean(curve))
    assert found["late-accuracy"].n == found["mean-accuracy"].n == 60
    assert found["rounds"].value == 4
    assert found["wobble"].value == pytest.approx(np.std(curve[-2:], ddof=1))
    assert found["wobble"].low <= found["wobble"].value <= found["wobble"].high
    assert found["jump"].value == pytest.approx(abs(curve[-1] - curve[-2]))
    model = first_model(TINY, undivided(TINY, 0).pool, 0)
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert found["bytes-down"].value == found["bytes-up"].value == size
    assert {(point.down, point.up) for point in points} == {(size, size)}
    assert found["seconds-per-round"].value > 0
    smooth = [np.mean(curve[: number + 1]) for number in range(4)]  # four rounds are fewer than five
    for target in TARGETS:
        reached = [number for number, value in enumerate(smooth, start=1) if value >= target]
        row = found.get(f"rounds-to-{target:.2f}")
        assert (row.value if row else None) == (reached[0] if reached else None)
    assert found["test-accuracy"].n == 60
    assert found["local-accuracy"].n == 20
    assert not any(row.metric.startswith("acc-global") or row.assumes for row in result.findings)
    assert "20 clients (shards), 0.25 of them a round" in found["test-accuracy"].note


def test_methods_share_participants_and_the_mimic_samples_travel_beside_the_model(place):
    plain, mimic = (train(TINY, method, place, watched=True) for method in (FEDAVG, FSNET))
    assert [row.clients for row in plain.history.rounds] == [row.clients for row in mimic.history.rounds]
    assert mimic.history.rounds[-1].down > plain.history.rounds[-1].down


def test_what_was_trained_is_not_trained_again(place, monkeypatch):
    first = train(TINY, FEDAVG, place, watched=True)
    monkeypatch.setattr(training.Federation, "exchange", lambda *_, **__: pytest.fail("a round was run"))
    again = train(TINY, FEDAVG, place, watched=True)
    assert torch.equal(first.history.vector, again.history.vector)
    assert first.seconds == again.seconds


def test_a_training_that_diverges_is_a_finding_and_other_faults_are_errors(place, monkeypatch):
    def broken(error):
        def run(*_, **__):
            raise error

        monkeypatch.setattr(training.Federation, "run", run)

    broken(Diverged("round 3 made the weights NaN or infinite; lower lr"))
    for (row,) in (table_cell(TINY, FEDAVG, True, place).findings, leak_cell(TINY, FEDAVG, place)):
        assert row.value is None
        assert "diverged: round 3" in row.reason
    broken(BadInput("the disk is full"))
    with pytest.raises(BadInput, match="disk"):
        table_cell(TINY, FEDAVG, True, place)


def test_attacks_meet_each_strategy_with_what_it_gives_them(place):
    plain, mimic = (
        {(row.attack, row.adversary, row.metric): row for row in leak_cell(TINY, method, place)}
        for method in (FEDAVG, FSNET)
    )
    for found in (plain, mimic):
        assert found["loss-threshold", "outsider", "auc"].n == 60
        assert found["label-counts", "curious server", "label-overlap"].value is not None
        assert found["label-counts", "blind server", "label-overlap"].value is not None
        assert found["pgd(eps=0.1, steps=20)", "owner", "robust-accuracy"].n == 10
    assert mimic["reported-labels", "curious server", "label-overlap"].value is not None
    assert mimic["mimic-neighbours", "client", "nearest-member-share"].chance == 0.5
    for attack, adversary in (("reported-labels", "curious server"), ("mimic-distance", "client")):
        assert plain[attack, adversary, "not-applicable"].reason


def test_members_come_from_clients_that_took_part_and_others_are_as_many_of_each_class(place):
    trained = train(TINY, FEDAVG, place, watched=True)
    positions, holder = candidates(trained, 0)
    took_part = {client for row in trained.history.rounds for client in row.clients}
    assert set(holder[holder >= 0]) <= took_part
    y = trained.split.pool.y.numpy()[positions]
    assert np.array_equal(np.bincount(y[holder >= 0], minlength=10), np.bincount(y[holder < 0], minlength=10))
    assert all(position in trained.split.clients[k] for position, k in zip(positions, holder) if k >= 0)
    assert set(positions[holder < 0]) <= set(trained.split.nonmembers)

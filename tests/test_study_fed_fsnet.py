"""The study `fed-fsnet`: its grid, its images, its cells, and its verdicts on made-up findings."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from glasshouse.attacks import ATTACKS
from glasshouse.errors import BadInput
from glasshouse.exhibits import TrainingPoint
from glasshouse.federation.federation import Diverged
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.findings import Finding
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import read_vector
from glasshouse.progress import Progress
from glasshouse.studies.fed_fsnet import training
from glasshouse.studies.fed_fsnet.cells import ATTACKED, candidates, leak_cell, table_cell
from glasshouse.studies.fed_fsnet.claims import verdicts
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
from glasshouse.studies.fed_fsnet.layout import charts, tables
from glasshouse.studies.fed_fsnet.measured import (
    GLOBAL,
    MEMBERSHIP,
    ROBUST,
    SUMMED,
    FederationAddress,
    Federations,
)
from glasshouse.studies.fed_fsnet.printed import OTHERS, RIVALS, TABLE_1, TABLE_2, WORDS, printed
from glasshouse.studies.fed_fsnet.training import Method, divided, first_model, train, undivided
from glasshouse.studies.study import SCALES, Workplace

TINY = replace(
    SMOKE,
    rounds=4,
    methods=(FEDAVG, FSNET),
    ablations=(),
    epochs=1,
    options=(),
    nonmembers=30,
    test=60,
    local_test=20,
    attacked=10,
)


@pytest.fixture
def place(tmp_path):
    with Engine(1) as engine, Progress(quiet=True) as progress:
        yield Workplace(engine, 0, tmp_path / "own", tmp_path / "shared", progress)


def test_both_tables_of_the_paper_have_their_cells_at_paper_scale():
    names = {cell.name for cell in FedFSNetStudy().cells("paper")}
    models = {"mnist": "lenet", "fashion-mnist": "lenet", "cifar10": "stdcnn"}
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
        for method in (*benchmark.methods, *benchmark.ablations):
            STRATEGIES.make(benchmark.strategy(method))
    for spec in ATTACKED:
        ATTACKS.make(spec)


def test_every_method_has_its_words_and_its_place():
    assert [method.name for method in (*ALL, *ABLATIONS)] == list(WORDS)
    assert [method.name for method in PAPERS] == ["upper-bound", *RIVALS, "fed-fsnet"]
    assert {"upper-bound", *RIVALS, "fed-fsnet", *OTHERS} == set(WORDS)


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
    assert found["wobble"].value == pytest.approx(np.std(curve[-2:], ddof=1))
    assert found["jump"].value == pytest.approx(abs(curve[-1] - curve[-2]))
    model = first_model(TINY, undivided(TINY, 0).pool, 0)
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert found["bytes-down"].value == found["bytes-up"].value == size
    assert {(point.down, point.up) for point in points} == {(size, size)}
    assert found["seconds-per-round"].value > 0
    assert found["test-accuracy"].n == 60
    assert found["local-accuracy"].n == 5
    assert found["mean-accuracy"].n == 4
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


def test_a_gain_at_every_seed_and_setting_holds_and_a_loss_is_refuted():
    better = _verdicts({"fed-fsnet": 0.05})
    assert better["1. Fed-FSNet has a higher Acc_global than FedAvg (f = 0.1, 3 settings)"].verdict == "holds"
    assert (
        better["1. Fed-FSNet has a higher Acc_local than FedAvg (mnist, mlp, f = 0.1, 10 rounds)"].verdict
        == "holds"
    )
    assert (
        better["2. Fed-FSNet has a higher Acc_global than the best rival (f = 0.1, 3 settings)"].verdict
        == "holds"
    )
    worse = _verdicts({"fed-fsnet": -0.05})
    lost = worse["1. Fed-FSNet has a higher Acc_global than FedAvg (f = 0.1, 3 settings)"]
    assert lost.verdict == "refuted: it is the other way round"
    assert "printed +0.343 to +0.444" in lost.reason
    margin = better["1. Its gain in Acc_global over FedAvg is above the printed one (f = 0.1, 3 settings)"]
    assert margin.verdict == "refuted: it is the other way round"


def test_fed_fsnet_is_compared_with_the_rival_that_is_best_where_it_is():
    found = _verdicts({"fed-fsnet": 0.05, "fedgen": 0.1})
    best = found["2. Fed-FSNet has a higher Acc_global than the best rival (f = 0.1, 3 settings)"]
    assert best.verdict == "refuted: it is the other way round"
    assert "Fed-FSNet minus FedGEN" in best.reason
    assert found["2. Fed-FSNet has a higher Acc_global than AFL (f = 0.1, 3 settings)"].verdict == "holds"
    rank = f"the next of {len(ALL) - 1} (mnist, mlp, f = 0.1, 10 rounds)"
    first = found[f"7. FedGEN, the best, has a higher Acc_global than Fed-FSNet, {rank}"]
    assert first.verdict == "holds"


def test_a_noisy_gain_is_not_shown():
    rows = _findings({"fed-fsnet": 0.01})
    noisy = [
        replace(row, value=row.value + 0.1 * (row.seed - 1)) if row.strategy == "fed-fsnet" else row
        for row in rows
    ]
    found = {own.claim: own for own in verdicts(Federations(noisy))}
    one = found["1. Fed-FSNet has a higher Acc_global than FedAvg (mnist, mlp, f = 0.1, 10 rounds)"]
    assert one.verdict == "not shown"


def test_mimic_samples_are_little_only_beside_a_large_model():
    small, large = (_verdicts({}, bytes_of_model=size) for size in (100_000, 10_000_000))
    claim = "5. The mimic samples add little to what a client receives (mnist, mlp, f = 0.1, 10 rounds)"
    assert small[claim].verdict == "refuted"
    assert large[claim].verdict == "holds"


def test_leaks_are_compared_with_fedavg_in_pairs_and_with_chance():
    found = _verdicts({}, leaks={"fedgen": 0.1, "fed-fsnet": 0.0})
    assert (
        found["8. FedGEN gives away more of its members than FedAvg (f = 0.1, 3 settings)"].verdict == "holds"
    )
    same = found["8. Fed-FSNet gives away more of its members than FedAvg (f = 0.1, 3 settings)"]
    assert same.verdict == "refuted: no difference"


def test_ablations_are_compared_with_fed_fsnet_and_with_fedavg():
    found = _verdicts({"fed-fsnet": 0.05, "target-class": -0.02})
    at = "(mnist, mlp, f = 0.1, 10 rounds)"
    head = f"6. {WORDS['target-class']}, has a higher Acc_global than"
    assert found[f"{head} Fed-FSNet {at}"].verdict == "refuted: it is the other way round"
    assert found[f"{head} FedAvg {at}"].verdict == "refuted: it is the other way round"


def test_models_no_better_than_their_most_frequent_class_are_named():
    rows = _findings({})
    rows[0] = replace(rows[0], low=0.09)
    first, *_ = verdicts(Federations(rows))
    assert first.verdict == "refuted"
    assert "1 of " in first.reason


def test_adversaries_of_one_attack_are_kept_apart_and_options_dropped():
    common = {"source": "", "cell": "leaks/mnist/mlp/f-0.1/fedavg", "family": "x", "seed": 0}
    rows = [
        Finding(**common, attack="label-counts", adversary=who, metric="label-overlap", value=value)
        for who, value in (("curious server", 0.9), ("blind server", 0.4))
    ]
    rows.append(
        Finding(**common, attack="pgd(eps=0.1)", adversary="owner", metric="robust-accuracy", value=0.2)
    )
    measured = Federations(rows)
    (pair,) = measured.pairs("leaks")
    assert measured.at(pair, SUMMED) == {0: 0.4}
    assert measured.at(pair, ROBUST) == {0: 0.2}


def test_tables_and_figures_are_made_of_what_is_there():
    findings = _findings({"fed-fsnet": 0.05}, leaks={"fed-fsnet": 0.0})
    cells = {(row.cell, row.seed) for row in findings if not row.attack}
    training = [
        TrainingPoint(cell=cell, seed=seed, round=number, acc_global=0.05 * number + 0.01 * seed)
        for cell, seed in sorted(cells)
        for number in range(1, 11)
    ]
    measured = Federations(findings, training)
    shown = {table.name: table for table in tables(measured)}
    assert set(shown) == {
        "table-1", "table-2", "strategies", "ablations", "training", "costs", "leaks", "choices"
    }  # fmt: skip
    assert all(len(row) == len(table.columns) for table in shown.values() for row in table.rows)
    assert ("Fed-FSNet", "mnist, mlp, f = 0.1, 10 rounds", "0.815") in [
        row[:3] for row in shown["table-1"].rows
    ]
    drawn = charts(measured)
    assert len({chart.name for chart in drawn}) == len(drawn)
    figure = next(chart for chart in drawn if chart.title.startswith("Figure 2"))
    assert [series.name for series in figure.series] == ["FedAvg, IID", "FedAvg", "Fed-FSNet"]
    assert figure.categories == tuple(map(str, range(1, 11)))
    assert figure.series[0].values[4] == pytest.approx(0.25 + 0.01)  # the mean of three seeds
    assert all(len(own.values) == len(chart.categories) for chart in drawn for own in chart.series)
    some = Federations(_findings({}, settings=("mnist",))[:20])
    assert tables(some)
    assert isinstance(verdicts(some), list)
    (scenario, *_) = measured.scenarios()
    assert measured.of((scenario, "fedavg"), GLOBAL).n == 3
    assert measured.over_chance([(scenario, "fed-fsnet")], MEMBERSHIP)


def _verdicts(gains, **given):
    return {own.claim: own for own in verdicts(Federations(_findings(gains, **given)))}


def _findings(gains, settings=("mnist", "fashion-mnist", "cifar10"), leaks=None, bytes_of_model=800_000):
    """Rows whose accuracies are so far above FedAvg's at every seed, give or take a little."""
    made = []
    for place, (data, seed) in enumerate(itertools.product(settings, (0, 1, 2))):
        for row in (*ALL, *ABLATIONS):
            kind = "ablation" if row in ABLATIONS else "table"
            common = {
                "source": "fed-fsnet",
                "cell": f"{kind}/{data}/mlp/f-0.1/{row.name}",
                "data": data,
                "model": "mlp",
                "strategy": row.name,
                "seed": seed,
                "family": "utility",
            }
            gain = (
                0.3 if row is UPPER else gains.get(row.name, 0.0) + 0.001 * (place % 2) * (row is not FEDAVG)
            )
            sent = 188_000 if row.strategy == "fed-fsnet" else 0
            numbers = {
                "test-accuracy": 0.5 + gain + 0.01 * seed,
                "late-accuracy": 0.5 + gain + 0.01 * seed,
                "local-accuracy": 0.4 + gain,
                "late-local-accuracy": 0.4 + gain,
                "mean-accuracy": 0.4 + gain,
                "wobble": 0.05,
                "jump": 0.05,
                "bytes-down": bytes_of_model + sent,
                "bytes-up": bytes_of_model,
                "seconds-per-round": 2.0,
            }
            made += [
                Finding(**common, metric=metric, value=own, chance=0.1, n=10)
                for metric, own in numbers.items()
            ]
            if leaks is not None and row in PAPERS:
                auc = 0.55 + leaks.get(row.name, 0.0) + 0.001 * seed
                common |= {"cell": f"leaks/{data}/mlp/f-0.1/{row.name}", "family": "membership"}
                made.append(
                    Finding(
                        **common,
                        attack="loss-threshold",
                        adversary="outsider",
                        metric="auc",
                        value=auc,
                        chance=0.5,
                    )
                )
    return made

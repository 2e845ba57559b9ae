import copy
import dataclasses
import itertools
import json
import shutil

import numpy as np
import pytest
import torch

from glasshouse.access import BlindServerAccess, UpdateAccess
from glasshouse.attacks.crafted.surrogate import Schooling
from glasshouse.auditing.examine import Examination
from glasshouse.auditing.gallery import contact_sheet
from glasshouse.data.sources import load
from glasshouse.errors import BadInput
from glasshouse.evidence.reconstruction import Rebuilt, Reconstructions
from glasshouse.evidence.truth import Question
from glasshouse.learning.engine import Engine
from glasshouse.measures.estimate import proportion
from glasshouse.measures.pictures import match
from glasshouse.progress import Progress
from glasshouse.studies.run import run_study
from glasshouse.studies.scale_mia import printed, scenarios
from glasshouse.studies.scale_mia.cells import (
    BINS,
    BOUND,
    CODED,
    DISTANCE,
    DRAWN,
    LATENTS,
    LAWS,
    PEELED,
    PUBLISHED,
    brightness,
    over_rounds,
    pooled,
)
from glasshouse.studies.scale_mia.grid import SCALES, ScaleMIAStudy
from glasshouse.studies.scale_mia.rivals import Rival
from glasshouse.studies.scale_mia.scenarios import RoundPlan, Scenario, Scenarios, cases, divided
from glasshouse.studies.study import Workplace

FLAT = Scenario("mlp", "digits", Schooling(steps=1, batch_size=8, lr=1e-3))
DEEP = Scenario("cnn", "digits", Schooling(steps=3, batch_size=8, lr=1e-3))


@pytest.fixture(scope="module")
def engine():
    with Engine(1) as running:
        yield running


def workplace(engine, folder, seed=0):
    return Workplace(engine, seed, folder / "cell", folder / "shared", Progress(quiet=True))


@pytest.fixture(scope="module")
def flat(engine, tmp_path_factory):
    return Scenarios().prepared(FLAT, workplace(engine, tmp_path_factory.mktemp("flat")))


def test_every_row_of_the_printed_tables_has_as_many_numbers_as_columns():
    for (network, _), row in printed.TABLE_4.items():
        columns = 5 if network in ("cnn", "vgg") else 4
        assert [len(part) for part in row] == [columns, columns]
    starved = printed.TABLES_5_TO_8.values()
    assert {tuple(map(len, row)) for row in starved} == {(len(printed.STARVED_BATCHES),) * 2}
    assert printed.AMOUNTS == {5: [0.01, 0.03, 0.1, 1.0], 7: [1, 2, 3, 10]}
    for attack in {attack for attack, _ in printed.TABLE_3}:
        (psnr,), (seconds,) = printed.TABLE_3[attack, "psnr"], printed.TABLE_3[attack, "seconds"]
        assert len(psnr) == len(seconds) <= len(printed.SMALL_BATCHES)


def test_a_printed_number_is_found_by_its_row_and_column():
    assert printed.table_4("cnn", "cifar10", 512) == {"recovery-rate": 0.7126, "psnr-of-recovered": 25.4831}
    assert printed.table_4("vit", "hmnist", 1024) == {}
    assert printed.table_3("resnet", "cifar10", "scale-mia", 64)["psnr-of-recovered"] == 27.9498
    assert printed.table_3("resnet", "cifar10", "fishing", 1)["psnr-of-returned"] == 19.1928
    assert printed.table_3("resnet", "cifar10", "gradinversion", 16)["psnr-of-returned"] == 11.1029
    assert printed.table_3("cnn", "cifar10", "idlg", 1) == printed.table_3("cnn", "cifar10", "dlg", 1) != {}
    assert printed.table_3("resnet", "cifar10", "dlg", 1) == {}
    assert printed.table_3("mlp", "digits", "scale-mia", 64) == {}
    assert printed.starved("alexnet", "cifar10", 5, 0.01, 256)["recovery-rate"] == 0.6873
    assert printed.starved("cnn", "cifar10", 5, 0.01, 256) == {}
    assert printed.starved("alexnet", "cifar10", 7, 1, 16)["psnr-of-recovered"] == 25.1320


@pytest.mark.parametrize("batch", [1, 2, 4, 8, 16, 64, 256, 512, 650, 800, 1024])
def test_the_clients_in_a_sum_hold_exactly_the_batch(batch):
    plan = RoundPlan(batch, batch, 1)
    assert batch % plan.clients == 0
    assert plan.present - plan.clients == (1 if batch >= 8 else 0)
    assert plan.channel.count("dropout") == (2 if batch >= 8 else 0)
    assert plan.channel.startswith("plain" if batch == 1 else "secure")


@pytest.mark.parametrize("changes", [{}, {"share": 0.1}, {"classes": 2}, {"share": 0.5, "classes": 1}])
def test_attacker_and_clients_share_no_image_and_keep_to_their_classes(changes):
    dataset = load("digits")
    scenario = dataclasses.replace(FLAT, **changes)
    auxiliary, victims = divided(dataset, scenario, seed=3)
    seen, held = ({tuple(image.flatten().tolist()) for image in part.x} for part in (auxiliary, victims))
    assert not seen & held
    allowed = set(range(10)) if scenario.classes is None else {5, 6}
    assert set(auxiliary.y.tolist()) | set(victims.y.tolist()) <= allowed
    whole, _ = divided(dataset, dataclasses.replace(scenario, share=1.0), seed=3)
    assert len(auxiliary) == pytest.approx(scenario.share * len(whole), abs=1)


def test_an_autoencoder_is_trained_once_and_comes_back_as_it_was(engine, tmp_path, monkeypatch):
    place = workplace(engine, tmp_path)
    made = Scenarios().prepared(DEEP, place)
    monkeypatch.setattr(scenarios, "make_surrogate", lambda *_, **__: pytest.fail("trained again"))
    kept = Scenarios().prepared(DEEP, place)
    assert torch.equal(kept.surrogate.vector, made.surrogate.vector)
    assert torch.equal(kept.surrogate.latents, made.surrogate.latents)
    latents = made.surrogate.latents[:5]
    assert torch.equal(kept.surrogate.decode(latents), made.surrogate.decode(latents))
    assert kept.surrogate.seconds == pytest.approx(made.surrogate.seconds, abs=1e-3)
    assert kept.neurons == 1024


def test_a_file_of_another_autoencoder_is_refused(engine, tmp_path):
    place = workplace(engine, tmp_path)
    Scenarios().prepared(DEEP, place)
    other = dataclasses.replace(DEEP, schooling=dataclasses.replace(DEEP.schooling, lr=0.5))
    with pytest.raises(BadInput, match="another kind; delete it"):
        Scenarios().prepared(other, place)


def test_each_round_has_clients_of_its_own_and_delivers_the_batch(flat, engine, tmp_path):
    rounds = cases(flat, RoundPlan(16, 48, 3), workplace(engine, tmp_path))
    seen = []
    for case in rounds:
        assert case.sizes == case.clients.sizes == (2,) * 9
        delivery = case.clients.exchange(case.clients.current, range(9), 0)
        assert delivery.samples == 16
        assert set(delivery.clients) < set(range(9))
        seen.append(delivery.mean)
    assert len(rounds) == 3
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(seen, 2))


def test_an_ideal_channel_delivers_the_sum_of_all_clients(flat, engine, tmp_path):
    (case,) = cases(flat, RoundPlan(16, 16, 1, ideal=True), workplace(engine, tmp_path))
    assert case.sizes == (2,) * 8
    delivery = case.clients.exchange(case.clients.current, range(8), 0)
    assert (delivery.samples, delivery.clients) == (16, tuple(range(8)))


def test_the_auditor_knows_what_the_clients_of_each_round_hold(flat, engine, tmp_path):
    rounds = cases(flat, RoundPlan(16, 32, 3), workplace(engine, tmp_path))
    held = [case.truth.held_by(range(9)).x for case in rounds]
    assert torch.equal(torch.cat(held), flat.victims.x[: 2 * 18])


def test_a_round_needs_enough_images(flat, engine, tmp_path):
    with pytest.raises(BadInput, match="too few"):
        cases(flat, RoundPlan(1024, 1024, 1), workplace(engine, tmp_path))


@pytest.mark.parametrize(("batch", "adversary"), [(1, "crafting server"), (2, "blind crafting server")])
def test_a_server_with_one_client_is_not_called_blind(batch, adversary):
    assert RoundPlan(batch, batch, 1).adversary.adversary == adversary


def examined(case, x):
    """A round in which an attack returned `x` for all clients but the first."""
    nobody = np.empty(0, dtype=np.int64)
    rng = torch.Generator()
    question = Question(case.truth, case.truth.pool[:0], nobody, nobody > 0, None, case.auxiliary, rng)
    evidence = Reconstructions((Rebuilt(x, tuple(range(1, 9))),), 0.0, 0.0)
    examination = Examination(case, CODED, BlindServerAccess, "reconstruction", evidence=evidence)
    return dataclasses.replace(examination, question=question, judgement=evidence.judge(question))


def test_the_originals_score_full_marks_and_nothing_scores_none(flat, engine, tmp_path):
    case, other = cases(flat, RoundPlan(16, 32, 2), workplace(engine, tmp_path))
    originals, strangers = (round.truth.held_by(range(1, 9)).x for round in (case, other))
    found = {}
    for name, x in (("whole", originals), ("none", originals[:0]), ("strangers", strangers)):
        rows = over_rounds([examined(case, x)], [match(originals, x)], {"psnr": 30.0})
        found |= {(name, row.metric): row for row in rows}
    assert found["whole", "recovery-rate"].value == 1.0
    assert found["whole", "psnr-of-returned"].n == 16
    assert 0 < found["whole", "recovery-rate"].chance < 1
    assert found["whole", "psnr"].printed == 30.0
    assert found["none", "recovery-rate"].value == 0.0
    assert found["none", "psnr-of-returned"].value is None
    assert "no image was returned" in found["none", "psnr-of-returned"].reason
    assert found["strangers", "near-exact-rate"].value < 1


def test_few_rounds_have_the_samples_interval_and_many_that_of_the_rounds():
    few = pooled([proportion(9, 10)], (0.0, 1.0))
    exact = proportion(9, 10)
    assert (few.low, few.high, few.n) == (pytest.approx(exact.low), pytest.approx(exact.high), 10)
    assert "independent" in few.note
    many = pooled([proportion(k, 10) for k in (7, 8, 9, 8)], (0.0, 1.0))
    # t(3) = 3.182 standard errors of 0.8, whose observations deviate by 0.0816
    assert many.value == pytest.approx(0.8)
    assert many.high - many.low == pytest.approx(
        2 * 3.1824 * np.std([0.7, 0.8, 0.9, 0.8], ddof=1) / 2, rel=1e-4
    )
    assert (many.n, "4 rounds" in many.note) == (40, True)
    same = pooled([proportion(10, 10)] * 4, (0.0, 1.0))
    assert same.low > 0.6
    assert same.high == 1.0


def test_rounds_are_enough_for_the_samples_within_limits():
    assert RoundPlan(64, 1024, 16).rounds == 16
    assert RoundPlan(650, 1024, 16).rounds == 2
    assert RoundPlan(16, 1024, 16).rounds == 16
    assert RoundPlan(1024, 100, 16).rounds == 1


def test_a_contact_sheet_keeps_every_image_in_its_place():
    images = torch.rand(10, 1, 4, 4)
    sheet = contact_sheet(images, columns=8)
    assert sheet.shape == (1, 2 * 8 + 2, 8 * 8 + 7 * 2)
    assert torch.equal(sheet[:, 10:18:2, 10:18:2], images[9])
    assert (sheet[:, 8:10] == 1).all()


def test_brightness_shares_add_up_and_a_normal_fits_a_normal_best(flat):
    drawn = torch.randn(4000, 16, generator=torch.Generator().manual_seed(0))
    surrogate = dataclasses.replace(flat.surrogate, latents=drawn)
    result = brightness(dataclasses.replace(flat, surrogate=surrogate))
    shares = {shown.attack: dict(zip(shown.bins, shown.shares)) for shown in result.exhibits.histograms}
    assert set(shares) == {LATENTS, *LAWS}
    for by_bin in shares.values():
        assert tuple(by_bin) == BINS
        assert sum(by_bin.values()) == pytest.approx(1.0)
    distances = {finding.attack: finding.value for finding in result.findings}
    assert {finding.metric for finding in result.findings} == {DISTANCE}
    assert distances["normal"] < 0.03 < distances["laplace"]
    assert shares[LATENTS]["+0.0 to +0.5"] == pytest.approx(0.1915, abs=0.025)


def test_all_networks_data_sets_and_batches_of_table_4_are_cells_at_laptop_scale():
    names = {cell.name for cell in ScaleMIAStudy().cells("laptop")}
    expected = {
        f"table-4/{network}/{data}/{batch}"
        for (network, data), (row_of_rates, _) in printed.TABLE_4.items()
        for batch in printed.BATCHES[: len(row_of_rates)]
    }
    assert {name for name in names if name.startswith("table-4")} == expected
    for attack, metric in printed.TABLE_3:
        columns = printed.SMALL_BATCHES[: len(printed.TABLE_3[attack, metric][0])]
        name = CODED if attack == PUBLISHED else attack  # the ResNet has too few layers for the published one
        assert {f"table-3/{name}/{batch}" for batch in columns} <= names
    heads = set(itertools.product(("ideal", "16", "22", "30"), printed.BATCHES))
    assert {f"heads/{channel}/{batch}" for channel, batch in heads} <= names


@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_fishing_and_eluding_have_eight_victims_or_more_and_no_cell_is_there_twice(scale):
    rounds = {rival.attack: rival.rounds for rival in SCALES[scale].rivals}
    assert rounds["fishing"] >= 8
    assert rounds["eluding"] >= 8
    names = [cell.name for cell in ScaleMIAStudy().cells(scale)]
    assert len(names) == len(set(names))


def test_a_passive_server_reads_the_update_of_the_one_client_that_holds_the_batch(flat, engine, tmp_path):
    plan = RoundPlan(4, 8, 2, passive=True)
    rounds = cases(flat, plan, workplace(engine, tmp_path))
    assert (plan.adversary, plan.channel) == (UpdateAccess, "plain")
    assert len(rounds) == 2
    for place, case in enumerate(rounds):
        held = flat.victims[4 * place : 4 * place + 4]
        assert torch.equal(case.truth.held_by([0]).x, held.x)
        (update,) = case.rounds[0].delivery.updates
        assert (update.client, update.samples, case.sizes, case.clients) == (0, 4, (4,), None)
        network = copy.deepcopy(flat.network)
        loss = torch.nn.functional.cross_entropy(network(held.x), held.y)
        gradient = torch.autograd.grad(loss, list(network.parameters()))
        expected = torch.cat([part.flatten() for part in gradient])
        assert torch.allclose(update.delta[: len(expected)], -plan.recipe.lr * expected, atol=1e-6)


def test_searches_need_no_autoencoder(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(scenarios, "make_surrogate", lambda *_, **__: pytest.fail("trained"))
    rival = Rival("inverting-gradients(steps=2)", DEEP, 1, (2,), passive=True)
    (cell,) = rival.cells(Scenarios())
    assert (cell.name, cell.single) == ("table-3/inverting-gradients/2", True)
    rows = {row.metric: row for row in cell.run(workplace(engine, tmp_path)).findings}
    assert rows["psnr-of-returned"].n == 2
    assert rows["psnr"].adversary == "curious server"
    assert rows["mean-image-psnr"].value < rows["psnr"].chance


PART = "table-4/mlp/digits/16"


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scale-mia") / "run"
    run_study("scale-mia", scale="smoke", cells=PART, out=folder, workers=1, quiet=True)
    return folder


def rows_of(folder):
    """All findings without those that are seconds, and without the time they took."""
    rows = json.loads((folder / "results.json").read_text())
    return [found | {"seconds": None} for found in rows if not found["metric"].endswith("seconds")]


def test_smoke_recovers_more_than_a_blind_guess_and_peeling_more_than_that(smoke):
    found = {(own["attack"], own["metric"]): own for own in rows_of(smoke)}
    published, peeled = found[CODED, "recovery-rate"], found[PEELED, "recovery-rate"]
    assert published["chance"] < published["low"]
    assert published["value"] < peeled["value"]
    assert published["n"] == peeled["n"] == 64
    assert any("secure aggregation" in words for words in published["assumes"])
    assert any("autoencoder" in words for words in published["assumes"])
    assert found[None, BOUND]["value"] == pytest.approx((1 - 1 / 200) ** 15)


def test_a_study_cut_short_ends_with_the_same_numbers_from_the_kept_autoencoder(smoke, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(smoke, folder)
    (folder / "work" / PART / "seed-0000.json").unlink()
    monkeypatch.setattr(scenarios, "make_surrogate", lambda *_, **__: pytest.fail("trained again"))
    run_study("scale-mia", scale="smoke", cells=PART, out=folder, workers=1, quiet=True)
    assert rows_of(folder) == rows_of(smoke)


def test_both_heads_meet_exact_and_rounded_sums_at_smoke_scale(tmp_path):
    run_study("scale-mia", scale="smoke", cells="heads/*", out=tmp_path, workers=1, quiet=True)
    rows = rows_of(tmp_path)
    assert not [found for found in rows if found["metric"] == "not-applicable"]
    rate = {
        (found["cell"], found["attack"]): found["value"]
        for found in rows
        if found["metric"] == "recovery-rate"
    }
    assert set(rate) == set(
        itertools.product(
            [f"heads/{channel}/{batch}" for channel in ("ideal", "22") for batch in (16, 64)],
            [PUBLISHED, DRAWN, CODED],
        )
    )
    assert rate["heads/ideal/16", PUBLISHED] > 0.7
    assert rate["heads/22/64", CODED] > rate["heads/22/64", PUBLISHED]
    flagged = {found["attack"]: found["value"] for found in rows if found["metric"] == "vet-alarm"}
    assert flagged == {PUBLISHED: 1.0, DRAWN: 1.0, CODED: 1.0}


def test_rivals_privacy_and_several_steps_run_at_smoke_scale_and_say_what_they_met(tmp_path):
    for cells in ("table-3/*", "dp/*", "local-steps/2"):
        run_study("scale-mia", scale="smoke", cells=cells, out=tmp_path, workers=1, quiet=True)
    rows = rows_of(tmp_path)
    assert not [found for found in rows if found["metric"] == "not-applicable"]
    searched = {found["attack"].partition("(")[0] for found in rows if found["adversary"] == "curious server"}
    assert searched == {"dlg", "idlg", "inverting-gradients", "gradinversion"}
    robbed = [found for found in rows if (found["attack"], found["metric"]) == ("robbing-the-fed", "psnr")]
    assert all("permission to change the network" in found["assumes"] for found in robbed)
    of_rate = [found for found in rows if found["metric"] == "recovery-rate"]
    rate = {(found["cell"], found["attack"]): found["value"] for found in of_rate}
    quiet = "scale-mia-peeled(rounds=1,norm=1.0)"
    assert rate["dp/0", quiet] > 0.9 > rate["dp/0", CODED]
    assert rate["dp/1", quiet] < 0.1
    flagged = {found["attack"]: found["value"] for found in rows if found["metric"] == "vet-alarm"}
    assert flagged[CODED] == flagged["robbing-the-fed"] == 1.0

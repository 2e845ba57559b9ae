import copy
import dataclasses
import itertools

import pytest
import torch

from glasshouse.access import UpdateAccess
from glasshouse.attacks.crafted.surrogate import Schooling
from glasshouse.data.sources import load
from glasshouse.errors import BadInput
from glasshouse.learning.engine import Engine
from glasshouse.progress import Progress
from glasshouse.studies.scale_mia import printed, scenarios
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
    assert printed.table_3("resnet", "cifar10", "fishing(steps=9)", 1)["psnr-of-returned"] == 19.1928
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
    parts = divided(dataset, scenario, seed=3)
    auxiliary, held, _ = parts
    seen = [{tuple(image.flatten().tolist()) for image in part.x} for part in parts]
    assert not any(one & other for one, other in itertools.combinations(seen, 2))
    allowed = set(range(10)) if scenario.classes is None else {5, 6}
    assert {label for part in parts for label in part.y.tolist()} <= allowed
    everything = sum(map(len, divided(dataset, dataclasses.replace(scenario, share=1.0), seed=3)[:2]))
    assert len(held) == round(scenarios.HELD_SHARE * everything)
    assert len(auxiliary) == pytest.approx(min(scenario.share, 0.9) * everything, abs=1)


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


def test_rounds_are_enough_for_the_samples_within_limits():
    assert RoundPlan(64, 1024, 16).rounds == 16
    assert RoundPlan(650, 1024, 16).rounds == 2
    assert RoundPlan(16, 1024, 16).rounds == 16
    assert RoundPlan(1024, 100, 16).rounds == 1


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

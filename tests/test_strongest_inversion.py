"""The strongest inversion: what is solved for comes first, what is searched for is paid for in seconds."""

from copy import deepcopy

import pytest
import torch
from cases import access_to, finished
from conftest import CLASSES, SHAPE, make_images, make_plain_model, make_split
from torch import nn

from glasshouse.access import AggregateAccess, UpdateAccess
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.inversion import strongest
from glasshouse.attacks.inversion.effort import FEWEST, MOST, affordable_steps, operations
from glasshouse.attacks.inversion.published import InvertingGradients
from glasshouse.attacks.inversion.spear import seconds_of_a_pass
from glasshouse.attacks.inversion.strongest import StrongestInversion
from glasshouse.attacks.inversion.updates import attacked_updates
from glasshouse.auditing.examine import examine
from glasshouse.errors import BadInput, CannotRun
from glasshouse.evidence.reconstruction import Rebuilt, Snapshot
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.pictures import match

NOTHING = Knowledge()


def convolutions():
    torch.manual_seed(0)
    head = nn.Linear(4 * 36, CLASSES)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), head)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


class Solver:
    """A closed form that finds the first images of the client, whoever asks, or refuses."""

    def __init__(self, images, count, *, proven=True):
        self.images, self.count, self.proven = images, count, proven

    def rebuild(self, update, knowledge, rng):
        if self.count is None:
            raise CannotRun("the network is of another kind")
        return Rebuilt(self.images[: self.count], update.clients, proven=self.proven)


@pytest.fixture
def small(engine):
    """Clients of 1 and 3 images, and what the curious server sees of them."""
    case = finished(engine, model=convolutions(), split=make_split((1, 3)))
    return case, access_to(case, UpdateAccess)


def solving(monkeypatch, **solvers):
    """Let these solvers be all the closed forms that there are."""
    monkeypatch.setattr(strongest, "SOLVING", tuple(solvers))
    monkeypatch.setattr(StrongestInversion, "_solver", lambda _, name, update: solvers[name])


def test_what_is_solved_for_completely_is_not_searched_for(small, monkeypatch):
    case, access = small
    held = case.truth.held_by([1]).x
    solving(monkeypatch, refuses=Solver(held, None), some=Solver(held, 1), all=Solver(held, 3))
    monkeypatch.setattr(
        StrongestInversion, "search", lambda *_: pytest.fail("there is nothing to search for")
    )
    update = next(update for update in attacked_updates(access, 2) if update.samples == 3)
    rebuilt = StrongestInversion(seconds=0.1).rebuild(update, NOTHING, rng())
    assert torch.equal(rebuilt.x, held)
    assert rebuilt.note == "round 1, client 1: 3 of 3 images by all"


def test_the_search_fills_the_places_that_a_closed_form_leaves(small, monkeypatch):
    case, access = small
    held = case.truth.held_by([1]).x
    solving(monkeypatch, some=Solver(held, 1))
    update = next(update for update in attacked_updates(access, 2) if update.samples == 3)
    rebuilt = StrongestInversion(seconds=0.1).rebuild(update, NOTHING, rng())
    assert torch.equal(rebuilt.x[0], held[0])
    assert len(rebuilt.x) == 3
    assert all(len(at.x) == 3 and torch.equal(at.x[0], held[0]) for at in rebuilt.snapshots)
    assert "1 of 3 images by some" in rebuilt.note
    assert f"3 of 3 images by {strongest.SEARCH.name}" in rebuilt.note


class Searcher:
    """A search that finds the client's images, a little blurred, in its own order."""

    name, steps = "searcher", 1

    def __init__(self, images):
        self.images = images

    def rebuild(self, update, knowledge, rng):
        blurred = 0.9 * self.images + 0.05
        return Rebuilt(blurred, update.clients, snapshots=(Snapshot(1, 0.0, 0.5, blurred),))


@pytest.mark.parametrize("solved", [1, 2])
def test_the_search_is_asked_for_those_that_a_closed_form_did_not_find(small, monkeypatch, solved):
    case, access = small
    held = case.truth.held_by([1]).x
    solving(monkeypatch, some=Solver(held, solved))
    monkeypatch.setattr(StrongestInversion, "search", lambda *_: Searcher(held))
    update = next(update for update in attacked_updates(access, 2) if update.samples == 3)
    rebuilt = StrongestInversion(seconds=0.1).rebuild(update, NOTHING, rng())
    assert match(held, rebuilt.x).psnr.min() > 20
    assert match(held, rebuilt.snapshots[0].x).psnr.min() > 20
    assert torch.equal(rebuilt.x[:solved], held[:solved])


def test_without_a_closed_form_the_images_are_those_of_the_search(small, monkeypatch):
    _, access = small
    solving(monkeypatch)
    update = attacked_updates(access, 2)[0]
    attack = StrongestInversion(seconds=0.2)
    searched = attack.search(update).rebuild(update, NOTHING, rng(3))
    assert torch.equal(attack.rebuild(update, NOTHING, rng(3)).x, searched.x)


def test_where_nothing_can_be_searched_what_was_solved_for_stands(engine, monkeypatch):
    case = finished(
        engine, model=convolutions(), split=make_split((3,)), recipe=Recipe(optimiser="adam", lr=1e-3)
    )
    held = case.truth.held_by([0]).x
    (update,) = attacked_updates(access_to(case, UpdateAccess), 1)
    solving(monkeypatch, some=Solver(held, 1))
    assert torch.equal(StrongestInversion(seconds=0.1).rebuild(update, NOTHING, rng()).x, held[:1])
    solving(monkeypatch)
    with pytest.raises(CannotRun, match="adam"):
        StrongestInversion(seconds=0.1).rebuild(update, NOTHING, rng())


def test_more_seconds_buy_more_steps_and_more_updates_share_them(small):
    update = attacked_updates(small[1], 1)[0]
    steps = [StrongestInversion(seconds=seconds).search(update).steps for seconds in (0.5, 1, 1.5)]
    assert steps == sorted(set(steps))
    shared = StrongestInversion(seconds=2, updates=8).search(update)
    assert shared == StrongestInversion(seconds=1, updates=4).search(update)


def test_all_starts_together_take_the_steps_that_one_would(small):
    update = attacked_updates(small[1], 1)[0]
    search = StrongestInversion(seconds=8).search(update)
    paid = affordable_steps(update.protocol.architecture, SHAPE, update.samples, 2)
    assert search.restarts > 1
    assert search.steps * (1 + (search.restarts - 1) * search.culled) == pytest.approx(paid, rel=0.01)


def test_steps_follow_from_the_size_of_the_work_alone():
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4 * 36, CLASSES))
    assert operations(network, SHAPE) == 2 * (36 * 4 * 9 + 4 * 36 * CLASSES)
    assert affordable_steps(network, SHAPE, 1, 1e-9) == FEWEST
    assert affordable_steps(network, SHAPE, 1, 1e9) == MOST
    assert affordable_steps(network, SHAPE, 10**6, 1) < affordable_steps(network, SHAPE, 1, 1)


def test_counting_the_work_leaves_the_network_as_it_was():
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, 2)).train()
    before = deepcopy(network.state_dict())
    operations(network, SHAPE)
    assert network.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_the_same_seed_gives_the_same_images(small):
    _, access = small
    first, second = (StrongestInversion(seconds=0.2).run(access, NOTHING, rng(5)) for _ in range(2))
    assert torch.equal(first.x, second.x)


def test_one_image_behind_a_gradient_is_found(engine):
    case = finished(engine, model=convolutions(), split=make_split((1,)))
    evidence = StrongestInversion(seconds=2, updates=1).run(access_to(case, UpdateAccess), NOTHING, rng())
    original = case.truth.held_by([0]).x
    error = (evidence.x - original).square().mean()
    guess = (make_images(40).x.mean(0) - original).square().mean()
    assert error < guess / 2


def test_the_note_says_how_the_clients_trained_and_what_was_given(small):
    case, access = small
    note = StrongestInversion(seconds=0.1).run(access, NOTHING, rng()).note
    assert note.startswith(
        "as the clients trained: 1 local step on 1 to 3 images, train mode, labels unknown"
    )
    told = Knowledge(labels=dict(enumerate(case.truth.label_counts)))
    note = StrongestInversion(seconds=0.1, labels="given").run(access, told, rng()).note
    assert "labels given" in note
    assert StrongestInversion(labels="given").knows == ("labels",)
    assert StrongestInversion().knows == ()


def test_sums_are_searched_too_and_say_whose_they_are(engine):
    case = finished(engine, model=convolutions(), split=make_split((1, 2)), rounds=2)
    evidence = StrongestInversion(seconds=0.1).run(access_to(case, AggregateAccess), NOTHING, rng())
    assert [part.clients for part in evidence.parts] == [(0, 1), (0, 1)]
    assert "round 2, 2 clients: 3 of 3 images" in evidence.note


@pytest.mark.parametrize("options", [{"seconds": 0}, {"most": 0}, {"labels": "told"}, {"updates": 0}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(BadInput, match=f"strongest-inversion {next(iter(options))}"):
        StrongestInversion(**options)


@pytest.mark.parametrize(("defence", "proven"), [
    ("none", True),
    ("clipping(norm=0.01)", True),
    ("gaussian-noise(std=0.01)", False),
    ("pruning(fraction=0.9)", False),
])  # fmt: skip
def test_a_closed_form_counts_only_where_it_proves_its_image(engine, defence, proven):
    case = finished(engine, model=make_plain_model(), split=make_split((1,)), defence=defence)
    (update,) = attacked_updates(access_to(case, UpdateAccess), 1)
    rebuilt = StrongestInversion(seconds=0.1).rebuild(update, NOTHING, rng())
    assert ("1 of 1 images by linear-leak" in rebuilt.note) == proven
    if proven:
        assert torch.allclose(rebuilt.x, case.truth.held_by([0]).x, atol=1e-3)


def test_an_image_that_was_solved_for_is_proven_by_its_gradient(small, monkeypatch):
    case, access = small
    (update,) = (update for update in attacked_updates(access, 2) if update.samples == 1)
    held = case.truth.held_by(update.clients).x
    attack = StrongestInversion(seconds=0.1)
    for name, image in (("right", held), ("wrong", 1 - held)):
        solving(monkeypatch, **{name: Solver(image, 1, proven=False)})
        assert (f"by {name}" in attack.rebuild(update, NOTHING, rng()).note) == (name == "right")


def test_an_image_behind_a_smooth_perceptron_is_solved_for_and_scored(engine):
    torch.manual_seed(0)
    hidden = nn.Linear(64, 40, bias=False)
    network = nn.Sequential(nn.Flatten(), hidden, nn.Sigmoid(), nn.Linear(40, CLASSES))
    case = finished(engine, model=network, split=make_split((1,)))
    examined = examine(case, "strongest-inversion(seconds=0.1)", UpdateAccess)
    scores = {score.metric: score.estimate for score in examined.scores}
    assert "by r-gap" in scores["recovery-rate"].note
    assert scores["psnr"].value > 40


def test_several_images_that_are_not_proven_do_not_count(small, monkeypatch):
    case, access = small
    update = next(update for update in attacked_updates(access, 2) if update.samples == 3)
    solving(monkeypatch, guess=Solver(case.truth.held_by([1]).x, 3, proven=False))
    assert "by guess" not in StrongestInversion(seconds=0.1).rebuild(update, NOTHING, rng()).note


def test_simulating_local_steps_costs_a_pass_for_each(engine):
    recipe = Recipe(epochs=2, batch_size=1)
    case = finished(engine, model=convolutions(), split=make_split((2,)), recipe=recipe)
    (update,) = attacked_updates(access_to(case, UpdateAccess), 1)
    search = StrongestInversion(seconds=1, updates=1).search(update)
    paid = affordable_steps(update.protocol.architecture, SHAPE, 4, 1, passes=4)
    assert search.steps == paid
    assert paid == pytest.approx(affordable_steps(update.protocol.architecture, SHAPE, 1, 1) / 4, rel=0.02)


def test_fewer_pixels_may_differ_more_from_their_neighbours(small):
    update = attacked_updates(small[1], 1)[0]
    assert StrongestInversion().search(update).tv == pytest.approx(InvertingGradients.tv / 16)


def test_a_batch_behind_a_linear_layer_and_a_relu_is_proven(engine):
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, CLASSES))
    case = finished(engine, model=wide, split=make_split((4,)))
    (update,) = attacked_updates(access_to(case, UpdateAccess), 1)
    rebuilt = StrongestInversion(seconds=60, updates=1).rebuild(update, NOTHING, rng())
    assert rebuilt.proven
    assert match(case.truth.held_by([0]).x, rebuilt.x).psnr.min() > 40


def test_no_clock_decides_how_far_spear_gets(engine):
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, CLASSES))
    case = finished(engine, model=wide, split=make_split((6,)))
    (update,) = attacked_updates(access_to(case, UpdateAccess), 1)
    attack = StrongestInversion(seconds=1, updates=1)
    spear = attack._solver("spear", update)
    assert spear.passes == round(1 / seconds_of_a_pass(update))
    assert spear.seconds > 60 * spear.passes * seconds_of_a_pass(update)
    with pytest.raises(CannotRun, match="longer than there is time for"):
        StrongestInversion(seconds=1e-3, updates=1)._solver("spear", update)

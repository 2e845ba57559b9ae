"""One loop matches gradients: its labels, simulated trainings, statistics and searches."""

import dataclasses

import numpy as np
import pytest
import torch
from cases import finished
from conftest import make_model, make_split
from matching_targets import CLASSES, pictures, rng, smooth, target_of
from sent_updates import seen_sum, seen_updates
from torch import nn

from glasshouse.access import UpdateAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.inversion.descent import Descent, Pace
from glasshouse.attacks.inversion.label_guesses import guessed_labels
from glasshouse.attacks.inversion.priors import patch_seams
from glasshouse.attacks.inversion.registration import consensus, registered
from glasshouse.attacks.inversion.target import LocalTraining, Matcher
from glasshouse.attacks.inversion.targets import make_target, statistics_in_update
from glasshouse.attacks.inversion.updates import attacked_updates
from glasshouse.auditing.examine import examine
from glasshouse.data.images import Images
from glasshouse.errors import BadInput, CannotRun
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.pictures import match


@pytest.mark.parametrize("recipe", [
    Recipe(epochs=1, batch_size=2, lr=0.3),
    Recipe(epochs=2, batch_size=3, lr=0.1, momentum=0.9, weight_decay=0.01),
    Recipe(epochs=2, batch_size=3, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    Recipe(epochs=3, batch_size=0, lr=0.2, schedule="cosine"),
])  # fmt: skip
def test_a_simulated_training_moves_the_weights_as_a_client_does(recipe):
    network, images = smooth(), pictures(6, shape=(1, 6, 6))
    start = {name: weight.detach().clone() for name, weight in network.named_parameters()}
    order = [torch.randperm(6, generator=rng(epoch)) for epoch in range(recipe.epochs)]
    batches = tuple(tuple(places.split(recipe.batch(6))) for places in order)
    optimiser = recipe.make_optimiser(network.parameters())
    drawn = [batch for epoch in batches for batch in epoch]
    for batch, rate in zip(drawn, recipe.rates(6), strict=True):
        optimiser.param_groups[0]["lr"] = rate
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(images.x[batch]), images.y[batch]).backward()
        optimiser.step()
    moved = [
        (start[name] - weight.detach()) / recipe.effective_rate(6)
        for name, weight in network.named_parameters()
    ]
    with torch.no_grad():
        for name, weight in network.named_parameters():
            weight.copy_(start[name])
    target = dataclasses.replace(target_of(network, images), training=LocalTraining(recipe, batches))
    copies = images.x.expand(recipe.epochs, *images.x.shape)
    for part, expected in zip(Matcher(target)(copies, images.y), moved, strict=True):
        assert torch.allclose(part, expected, atol=1e-5)


def test_idlg_reads_the_label_of_every_single_image():
    for seed in range(20):
        images = Images(torch.rand(1, 1, 6, 6, generator=rng(seed)), torch.tensor([seed % CLASSES]), CLASSES)
        (update,) = attacked_updates(seen_updates(smooth(seed=seed), [images]), 1)
        assert guessed_labels("idlg", update, 1, Knowledge()).tolist() == images.y.tolist()


def test_idlg_refuses_a_batch():
    (update,) = attacked_updates(seen_updates(smooth(), [pictures(2, shape=(1, 6, 6))]), 1)
    with pytest.raises(CannotRun, match="2 are behind this update"):
        guessed_labels("idlg", update, 2, Knowledge())


def test_the_smallest_rows_are_those_of_labels_that_occur_once():
    images = Images(torch.rand(3, 1, 6, 6, generator=rng()), torch.tensor([0, 2, 4]), CLASSES)
    (update,) = attacked_updates(seen_updates(smooth(), [images]), 1)
    assert guessed_labels("smallest", update, 3, Knowledge()).tolist() == [0, 2, 4]


def test_given_labels_are_knowledge_that_the_finding_names():
    attack = ATTACKS.make("adam-cosine")
    assert attack.knows == ("labels",)
    assert ATTACKS.make("adam-cosine(labels='counts')").knows == ()
    assert "each class" in Knowledge(labels={0: np.zeros(2)}).described()[0]


@pytest.mark.parametrize("spec", ["dlg(restarts=6,steps=60)", "idlg(restarts=2,steps=60)"])
def test_lbfgs_finds_a_single_image_and_its_label(spec):
    images = Images(torch.rand(1, 1, 6, 6, generator=rng(5)), torch.tensor([3]), CLASSES)
    network = smooth()
    for parameter in network.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5, generator=rng(6))
    evidence = ATTACKS.make(spec).run(seen_updates(network, [images]), Knowledge(), rng(1))
    (part,) = evidence.parts
    assert part.labels.tolist() == [3]
    assert match(images.x, part.x).psnr[0] > 30


def test_the_same_seed_gives_the_same_image():
    access = seen_updates(smooth(), [pictures(2, shape=(1, 6, 6))])
    attack = ATTACKS.make("gradinversion(steps=20,restarts=2,batch_norm=0,labels='counts')")
    first, again, other = (attack.run(access, Knowledge(), rng(seed)).x for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_angle_tells_enough_of_an_image():
    images = pictures(1, shape=(1, 6, 6))
    attack = ATTACKS.make("inverting-gradients(steps=400,tv=0.0)")
    evidence = attack.run(seen_updates(smooth(), [images]), Knowledge(), rng())
    assert match(images.x, evidence.x).psnr[0] > 25


def test_simulating_local_steps_beats_reading_them_as_one_gradient():
    images = Images(torch.rand(2, 1, 6, 6, generator=rng(5)), torch.tensor([1, 3]), CLASSES)
    access = seen_updates(smooth(), [images], Recipe(epochs=4, batch_size=1, lr=1.0))
    psnr = {}
    for simulate in (0, 16):
        attack = ATTACKS.make(f"inverting-gradients(steps=300,tv=0.0,simulate={simulate})")
        evidence = attack.run(access, Knowledge(), rng())
        psnr[simulate] = match(images.x, evidence.x).psnr.mean()
    assert psnr[16] > psnr[0] + 3


def test_an_update_says_what_its_reader_had_to_guess():
    torch.manual_seed(0)
    layers = (nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, CLASSES))
    access = seen_updates(nn.Sequential(*layers), [pictures(6, shape=(1, 6, 6))], Recipe(batch_size=3))
    (update,) = attacked_updates(access, 1)
    _, note = make_target(update, torch.zeros(2, dtype=torch.long), 2, 0, rng())
    for word in ("dropout", "batch norm mixes", "several local steps", "2 images were sought"):
        assert word in note
    target, note = make_target(update, torch.zeros(6, dtype=torch.long), 6, 8, rng())
    assert target.copies == 1
    assert "2 local steps are simulated" in note


def test_the_statistics_in_an_update_are_those_of_its_batch():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, CLASSES))
    images = pictures(5, shape=(1, 6, 6))
    with torch.no_grad():
        entering = network[0](images.x)
    (update,) = attacked_updates(seen_updates(network, [images], Recipe(batch_size=0, lr=0.1)), 1)
    found = statistics_in_update(update)["1"]
    assert torch.allclose(found.mean, entering.mean((0, 2, 3)), atol=1e-4)
    assert torch.allclose(found.var, entering.var((0, 2, 3)), atol=1e-3)


@pytest.mark.parametrize(("statistics", "named"), [
    ("running", "those that the model carries"),
    ("update", "those of the clients' batches"),
    ("auxiliary", "those of auxiliary images"),
])  # fmt: skip
def test_every_score_of_the_images_says_whose_statistics_they_have(engine, statistics, named):
    case = finished(engine, model=make_model(), split=make_split((3,)))
    spec = f"gradinversion(steps=2,restarts=1,labels='counts',statistics='{statistics}')"
    rows = examine(case, spec, UpdateAccess).findings()
    images = ("recovery-rate", "near-exact-rate", "psnr", "most-exposed-psnr", "psnr-of-recovered", "ssim")
    told = {row.metric: f"{row.note} {row.reason}" for row in rows if row.metric in images}
    assert len(told) == len(images)
    assert all(words.count(f"batch norm statistics: {named}") == 1 for words in told.values())
    assert any("auxiliary images" in given for given in rows[0].assumes) == (statistics == "auxiliary")


def test_an_eval_mode_client_leaves_its_statistics_alone():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(36), nn.Dropout(0.5), nn.Linear(36, CLASSES))
    images = pictures(4, shape=(1, 6, 6))
    access = seen_updates(network, [images], Recipe(batch_size=0, lr=0.1, mode="eval"))
    layout = access.protocol.layout
    delta = access.rounds[0].updates[0].delta
    assert delta[: layout.trainable].abs().max() > 0
    assert delta[layout.trainable :].abs().max() == 0


def test_blind_servers_invert_the_sum():
    access = seen_sum(seen_updates(smooth(), [pictures(1, 1, (1, 6, 6)), pictures(2, 2, (1, 6, 6))]))
    evidence = ATTACKS.make("inverting-gradients(steps=5)").run(access, Knowledge(), rng())
    (part,) = evidence.parts
    assert part.clients == (0, 1)
    assert len(part.x) == 3


def test_shifted_images_are_moved_back_and_agree():
    image = torch.rand(1, 3, 8, 8, generator=rng())
    shifted = image.roll((2, -3), (-2, -1))
    assert torch.equal(registered(shifted, image), image)
    assert torch.allclose(consensus(torch.stack([image, image, image])), image)


def test_seams_are_seen_between_patches_and_nowhere_else():
    x = torch.zeros(1, 1, 4, 4)
    x[..., 2:] = 1.0
    assert patch_seams(x, 2).item() == 4.0
    assert patch_seams(x.roll(1, -1), 2).item() == 0.0


def test_a_plateau_ends_a_search_that_gets_nowhere():
    network, images = smooth(), pictures(1, shape=(1, 6, 6))
    target = dataclasses.replace(target_of(network, images), known=None)
    attack = ATTACKS.make("inverting-gradients(steps=4000,lr=1e-9,patience=0.005,tv=0.0)")
    solution = attack.solve(target, rng())
    assert solution.snapshots[-1].step < 200


def test_a_search_keeps_what_it_had_on_the_way():
    evidence = ATTACKS.make("inverting-gradients(steps=64)").run(
        seen_updates(smooth(), [pictures(1, shape=(1, 6, 6))]), Knowledge(), rng()
    )
    steps = [snapshot.step for snapshot in evidence.parts[0].snapshots]
    objectives = [snapshot.objective for snapshot in evidence.parts[0].snapshots]
    assert steps[0] == 0
    assert steps[-1] == 64
    assert objectives == sorted(objectives, reverse=True)


def test_with_another_objective_the_best_begins_anew():
    pace = Pace(steps=10, lr=0.05, schedule="constant", signed=True)

    def rises(x, soft, share):
        return (x - 1.0).square().sum() if share < 0.5 else 100 + x.square().sum()

    descent = Descent(rises, torch.full((1, 1, 1, 2, 2), 0.5), None, pace, rng(), lambda share: share < 0.5)
    while not descent.ended:
        descent.advance()
    descent.finish()
    assert descent.lowest == pytest.approx(100 + descent.image.square().sum().item())


def test_the_learning_rate_warms_up_and_falls():
    assert Pace(steps=100, warmup=10, schedule="constant").rate(4) == pytest.approx(0.05)
    assert Pace(steps=100, schedule="cosine").rate(50) == pytest.approx(0.05)


@pytest.mark.parametrize("spec", [
    "dlg(labels='none')", "dlg(steps=0)", "gradinversion(langevin=-1)", "idlg(restarts=1.5)",
    "inverting-gradients(lr=0)", "gradinversion(statistics='mine')",
    "gradvit(statistics='running')", "inverting-gradients(culled=2)",
])  # fmt: skip
def test_options_out_of_range_are_refused_at_the_door(spec):
    with pytest.raises(BadInput, match="must be"):
        ATTACKS.make(spec)


def test_a_network_without_finite_gradients_is_a_reason_and_no_image():
    network = smooth()
    access = seen_updates(network, [pictures(1, shape=(1, 6, 6))])
    with torch.no_grad():
        access.rounds[0].sent.fill_(float("inf"))
    with pytest.raises(CannotRun, match="no finite gradient"):
        ATTACKS.make("inverting-gradients(steps=3,labels='joint')").run(access, Knowledge(), rng())

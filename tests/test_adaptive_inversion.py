"""An attacker who knows the defences, and not their draws: what that is worth, and that it is no more."""

import dataclasses
import math

import pytest
import torch
from cases import access_to, finished
from conftest import make_plain_model, make_split
from sent_updates import ONE_STEP, seen_sum, seen_updates
from torch import nn

from glasshouse.access import SeenUpdates, UpdateAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.inversion.adaptive import (
    adapt,
    draws_of,
    gradient_noise,
    sent_entries,
    signal_weights,
    worth_knowing,
)
from glasshouse.attacks.inversion.targets import make_target
from glasshouse.attacks.inversion.undoing import undone
from glasshouse.attacks.inversion.updates import attacked_updates
from glasshouse.auditing.adapting import adaptive_forms
from glasshouse.auditing.examine import examine
from glasshouse.data.images import Images
from glasshouse.defences import make_defences
from glasshouse.defences.policies.draws import AnyDraw
from glasshouse.errors import BadInput
from glasshouse.learning.layout import Layout
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.pictures import match

CLASSES, SIDE = 5, 8
SEARCH = "inverting-gradients(steps=120,tv=0.002,culled=0.25,labels='idlg'{})"


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def policy(text):
    return f"transformation-policy(policy='{text}')"


def smooth():
    """A network whose gradients tell an image exactly."""
    features = 6 * SIDE * SIDE
    network = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.Sigmoid(), nn.Flatten(), nn.Linear(features, CLASSES)
    )
    for parameter in network.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5, generator=rng(6))
    return network


def scenes(count=1, seed=0):
    """Smooth images of 8 bits that use most of the range of levels."""
    coarse = torch.rand(count, 1, 3, 3, generator=rng(seed))
    x = nn.functional.interpolate(coarse, (SIDE, SIDE), mode="bilinear", align_corners=True)
    x = (x - x.amin((1, 2, 3), keepdim=True)) / (x.amax((1, 2, 3)) - x.amin((1, 2, 3))).view(-1, 1, 1, 1)
    return Images((255 * (0.05 + 0.9 * x)).round() / 255, torch.arange(count) % CLASSES, CLASSES)


def sent_under(spec, images, seed=0, recipe=ONE_STEP, network=None):
    """What a server sees of a client that holds `images` and defends itself."""
    stack, network = make_defences(spec), network or smooth()
    trained = stack.training().prepare(network, images.x, images.y, rng(seed)).contiguous()
    access = seen_updates(network, [dataclasses.replace(images, x=trained)], recipe)
    (seen,) = access.rounds
    (update,) = seen.updates
    delta = stack.on_update(update.delta, access.protocol.layout, rng(seed + 1))
    changed = dataclasses.replace(update, delta=delta)
    return UpdateAccess(access.protocol, (SeenUpdates(seen.number, seen.sent, (changed,)),))


def rebuilt(access, spec, *, adaptive, attack=SEARCH):
    known = Knowledge(defence=make_defences(spec))
    return ATTACKS.make(attack.format(",adaptive=True" if adaptive else "")).run(access, known, rng(1))


def psnr(spec, images, **options):
    access = sent_under(spec, images)
    return [
        match(images.x, rebuilt(access, spec, adaptive=adaptive, **options).x).psnr.mean()
        for adaptive in (False, True)
    ]


@pytest.mark.parametrize(("spec", "gain"), [
    (policy("0"), 15),
    (policy("3"), 4),
    (policy("3-1-7"), 4),
    (policy("3-1-7") + "+pruning(fraction=0.8)", 4),
    ("pruning(fraction=0.9)", 8),
])  # fmt: skip
def test_whoever_knows_the_defence_rebuilds_the_original_better(spec, gain):
    plain, adaptive = psnr(spec, scenes())
    assert adaptive > plain + gain


def test_the_note_names_the_case_of_the_policy_that_fits_best():
    x = scenes(seed=3).x
    access = sent_under(policy("3"), scenes(seed=3), seed=5)
    moved = make_defences(policy("3")).training().prepare(smooth(), x, torch.zeros(1), rng(5))
    share = "+0.45" if torch.allclose(moved[..., :4], x[..., 4:], atol=1e-3) else "-0.45"
    evidence = rebuilt(access, policy("3"), adaptive=True)
    assert f"if the policy did this to it: translateX {share}" in evidence.note


def test_the_images_of_a_batch_are_undone_one_by_one():
    images, stack = scenes(4), make_defences(policy("3-0"))
    moved = stack.training().prepare(smooth(), images.x, images.y, rng(2)).contiguous()
    originals, chosen = undone(moved, draws_of(stack, images.shape))
    assert len({str(draw) for draw in chosen}) == 2  # both signs were drawn
    errors = (originals - images.x).square().flatten(1).mean(1)
    assert (errors < (moved - images.x).square().flatten(1).mean(1) / 4).all()
    for x, y, draw in zip(originals, moved, chosen):
        torch.testing.assert_close(draw.apply(x[None])[0], y, atol=0.02, rtol=0)


def test_a_batch_is_sought_as_it_was_transformed_and_then_undone():
    spec, attack = policy("0"), "inverting-gradients(steps=30{})"
    access = sent_under(spec, scenes(2))
    plain, evidence = (rebuilt(access, spec, adaptive=flag, attack=attack) for flag in (False, True))
    torch.testing.assert_close(evidence.x, 1 - plain.x, atol=0.05, rtol=0)
    assert "then undone" in evidence.note
    assert torch.equal(evidence.parts[0].snapshots[-1].x, evidence.parts[0].x)


def test_images_that_were_solved_for_are_undone_too(engine):
    case = finished(engine, model=make_plain_model(), split=make_split((1,)), defence=policy("0"))
    access, original = access_to(case, UpdateAccess), case.truth.held_by([0]).x
    for adaptive, expected in ((False, 1 - original), (True, original)):
        attack = f"strongest-inversion(seconds=0.1,updates=1,adaptive={adaptive})"
        evidence = ATTACKS.make(attack).run(access, Knowledge(defence=case.defence), rng())
        assert "by linear-leak" in evidence.note
        torch.testing.assert_close(evidence.x, expected, atol=0.03, rtol=0)
        assert evidence.parts[0].proven != adaptive


def test_any_draw_is_one_of_its_draws_for_each_image_and_each_time_another():
    draws = draws_of(make_defences(policy("3-0")), (1, SIDE, SIDE))
    x, any_draw = scenes(4).x[None], AnyDraw(draws, rng())
    cases = torch.stack([draw.apply(x) for draw in draws])
    met = set()
    for _ in range(20):
        same = (any_draw.apply(x) == cases).flatten(3).all(3)  # (case, copy, image)
        assert (same.sum(0) == 1).all()
        met |= {tuple(places) for places in same[:, 0].nonzero().tolist()}
    assert met == {(case, image) for case in range(len(draws)) for image in range(4)}


@pytest.mark.parametrize("count", [1, 2])
def test_averaging_over_the_draws_rebuilds_images_as_they_were_before_the_policy(count):
    attack = SEARCH.replace("'idlg'", "'counts'").format(",draws='average'{}")
    plain, average = psnr(policy("0"), scenes(count), attack=attack)  # one case: its average is exact
    assert average > plain + 8
    plain, average = psnr(policy("3"), scenes(count), attack=attack)  # shifted either way
    assert average > plain
    evidence = rebuilt(sent_under(policy("0"), scenes(count)), policy("0"), adaptive=True, attack=attack)
    assert "whose cases took turns" in evidence.note


@pytest.mark.parametrize("attack", ["inverting-gradients", "adam-cosine", "dlg", "strongest-inversion"])
def test_attacks_ask_to_know_the_defence_only_where_they_use_it(attack):
    assert "defence" not in ATTACKS.make(attack).knows
    assert "defence" in ATTACKS.make(f"{attack}(adaptive=True)").knows


@pytest.mark.parametrize("spec", ["none", "clipping(norm=0.01)", "vet"])
def test_knowing_what_does_not_help_changes_nothing(spec):
    access = sent_under(spec, scenes())
    attack = "inverting-gradients(steps=5{})"
    plain, adaptive = (rebuilt(access, spec, adaptive=flag, attack=attack).x for flag in (False, True))
    assert torch.equal(plain, adaptive)
    assert not worth_knowing(make_defences(spec))
    assert adaptive_forms(["inverting-gradients"], spec) == []


def test_entries_that_were_not_sent_are_read_off_the_update():
    layout = Layout.of(nn.Linear(10, 10))
    delta = torch.arange(1.0, layout.size + 1)
    pruning = make_defences("pruning(fraction=0.3)")
    pruned = pruning.on_update(delta, layout, rng())
    known = sent_entries(pruned, layout, pruning)
    assert torch.equal(known, pruned == delta)
    assert known.sum() == 70 + 7
    noisy = make_defences("pruning(fraction=0.3)+gaussian-noise(std=0.1)")
    assert sent_entries(pruned, layout, noisy) is None
    earlier = make_defences("gaussian-noise(std=0.1)+pruning(fraction=0.3)")
    assert torch.equal(sent_entries(pruned, layout, earlier), known)
    assert sent_entries(pruned, layout, make_defences("none")) is None


def test_zeros_that_pruning_cannot_have_made_are_known():
    layout = Layout.of(nn.Linear(10, 10))
    delta = torch.cat([torch.zeros(60), torch.ones(40), torch.zeros(2), torch.ones(8)])
    known = sent_entries(delta, layout, make_defences("pruning(fraction=0.3)"))
    assert known[:100].all()  # 60 zeros, of which at most 30 were pruned: all 30 were zeros before
    assert known[100:].tolist() == [False] * 2 + [True] * 8


@pytest.mark.parametrize(("spec", "variance"), [
    ("gaussian-noise(std=0.02)", 0.02**2),
    ("laplacian-noise(scale=0.02)", 2 * 0.02**2),
    ("clipping(norm=1.0)+gaussian-noise(std=0.02)+laplacian-noise(scale=0.01)", 0.02**2 + 2 * 0.01**2),
    ("clipping(norm=1.0)", 0.0),
])  # fmt: skip
def test_the_noise_on_a_gradient_is_that_on_the_update_over_the_rate(spec, variance):
    for recipe, rate in ((ONE_STEP, 0.1), (Recipe(epochs=3, batch_size=2, lr=0.05), 0.05 * 6)):
        access = seen_updates(smooth(), [scenes(4)], recipe)
        (update,) = attacked_updates(access, 1)
        assert gradient_noise(update, make_defences(spec)) == pytest.approx(variance / rate**2)


def test_the_noise_of_several_clients_averages_out_and_differential_privacy_adds_its_own():
    access = seen_sum(seen_updates(smooth(), [scenes(1), scenes(3)]))
    (update,) = attacked_updates(access, 1)
    noise = gradient_noise(update, make_defences("gaussian-noise(std=0.02)"))
    assert noise == pytest.approx(0.02**2 * (0.25**2 + 0.75**2) / 0.1**2)
    private = make_defences("differential-privacy(norm=0.5,noise=2.0,clients=4)")
    assert gradient_noise(update, private) == pytest.approx((2.0 * 0.5 / 4) ** 2 / 0.1**2)
    (single,) = attacked_updates(seen_updates(smooth(), [scenes(1)]), 1)
    assert gradient_noise(single, private) == 0


def test_tensors_count_by_their_share_of_signal():
    (update,) = attacked_updates(seen_updates(smooth(), [scenes()]), 1)
    target, _ = make_target(update, torch.zeros(1, dtype=torch.long), 1, 0, rng())
    gradient = torch.zeros(target.layout.size)
    named = target.layout.named(gradient)
    named["0.weight"].fill_(2.0)  # 54 entries: energy 216, of which 54 is noise of variance 1
    named["0.bias"].fill_(0.5)  # below the noise
    named["3.bias"][:2] = 3.0  # 5 entries: energy 18, of which 5 is noise
    target = dataclasses.replace(target, gradient=gradient)
    assert signal_weights(target, 1.0) == pytest.approx(
        {"0.weight": (216 - 54) / 216, "0.bias": 0.0, "3.weight": 0.0, "3.bias": (18 - 5) / 18}
    )
    known = torch.ones(target.layout.size, dtype=torch.bool)
    target.layout.named(known)["3.bias"][2:] = False
    masked = dataclasses.replace(target, known=known)
    assert signal_weights(masked, 1.0)["3.bias"] == pytest.approx((18 - 2) / 18)


def test_the_estimated_signal_is_that_of_the_gradient_without_noise():
    spec, std = "gaussian-noise(std=0.01)", 0.01 / ONE_STEP.lr
    (bare,) = attacked_updates(seen_updates(smooth(), [scenes()]), 1)
    (update,) = attacked_updates(sent_under(spec, scenes()), 1)
    target, _ = make_target(update, torch.zeros(1, dtype=torch.long), 1, 0, rng())
    known = adapt(target, update, make_defences(spec))
    clean = target.layout.named(bare.gradient())["3.weight"]
    signal, noise = float(clean.square().sum()), clean.numel() * std**2
    assert known.target.trust["3.weight"] == pytest.approx(signal / (signal + noise), abs=0.05)
    assert "stand out of the noise" in known.note


def test_where_nothing_stands_out_of_the_noise_all_tensors_count():
    access = sent_under("gaussian-noise(std=0.01)", scenes())
    (update,) = attacked_updates(access, 1)
    target, _ = make_target(update, torch.zeros(1, dtype=torch.long), 1, 0, rng())
    known = adapt(target, update, make_defences("gaussian-noise(std=100.0)"))
    assert known.target.trust is None
    assert "no tensor stands out" in known.note


def test_policies_in_a_row_have_the_cases_of_both():
    stack = make_defences(f"{policy('3')}+pruning+{policy('7-0')}")
    draws = [str(draw) for draw in draws_of(stack, (3, 8, 8))]
    assert len(draws) == 4
    assert "translateX -0.45, translateY +0.1, invert" in draws
    assert draws_of(make_defences("pruning"), (3, 8, 8)) == ()


def test_crops_and_flips_are_not_undone_and_the_note_says_so():
    spec = "transformation-policy(policy='0',crop_and_flip=True)"
    evidence = rebuilt(
        sent_under(spec, scenes()), spec, adaptive=True, attack="inverting-gradients(steps=2{})"
    )
    assert "crops and flips before the policy are not undone" in evidence.note


def holds_a_generator(value):
    """Whether any object that can be reached from `value` could draw, or has drawn."""
    waiting, seen = [value], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        if isinstance(one, torch.Generator):
            return True
        waiting += one if isinstance(one, list | tuple | set) else []
        waiting += one.values() if isinstance(one, dict) else []
        waiting += vars(one).values() if hasattr(one, "__dict__") else []
    return False


def test_settings_are_granted_to_those_who_ask_and_no_draws(engine):
    spec = f"{policy('3-1-7')}+gaussian-noise(std=0.01)"
    case = finished(engine, model=make_plain_model(), split=make_split((1,)), defence=spec)
    assert not holds_a_generator(Knowledge(defence=case.defence))
    assert holds_a_generator([{"rng": rng()}])
    words = f"the defences and their settings, without their random draws: {spec}"
    informed = examine(case, "inverting-gradients(steps=2,adaptive=True)", UpdateAccess)
    assert words in informed.granted
    assert not any(
        "defences" in known for known in examine(case, "inverting-gradients(steps=2)", UpdateAccess).granted
    )
    bare = finished(engine, model=make_plain_model(), split=make_split((1,)))
    assert examine(bare, "inverting-gradients(steps=2,adaptive=True)", UpdateAccess).granted == ()
    unknown = dataclasses.replace(case, defence=None)
    reason = examine(unknown, "inverting-gradients(steps=2,adaptive=True)", UpdateAccess).reason
    assert reason == "nobody knows which defences the clients use"


def test_draws_that_leave_the_same_update_leave_the_same_images():
    # Black stays black, however it is moved.
    symmetric = Images(torch.zeros(1, 1, SIDE, SIDE), torch.tensor([1]), CLASSES)
    spec = policy("3-7")
    first, other = (sent_under(spec, symmetric, seed=seed) for seed in (0, 4))
    assert torch.equal(first.rounds[0].updates[0].delta, other.rounds[0].updates[0].delta)
    attack = "inverting-gradients(steps=5{})"
    images = [rebuilt(access, spec, adaptive=True, attack=attack).x for access in (first, other)]
    assert torch.equal(*images)


def test_a_flag_that_is_none_is_refused():
    with pytest.raises(BadInput, match="adaptive = 1 is out of range"):
        ATTACKS.make("strongest-inversion(adaptive=1)")


def test_inversions_of_a_defended_federation_run_in_both_forms():
    specs = ["gap", "strongest-inversion(seconds=2.0)", "dlg(adaptive=True)", "linear-leak"]
    expected = ["strongest-inversion(seconds=2.0,adaptive=True)"]
    assert adaptive_forms(specs, policy("3-1-7")) == expected
    assert math.isclose(ATTACKS.make(expected[0]).seconds, 2.0)

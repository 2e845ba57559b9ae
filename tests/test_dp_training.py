"""What actually happens to gradients, updates and sums under differential privacy."""

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from glasshouse.data.images import Images
from glasshouse.data.split import Split
from glasshouse.defences import make_defences, settled_spec
from glasshouse.errors import BadInput
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.channels.channel import Ideal, RoundFailed
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.live import LiveClients
from glasshouse.federation.strategies.fedprox import FedProx
from glasshouse.learning.clipping import ClippedSum, NoisySum
from glasshouse.learning.engine import Engine
from glasshouse.learning.fit import batch_loss, fit, poisson_batches
from glasshouse.learning.layout import read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.step import PLAIN, Step, compose
from glasshouse.models.convolutional import lenet

SHAPE = (1, 8, 8)


def images(count, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return Images(torch.rand(count, *SHAPE, generator=rng), torch.randint(4, (count,), generator=rng), 4)


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 4))


def still():
    """A network whose gradients are all zero, with 40,000 weights."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 600), nn.Linear(600, 4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


NONE = np.empty(0, dtype=np.int64)


def federation(model, sizes, *, defence, engine=None, channel="plain", recipe=None, seed=0, **options):
    pool = images(sum(sizes))
    ends = np.cumsum([0, *sizes])
    clients = tuple(np.arange(first, last) for first, last in pairwise(ends))
    return Federation(
        model,
        Split(pool, clients, NONE, NONE, NONE),
        recipe or Recipe(batch_size=10, lr=0.1),
        engine=engine or Engine(1),
        defences=make_defences(defence),
        channel=CHANNELS.make(channel),
        seed=seed,
        **options,
    )


# --- records ---------------------------------------------------------------------------------------------


def test_gradients_are_clipped_one_by_one():
    model, data = network(), images(12)
    clipped = ClippedSum(model, 2.8)
    expected = [torch.zeros_like(part) for part in model.parameters()]
    lengths = []
    for x, y in zip(data.x, data.y):
        loss = nn.functional.cross_entropy(model(x[None]), y[None])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        length = torch.cat([part.flatten() for part in gradients]).norm()
        lengths.append(float(length))
        for total, part in zip(expected, gradients):
            total += part * min(1.0, 2.8 / float(length))
    assert min(lengths) < 2.8 < max(lengths)  # some of them are cut
    for total, wanted in zip(clipped(data.x, data.y).values(), expected):
        torch.testing.assert_close(total, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "model", [lenet(SHAPE, 4), nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 4))]
)
def test_one_pass_and_a_loop_over_samples_clip_alike(model):
    data = images(9)
    loss = batch_loss(model, Recipe(), PLAIN)
    clipped = ClippedSum(model, 0.3)
    together, alone = clipped(data.x, data.y), clipped.one_by_one(data.x, data.y, loss)
    for parameter in model.parameters():
        torch.testing.assert_close(together[parameter], alone[parameter], rtol=1e-4, atol=1e-6)


def test_one_record_moves_the_sum_by_no_more_than_the_norm():
    model, data = network(), images(20)
    clipped = ClippedSum(model, 0.7)
    huge = Images(torch.cat([data.x, 1000 * torch.ones(1, *SHAPE)]), torch.cat([data.y, data.y[:1]]), 4)
    with_one, without = clipped(huge.x, huge.y), clipped(data.x, data.y)
    moved = torch.cat([(with_one[part] - without[part]).flatten() for part in model.parameters()])
    assert float(moved.norm()) == pytest.approx(0.7, rel=1e-3)


def trained(model, data, step, recipe, seed=0):
    start = read_vector(model)
    return fit(copy.deepcopy(model), start, data, recipe, seed, step) - start


def test_noise_in_an_update_has_its_stated_scale():
    # Zero gradients: the update is lr * noise * norm / batch_size, whatever was drawn.
    recipe = Recipe(batch_size=10, epochs=1, lr=0.5)
    data = images(10)  # one step
    update = trained(still(), data, NoisySum(norm=2.0, noise=3.0), recipe)
    scale = 0.5 * 3.0 * 2.0 / 10
    # The loss at zero weights still has gradients by the last bias, of 4 entries.
    assert float(update[:-4].std()) == pytest.approx(scale, rel=0.02)
    assert abs(float(update[:-4].mean())) < 5 * scale / len(update) ** 0.5


def test_noise_adds_up_over_steps():
    recipe = Recipe(batch_size=10, epochs=2, lr=0.5)
    update = trained(still(), images(50), NoisySum(norm=1.0, noise=300.0), recipe)
    assert float(update.std()) == pytest.approx(0.5 * 300.0 / 10 * 10**0.5, rel=0.03)


@pytest.mark.parametrize("held", [1, 5, 40])
def test_the_divisor_is_public_and_not_the_number_of_records_drawn(held):
    # The public size is 20 and every record is drawn in every step: the sum of `held` equal gradients is
    # divided by 20, and the noise has the same scale whoever is there.
    recipe = Recipe(batch_size=0, lr=1.0)
    one = images(1)
    data = Images(one.x.repeat(held, 1, 1, 1), one.y.repeat(held), 4)
    model = network()
    quiet = trained(model, data, NoisySum(norm=0.1, noise=0.0, records=20), recipe)
    assert float(quiet.norm()) == pytest.approx(held * 0.1 / 20, rel=1e-3)
    loud = trained(model, data, NoisySum(norm=0.1, noise=1e4, records=20), recipe)
    assert float(loud.std()) == pytest.approx(1e4 * 0.1 / 20, rel=0.05)


def test_an_empty_batch_takes_a_step_of_noise_alone():
    data = images(2)
    recipe = Recipe(batch_size=1, epochs=5, lr=1.0)
    step = NoisySum(norm=1.0, noise=100.0, records=1000)  # each record is drawn with the chance 1 / 1000
    update = trained(still(), data, step, recipe)
    assert float(update.std()) == pytest.approx(100.0 * recipe.total_steps(1000) ** 0.5, rel=0.03)


def test_poisson_batches_vary_around_the_batch_size():
    recipe = Recipe(batch_size=20, epochs=200)
    drawn = list(poisson_batches(100, 100, recipe, np.random.default_rng(0)))
    sizes = np.array([len(batch) for batch in drawn])
    assert len(drawn) == recipe.total_steps(100) == 1000
    assert sizes.mean() == pytest.approx(20, abs=4 * 4 / 1000**0.5)  # std 4 = sqrt(100 * 0.2 * 0.8)
    assert sizes.std() == pytest.approx(4, rel=0.15)
    taken = np.bincount(torch.cat(drawn).numpy(), minlength=100)
    assert abs(taken - 200).max() < 5 * (1000 * 0.2 * 0.8) ** 0.5


def test_the_same_seed_trains_the_same_model():
    recipe = Recipe(batch_size=10, epochs=2, optimiser="adam", lr=0.01)
    step = NoisySum(norm=1.0, noise=1.0)
    first, again, other = (trained(network(), images(40), step, recipe, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_loss_that_a_strategy_adds_is_clipped_with_its_sample():
    class Confident(Step):
        def loss(self, model, logits, y):
            return 1000 * logits.square().mean()

    model, data = network(), images(1)
    recipe = Recipe(batch_size=0, lr=1.0)
    update = trained(model, data, compose(Confident(), NoisySum(norm=0.1, noise=0.0)), recipe)
    assert float(update.norm()) == pytest.approx(0.1, rel=1e-3)


def test_mixing_images_is_refused():
    for defence in ("dp-sgd(noise=1.0)+mix-up", "mix-up+dp-sgd(target_epsilon=1.0)"):
        with pytest.raises(BadInput, match="mix-up leaves no image a gradient of its own"):
            federation(network(), [20, 20], defence=defence)
    with pytest.raises(BadInput, match="mix-up leaves no image a gradient of its own"):
        trained(network(), images(9), NoisySum(norm=1.0, noise=1.0), Recipe(mix_up=1.0))


def test_smoothed_labels_are_clipped_with_the_rest():
    model, data = network(), images(9)
    recipe = Recipe(label_smoothing=0.4)
    clipped = ClippedSum(model, 2.0, recipe)
    together = clipped(data.x, data.y)
    alone = clipped.one_by_one(data.x, data.y, batch_loss(model, recipe, PLAIN))
    plain = ClippedSum(model, 2.0)(data.x, data.y)
    for parameter in model.parameters():
        torch.testing.assert_close(together[parameter], alone[parameter], rtol=1e-4, atol=1e-6)
    assert not torch.allclose(together[parameter], plain[parameter], atol=1e-3)


def test_both_kinds_work_with_defences_of_training():
    spec = "larger-batches+more-local-steps+label-smoothing+weight-decay+secure-aggregation+pruning"
    run = federation(network(), [20] * 3, defence=f"{spec}+dp-sgd(noise=1.0)+differential-privacy(noise=1.0)")
    plan = Plan(rounds=2)
    assert [made.unit for made in run.defences.promises(run.conditions(plan))] == ["record", "client"]
    assert torch.isfinite(run.run(read_vector(network()), plan).vector).all()


def test_two_mechanisms_for_one_gradient_are_refused():
    with pytest.raises(BadInput, match="both compute the gradient"):
        make_defences("dp-sgd+dp-sgd").training()


def test_a_proximal_term_is_no_matter_of_the_records():
    run = federation(network(), [20, 20], defence="dp-sgd(noise=1.0)", strategy=FedProx(mu=0.1))
    assert run.run(read_vector(network()), Plan(rounds=1)).rounds


@pytest.mark.parametrize("defence", ["dp-sgd", "differential-privacy"])
def test_batch_norm_is_refused_with_what_to_do_instead(defence):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 4))
    with pytest.raises(BadInput, match=r"replace it by group norm$"):
        federation(model, [20, 20], defence=defence)
    frozen = Recipe(batch_size=10, mode="eval")
    run = federation(model, [20, 20], defence=defence, recipe=frozen)
    start = read_vector(model)
    history = run.run(start, Plan(rounds=1))
    assert torch.equal(history.vector[-8:], start[-8:])  # the statistics
    grouped = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(144, 4))
    federation(grouped, [20, 20], defence=defence)


def test_batch_norm_without_statistics_of_its_own_is_refused_in_any_mode():
    norm = nn.BatchNorm2d(4, track_running_stats=False)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.Flatten(), nn.Linear(144, 4))
    for mode in ("train", "eval"):
        with pytest.raises(BadInput, match="covers no batch norm"):
            federation(model, [20, 20], defence="dp-sgd", recipe=Recipe(batch_size=10, mode=mode))


def test_adversarial_training_leaves_the_mode_as_it_is():
    model = network()
    step = make_defences("adversarial-training(steps=1)").training()
    data, rng = images(4), torch.Generator()
    for training in (True, False):
        step.prepare(model.train(training), data.x, data.y, rng)
        assert model.training == training


# --- clients ---------------------------------------------------------------------------------------------


def change(run, plan):
    model = still()
    start = read_vector(model)
    return run.run(start, plan).vector - start


@pytest.mark.parametrize("other", ["gaussian-noise(std=20.0)", "laplacian-noise(scale=5.0)"])
def test_whatever_else_clients_do_their_updates_keep_to_the_norm(other):
    private = "differential-privacy(norm=0.5,noise=0,clients=3)"
    for defence in (f"{private}+{other}", f"{other}+{private}"):
        run = federation(network(), [10] * 3, defence=defence)
        delivery = run.exchange(read_vector(network()), [0, 1, 2], 0).delivery
        assert all(float(update.delta.norm()) <= 0.5 * (1 + 1e-5) for update in delivery.updates)


def test_noise_on_the_sum_is_added_once():
    with pytest.raises(BadInput, match="more than one defence adds noise to the sum"):
        make_defences("differential-privacy(clients=1,noise=0.5)+differential-privacy(clients=1000)")


def test_a_channel_that_would_cut_the_noise_is_refused_with_the_clip_that_would_do():
    defence = "differential-privacy(norm=1.0,noise=20.0)"
    run = federation(still(), [10] * 4, defence=defence, channel="secure")
    with pytest.raises(BadInput, match=r"entries of up to 81, and the channel cuts them at 8.*clip=81"):
        run.run(read_vector(still()), Plan(rounds=1))
    run = federation(still(), [10] * 4, defence=defence, channel="secure(clip=81.0)")
    assert run.run(read_vector(still()), Plan(rounds=1)).rounds
    assert federation(still(), [10] * 4, defence=defence).run(read_vector(still()), Plan(rounds=1)).rounds


def test_a_round_whose_clients_all_drop_out_is_one_without_clients():
    run = federation(
        still(), [10] * 8, defence="differential-privacy(noise=1.0)", channel="plain(dropout=0.5)", seed=1
    )
    rounds = run.run(read_vector(still()), Plan(rounds=20, fraction=0.2)).rounds
    assert any(len(row.clients) == 1 for row in rounds)  # half of one drops out: nobody is left
    assert len(rounds) == 20


SCALES = {"plain": "plain", "ideal": "ideal", "secure": "secure(clip=4000.0)"}


@pytest.mark.parametrize("channel", list(SCALES))
def test_the_noise_on_the_mean_has_its_stated_scale_through_any_channel(channel):
    run = federation(
        still(),
        [10, 20, 30, 40],
        defence="differential-privacy(norm=2.0,noise=50.0)",
        channel=SCALES[channel],
    )
    moved = change(run, Plan(rounds=1))
    assert float(moved.std()) == pytest.approx(50.0 * 2.0 / 4, rel=0.02)


def test_a_client_that_hides_its_update_adds_a_share_of_the_noise():
    run = federation(
        still(), [10] * 4, defence="differential-privacy(norm=2.0,noise=50.0,clients=4)", channel="ideal"
    )
    alone = run.exchange(read_vector(still()), [2], 0).delivery.mean
    assert float(alone.std()) == pytest.approx(50.0 * 2.0 / 4, rel=0.02)  # alone, it adds all of it
    pair = run.exchange(read_vector(still()), [1, 2], 0).delivery.mean
    assert float(pair.std()) == pytest.approx(50.0 * 2.0 / 4, rel=0.02)


def test_drop_outs_that_are_expected_leave_the_noise_whole():
    run = federation(
        still(),
        [10] * 8,
        defence="differential-privacy(norm=1.0,noise=80.0)",
        channel="secure(clip=4000.0,dropout_before=0.25)",
    )
    assert float(change(run, Plan(rounds=1)).std()) == pytest.approx(80.0 / 8, rel=0.02)


def test_a_sum_with_less_noise_than_promised_is_not_opened():
    class Losing(Ideal):
        def deliver(self, updates, seed):
            return super().deliver(updates[1:], seed)

    run = federation(still(), [10] * 4, defence="differential-privacy(clients=4)").through(Losing())
    with pytest.raises(RoundFailed, match="3 clients are left, and their noise takes 4"):
        run.exchange(read_vector(still()), [0, 1, 2, 3], 0)


def test_all_clients_weigh_the_same_and_reach_the_norm():
    run = federation(
        network(), [10, 200], defence="differential-privacy(norm=0.01,noise=0)", recipe=Recipe(lr=1.0)
    )
    start = read_vector(network())
    outcome = run.settled(Plan(rounds=1)).exchange(start, [0, 1], 0).delivery
    assert [float(update.delta.norm()) for update in outcome.updates] == pytest.approx([0.01, 0.01], rel=1e-3)
    assert [update.samples for update in outcome.updates] == [10, 200]
    assert outcome.samples == 210
    expected = (outcome.updates[0].delta + outcome.updates[1].delta) / 2
    torch.testing.assert_close(outcome.mean, expected)


def test_the_divisor_is_the_expected_cohort_and_not_the_one_drawn():
    run = federation(network(), [10] * 10, defence="differential-privacy(norm=0.01,noise=0)")
    settled = run.settled(Plan(rounds=1, fraction=0.5))
    start = read_vector(network())
    for cohort in ([3], [0, 1, 2, 3, 4, 5, 6, 7]):
        for keep in (True, False):
            delivery = settled.exchange(start, cohort, 0, keep_updates=keep).delivery
            alone = [settled.exchange(start, [client], 0).delivery.mean for client in cohort]
            torch.testing.assert_close(delivery.mean, sum(alone), rtol=1e-4, atol=1e-8)
            assert float(alone[0].norm()) <= 0.01 / 5 * (1 + 1e-5)


def test_cohorts_are_drawn_client_by_client_and_may_be_empty():
    run = federation(still(), [10] * 6, defence="differential-privacy(noise=1.0)", seed=3)
    history = run.run(read_vector(still()), Plan(rounds=60, fraction=1 / 3))
    counts = np.array([len(row.clients) for row in history.rounds])
    assert len(set(counts.tolist())) > 2
    assert counts.mean() == pytest.approx(2, abs=4 * (6 * 2 / 9 / 60) ** 0.5)
    assert (counts == 0).any()
    fixed = federation(still(), [10] * 6, defence="differential-privacy(noise=1.0,sampling='fixed')")
    rounds = fixed.run(read_vector(still()), Plan(rounds=5, fraction=1 / 3)).rounds
    assert {len(row.clients) for row in rounds} == {2}


def test_a_round_without_clients_is_noise_alone():
    run = federation(still(), [10] * 4, defence="differential-privacy(norm=2.0,noise=50.0,clients=4)")
    moved = run._without_clients(0).delivery.mean
    assert float(moved.std()) == pytest.approx(50.0 * 2.0 / 4, rel=0.02)


@pytest.mark.parametrize("defence", ["dp-sgd(noise=1.0)", "differential-privacy(target_epsilon=5.0)"])
def test_numbers_do_not_depend_on_the_number_of_workers(defence):
    plan = Plan(rounds=2, fraction=0.5)
    vectors = []
    for workers in (1, 2):
        with Engine(workers) as engine:
            run = federation(network(), [20] * 4, defence=defence, engine=engine)
            vectors.append(run.run(read_vector(network()), plan).vector)
    assert torch.equal(*vectors)


# --- plans -----------------------------------------------------------------------------------------------


def test_a_target_is_solved_for_before_the_first_round():
    plan = Plan(rounds=3)
    run = federation(network(), [20] * 4, defence="differential-privacy(target_epsilon=2.0)")
    with pytest.raises(BadInput, match="cannot know its noise before"):
        run.exchange(read_vector(network()), [0], 0)
    settled = run.settled(plan)
    (promise,) = settled.defences.promises(settled.conditions(plan))
    assert 1.98 < promise.epsilon <= 2.0
    assert settled.defences.defences[0].noise == promise.noise
    assert settled.settled(plan) is settled
    assert LiveClients(settled, read_vector(network())).exchange(read_vector(network()), [0], 0).clients == (
        0,
    )


def test_others_train_under_the_noise_that_was_solved_for():
    run = federation(network(), [20] * 4, defence="none")
    conditions = run.conditions(Plan(rounds=3))
    spec = "clipping(norm=1.0)+dp-sgd(norm=0.5,target_epsilon=3.0)"
    settled = settled_spec(spec, conditions)
    (promise,) = make_defences(spec).promises(conditions)
    assert settled == f"clipping(norm=1.0)+dp-sgd(norm=0.5,noise={promise.noise!r})"
    assert settled_spec("none", conditions) == "none"
    assert settled_spec("pruning", conditions) == "pruning"

"""Parts of a network that are frozen: nobody trains or sends them, and attacks see what is sent alone."""

from copy import deepcopy

import cloudpickle
import pytest
import torch
import torch.nn.functional as F
from conftest import SHAPE, make_images, make_model, make_plain_model, make_split
from sent_updates import seen_updates
from torch import nn

from glasshouse.access import BlindServerAccess, UpdateAccess
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.crafted.cut import find_cut
from glasshouse.attacks.inversion.exact import LinearLeak
from glasshouse.attacks.inversion.published import InvertingGradients
from glasshouse.attacks.inversion.spear import leading_layer
from glasshouse.attacks.inversion.target import Matcher
from glasshouse.attacks.inversion.targets import make_target
from glasshouse.attacks.inversion.updates import attacked_updates, mixes_batches, training_network
from glasshouse.attacks.labels.counts import LabelCountsFromUpdates
from glasshouse.attacks.labels.head import last_linear
from glasshouse.attacks.membership.alignment import alignments
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.foresight import why_not
from glasshouse.auditing.setting import Setting
from glasshouse.defences.private_sgd import PrivateSGD
from glasshouse.errors import BadInput, CannotRun
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.models import build
from glasshouse.models.freezing import exchanged, freeze, frozen_names, frozen_tensors

RNG = torch.Generator().manual_seed(0)
RECIPE = Recipe(epochs=2, batch_size=8, lr=0.1)


def head_only(name="mlp", pattern="5.*", shape=(1, 8, 8), classes=4):
    torch.manual_seed(0)
    network = build(name, shape, classes)
    freeze(network, [pattern])
    return network


def with_norm():
    """A convolution with batch norm, frozen, in front of a head that is trained."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.BatchNorm2d(3, affine=False))
    with torch.no_grad():
        for norm in (body[1], body[3]):
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)
    network = nn.Sequential(body, nn.Flatten(), nn.Linear(3 * 36, 4))
    body.requires_grad_(False)
    freeze(network)
    return network


def test_the_vector_holds_what_is_trained_and_the_buffers_of_parts_that_are():
    network = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2), nn.BatchNorm1d(2))
    freeze(network, ["2.*", "3.*"])
    layout = Layout.of(network)
    assert layout.names == (
        "2.weight", "2.bias", "3.weight", "3.bias", "3.running_mean", "3.running_var",
    )  # fmt: skip
    assert layout.trainable == 6 + 2 + 2 + 2
    assert layout.size == len(read_vector(network)) == layout.trainable + 4


def test_where_nothing_is_frozen_the_vector_holds_all():
    network, before = make_model(), Layout.of(make_model())
    freeze(network)
    assert Layout.of(network) == before
    assert not list(frozen_names(network))
    names = [name for name, _ in network.named_parameters()]
    assert before.names[: len(names)] == tuple(names)


def test_a_layer_that_an_attack_switches_off_is_sent_like_any_other():
    network = make_plain_model()
    before = Layout.of(network)
    next(network.parameters()).requires_grad_(False)
    assert Layout.of(network) == before


@pytest.mark.parametrize("copied", [deepcopy, lambda network: cloudpickle.loads(cloudpickle.dumps(network))])
def test_copies_and_networks_around_one_know_what_is_frozen(copied):
    network = with_norm()
    around = nn.Sequential(nn.Identity(), copied(network))
    assert set(frozen_names(around)) == {f"1.{name}" for name in frozen_names(network)}
    around.train()
    assert [norm.training for norm in (around[1][0][1], around[1][0][3])] == [False, False]
    assert around[1][2].training


def test_patterns_choose_what_is_trained_whatever_the_network_said_before():
    network = make_plain_model()
    network.requires_grad_(False)
    names = [name for name, _ in network.named_parameters()]
    freeze(network, ["*.bias"])
    assert list(exchanged(network)) == [name for name in names if name.endswith("bias")]
    assert all(parameter.requires_grad for parameter in exchanged(network).values())


def test_a_tied_tensor_is_trained_where_one_of_its_names_is_chosen():
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    network[1].weight = network[0].weight
    freeze(network, ["1.weight"])
    assert list(exchanged(network)) == ["0.weight"]


def test_a_pattern_that_matches_nothing_is_refused_with_the_names_there_are():
    with pytest.raises(
        BadInput, match=r"model.train = 'fc\.\*' matches no parameter .* 1.weight, .*, 5.bias"
    ):
        freeze(build("mlp", SHAPE, 4), ["5.*", "fc.*"])


def test_training_moves_the_head_alone_as_a_step_on_its_features_would():
    network, images = with_norm(), make_images(12)
    network[0].eval()
    with torch.no_grad():
        features = network[0](images.x).flatten(1)
    head = deepcopy(network[2])
    F.cross_entropy(head(features), images.y).backward()
    expected = torch.cat([(p - 0.3 * p.grad).detach().flatten() for p in head.parameters()])
    before = [tensor.clone() for tensor in frozen_tensors(network)]
    reached = fit(network, read_vector(network), images, Recipe(batch_size=0, lr=0.3), seed=0)
    torch.testing.assert_close(reached, expected)
    assert all(torch.equal(tensor, kept) for tensor, kept in zip(frozen_tensors(network), before))


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_weight_decay_and_momenta_leave_frozen_parts_alone(optimiser):
    network = head_only(shape=SHAPE)
    before = [tensor.clone() for tensor in frozen_tensors(network)]
    fit(network, read_vector(network), make_images(12), Recipe(optimiser=optimiser, weight_decay=0.1), seed=0)
    assert all(torch.equal(tensor, kept) for tensor, kept in zip(frozen_tensors(network), before))


@pytest.mark.parametrize("channel", ["plain", "secure"])
def test_a_federation_sends_the_head_alone(engine, channel):
    network = head_only(shape=SHAPE)
    federation = Federation(
        network, make_split((9, 9)), RECIPE, engine=engine, channel=CHANNELS.make(channel)
    )
    history = federation.run(read_vector(network), Plan(rounds=1))
    numbers = 200 * 4 + 4
    assert len(history.vector) == numbers
    row = history.rounds[0]
    if channel == "plain":
        assert row.down == row.up == 4 * numbers
    else:  # masked numbers of 22 bits and what the protocol adds
        assert 22 / 8 * numbers < row.up < 2 * 4 * numbers


@pytest.mark.parametrize("strategy", ["scaffold", "fedprox(mu=0.0)"])
def test_strategies_that_steer_gradients_do_so_for_the_head(engine, strategy):
    """With one client the control variates cancel, and without a pull nothing is added: FedAvg remains."""
    network, split = head_only(shape=SHAPE), make_split((12,))
    vectors = [
        Federation(network, split, RECIPE, engine=engine, strategy=STRATEGIES.make(name), seed=1)
        .run(read_vector(network), Plan(rounds=2))
        .vector
        for name in (strategy, "fedavg")
    ]
    torch.testing.assert_close(*vectors)


def test_a_pull_back_holds_the_head_near_what_was_sent(engine):
    network, split = head_only(shape=SHAPE), make_split((12,))
    start = read_vector(network)
    moved = [
        (Federation(network, split, RECIPE, engine=engine, strategy=STRATEGIES.make(f"fedprox(mu={mu})"))
         .run(start, Plan(rounds=1)).vector - start).norm()
        for mu in (0.0, 5.0)
    ]  # fmt: skip
    assert moved[1] < 0.8 * moved[0]


def test_strategies_that_read_the_last_layer_refuse_one_that_is_frozen(engine):
    network = head_only(pattern="1.*", shape=SHAPE)
    federation = Federation(network, make_split(), RECIPE, engine=engine, strategy=STRATEGIES.make("fedgen"))
    with pytest.raises(BadInput, match="reads the last layer in what clients send, and it is frozen"):
        federation.run(read_vector(network), Plan(rounds=1))


def test_differential_privacy_covers_a_head_behind_frozen_batch_norm():
    PrivateSGD().check(with_norm(), Recipe())
    trained = with_norm()
    trained.requires_grad_(True)
    with pytest.raises(BadInput, match="covers no batch norm"):
        PrivateSGD().check(nn.Sequential(nn.BatchNorm2d(3), trained), Recipe())


def test_private_training_of_a_head_clips_each_records_gradient_of_the_head():
    network, image = with_norm(), make_images(1)
    step = PrivateSGD(norm=0.01, noise=0.0).training()
    start = read_vector(network)
    moved = fit(network, start, image, Recipe(batch_size=0, lr=1.0), 0, step) - start
    assert float(moved.norm()) == pytest.approx(0.01, rel=1e-4)


def test_what_is_not_sent_cannot_be_read_and_the_reason_says_so():
    network = head_only()
    layout, vector = Layout.of(network), read_vector(network)
    with pytest.raises(CannotRun, match=r"1\.weight is frozen: clients train and send 5\.weight, 5\.bias"):
        layout.named(vector)["1.weight"]
    with pytest.raises(KeyError):
        layout.named(vector)["7.weight"]


def test_attacks_on_a_frozen_first_layer_say_that_features_are_all_there_is():
    access = seen_updates(head_only(), [make_images(3)])
    with pytest.raises(CannotRun, match="divide into features and not into pixels"):
        LinearLeak().run(access, Knowledge(), RNG)
    with pytest.raises(CannotRun, match=r"1\.weight is frozen"):
        leading_layer(access.protocol)
    with pytest.raises(CannotRun, match=r"1\.weight is frozen"):
        find_cut(access.protocol)


@pytest.mark.parametrize("attack", ["linear-leak", "spear", "scale-mia-peeled(steps=5)", "label-counts"])
def test_what_an_attack_needs_that_is_frozen_is_known_before_the_training(attack):
    data = {"clients": 2, "members": 20, "nonmembers": 8, "auxiliary": 8, "test": 8}
    model = {"name": "mlp", "train": "5.*"}
    experiment = prepare(Setting(data=data, model=model, audit={"defences": []}))
    adversary = BlindServerAccess if attack.startswith("scale-mia") else UpdateAccess
    reason = why_not(experiment, attack, adversary)
    assert reason is None if attack == "label-counts" else "frozen" in str(reason)


def test_a_frozen_head_is_named_as_the_reason_why_labels_do_not_show():
    access = seen_updates(head_only(pattern="1.*"), [make_images(3)])
    with pytest.raises(CannotRun, match=r"5\.weight is frozen"):
        last_linear(access.protocol)


def test_labels_show_in_the_gradient_of_a_head_alone():
    images = make_images(1)
    counted = LabelCountsFromUpdates().run(seen_updates(head_only(), [images]), Knowledge(), RNG)
    assert counted.counted[0].counts.tolist() == images.label_counts().tolist()


def test_the_true_image_explains_the_gradient_of_the_head_exactly():
    images = make_images(1)
    (update,) = attacked_updates(seen_updates(with_norm(), [images]), 1)
    target, note = make_target(update, images.y, 1, 0, RNG)
    matcher = Matcher(target)
    assert matcher.names == ["2.weight", "2.bias"]
    assert note is None  # frozen batch norm mixes no images
    for gradient, seen in zip(matcher(images.x[None], images.y), matcher.seen):
        torch.testing.assert_close(gradient, seen, rtol=1e-3, atol=1e-5)


def test_an_image_is_sought_by_the_gradient_of_the_head():
    access = seen_updates(head_only(), [make_images(1)])
    found = InvertingGradients(steps=3, labels="counts").run(access, Knowledge(), RNG)
    assert "sought by the gradient of what is sent: 5.weight, 5.bias" in str(found.note)


def test_alignment_is_with_the_gradient_of_what_is_trained():
    network, images = head_only(), make_images(5)
    protocol = seen_updates(network, [images]).protocol
    sent = read_vector(network)
    gradient = -fit(deepcopy(network), sent, images[:1], Recipe(batch_size=0, lr=1.0), 0) + sent
    whole = alignments(protocol, sent, -gradient[None], images.x, images.y)
    head = alignments(protocol, sent, -gradient[None], images.x, images.y, last_linear(protocol))
    torch.testing.assert_close(torch.from_numpy(whole), torch.from_numpy(head), rtol=1e-3, atol=1e-5)


def test_an_attacker_runs_the_network_in_the_clients_mode():
    access = seen_updates(with_norm(), [make_images(3)])
    network = training_network(access.protocol, access.rounds[0].sent)
    assert not mixes_batches(network)
    assert not network[0][1].training
    assert network[2].training


def test_writing_a_vector_leaves_frozen_parts_alone():
    network = with_norm()
    before = [tensor.clone() for tensor in frozen_tensors(network)]
    write_vector(network, torch.ones(Layout.of(network).size))
    assert all(torch.equal(tensor, kept) for tensor, kept in zip(frozen_tensors(network), before))
    assert (network[2].weight == 1).all()

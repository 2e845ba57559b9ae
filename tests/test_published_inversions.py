"""Published inversions: their settings, and their objectives computed independently."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from matching_targets import CLASSES, SHAPE, pictures, rng, smooth, target_of
from sent_updates import seen_updates
from torch import Tensor, nn

from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.inversion.matching import Objective
from glasshouse.attacks.inversion.priors import LayerStatistics, StatisticsPrior
from glasshouse.attacks.inversion.updates import attacked_updates
from glasshouse.data.images import Images
from glasshouse.learning.recipe import Recipe
from glasshouse.models import build

REPLICATION = {"most": 1, "labels": "given"}
ADAM = {"optimiser": "adam", "lr": 0.1, "steps": 4800, "schedule": "steps", "signed": True, "boxed": True}
YIN = {
    "optimiser": "adam", "lr": 0.1, "schedule": "cosine", "warmup": 50, "signed": False, "labels": "smallest",
    "distance": "l2", "tv": 1e-4, "l2": 1e-6, "batch_norm": 0.1,
}  # fmt: skip
ZHU = {"optimiser": "lbfgs", "lr": 1.0, "steps": 300, "distance": "l2", "signed": False, "boxed": False}

PUBLISHED = {
    "dlg": ZHU | {"most": 1, "labels": "joint"},
    "idlg": ZHU | {"most": 1, "labels": "idlg"},
    "inverting-gradients": ADAM | {"most": 8, "distance": "cosine", "tv": 0.2},
    "gradinversion": YIN | {"most": 48, "langevin": 0.2, "statistics": "running", "group": 0.01},
    "gradvit": YIN | {"most": 8, "langevin": 0.02, "statistics": "auxiliary", "patch": 1e-4},
    "april-optim": {"most": 1, "optimiser": "adam", "labels": "idlg", "distance": "l2", "position": 1.0},
    "adam-cosine": REPLICATION | ADAM | {"distance": "cosine", "tv": 1e-4},
    "adam-l1": REPLICATION | ADAM | {"distance": "l1", "tv": 1e-4},
    "adam-l2": REPLICATION | ADAM | {"distance": "l2", "tv": 1e-4},
    "sgd-cosine": REPLICATION | ADAM | {"optimiser": "sgd", "lr": 0.01, "distance": "cosine", "tv": 1e-4},
    "lbfgs-l2": REPLICATION | {
        "optimiser": "lbfgs", "lr": 1e-4, "steps": 50, "restarts": 2, "distance": "l2", "tv": 1e-3,
    },
    "lbfgs-cosine": REPLICATION | {
        "optimiser": "lbfgs", "lr": 1e-4, "steps": 300, "restarts": 16, "distance": "cosine", "tv": 1e-4,
    },
}  # fmt: skip
"""The constants of the papers and of their authors' code, written down apart from the presets."""

PENALTIES = ("tv", "l2", "batch_norm", "group")


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_has_the_constants_of_its_paper(name):
    attack = ATTACKS.make(name)
    expected = dict.fromkeys(PENALTIES, 0.0) | {"langevin": 0.0, "weighting": "equal"} | PUBLISHED[name]
    assert {option: getattr(attack, option) for option in expected} == expected


def test_the_optimisers_are_set_as_published():
    moved = [torch.zeros(2, requires_grad=True)]
    sgd = ATTACKS.make("sgd-cosine").pace.make(moved).defaults
    assert (sgd["lr"], sgd["momentum"], sgd["nesterov"]) == (0.01, 0.9, True)
    rates = ATTACKS.make("inverting-gradients").pace
    assert [round(rates.rate(place), 6) for place in (0, 1799, 1800, 3000, 4200)] == [
        0.1, 0.1, 0.01, 0.001, 0.0001,
    ]  # fmt: skip
    assert isinstance(ATTACKS.make("dlg").pace.make(moved), torch.optim.LBFGS)


class Positioned(nn.Module):
    """Pixels with learned positions, then softmax regression: every gradient can be written down."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.position = nn.Parameter(torch.rand(24, generator=rng(1)))
        self.head = nn.Linear(24, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(1) + self.position)


def normed_regression():
    """Batch norm on the pixels, then softmax regression; it cuts patches of two pixels, and says so."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(24), nn.Linear(24, CLASSES))
    layer = network[1]
    with torch.no_grad():
        for tensor in (layer.weight, layer.bias, layer.running_mean):
            tensor.copy_(torch.rand(24, generator=rng(1)))
        layer.running_var.copy_(0.1 + torch.rand(24, generator=rng(2)))
    network.patch_size = 2
    return network.double().eval()


def gradient_by_hand(network, x, labels):
    """The gradient of the mean cross-entropy in numpy, by parameter; labels are probabilities."""
    arrays = {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}
    rows, head = x.reshape(len(x), -1), "head" if "position" in arrays else "2"
    if "position" in arrays:
        entering = rows + arrays["position"]
    else:
        centred = (rows - arrays["1.running_mean"]) / np.sqrt(arrays["1.running_var"] + network[1].eps)
        entering = arrays["1.weight"] * centred + arrays["1.bias"]
    W = arrays[f"{head}.weight"]
    logits = entering @ W.T + arrays[f"{head}.bias"]
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    slope = (p - labels) / len(x)
    back = slope @ W
    of_head = {f"{head}.weight": slope.T @ entering, f"{head}.bias": slope.sum(0)}
    if "position" in arrays:
        return {"position": back.sum(0)} | of_head
    return {"1.weight": (back * centred).sum(0), "1.bias": back.sum(0)} | of_head


def angle(one, other):
    return 1 - one @ other / math.sqrt(one @ one) / math.sqrt(other @ other)


def by_hand(constants, gradient, seen, x, statistics=None, agreed=None, *, penalised=True):
    """The objective in numpy, from the formulas of its paper and its published constants."""
    flat, other = (np.concatenate([part.ravel() for part in parts.values()]) for parts in (gradient, seen))
    value = {
        "l2": ((flat - other) ** 2).sum(),
        "l1": np.abs(flat - other).sum(),
        "cosine": angle(flat, other),
    }[constants["distance"]]
    if "position" in constants:
        value += constants["position"] * angle(gradient["position"], seen["position"])
    if agreed is not None:
        value += constants["group"] * ((x - agreed) ** 2).sum((1, 2, 3)).mean()
    if not penalised:
        return value
    rows, weight = x.reshape(len(x), -1), dict.fromkeys((*PENALTIES, "patch"), 0.0) | constants
    value += weight["tv"] * (np.abs(np.diff(x, axis=3)).mean() + np.abs(np.diff(x, axis=2)).mean())
    value += weight["l2"] * np.sqrt((rows**2).sum(1)).mean()
    seams = ((x[:, :, 2] - x[:, :, 1]) ** 2).sum((1, 2)) + ((x[..., 2] - x[..., 1]) ** 2).sum((1, 2))
    value += weight["patch"] * seams.mean()
    if statistics is not None:
        for found, expected in zip((rows.mean(0), rows.var(0)), statistics):
            value += weight["batch_norm"] * np.sqrt(((found - expected) ** 2).sum())
    return value


def images_of(count):
    images = pictures(count)
    return Images(images.x.double(), images.y, CLASSES)


def network_for(name):
    return Positioned().double() if name == "april-optim" else normed_regression()


def prior_for(attack, network, target):
    """The batch norm statistics that the images of an attack shall have, and the same as arrays."""
    if attack.statistics == "auxiliary":  # those of some other network
        other, mean, var = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(24)).double().eval(), *torch.rand(2, 24)
        prior = StatisticsPrior(other, {"1": LayerStatistics(mean.double(), var.double())})
        return prior, (mean.numpy(), var.numpy())
    access = seen_updates(network.float(), [pictures(3)], Recipe(batch_size=0, lr=0.1, mode="eval"))
    (update,) = attacked_updates(access, 1)
    prior = attack.statistics_prior(update, target, Knowledge())
    network.double()
    return prior, (network[1].running_mean.numpy(), network[1].running_var.numpy())


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_objective_of_a_preset_is_the_one_written_in_its_paper(name, share):
    constants, attack, network, images = PUBLISHED[name], ATTACKS.make(name), network_for(name), images_of(3)
    joint = constants.get("labels") == "joint"
    target = target_of(network, images, labels=None if joint else images.y)
    prior, statistics = prior_for(attack, network, target) if "batch_norm" in constants else (None, None)
    x = torch.rand(1, 3, *SHAPE, generator=rng(7)).double()
    soft = torch.randn(3, CLASSES, generator=rng(8)).double() if joint else None
    labels = soft.softmax(1) if joint else torch.eye(CLASSES)[images.y].double()
    gradient = gradient_by_hand(network, x[0].numpy(), labels.numpy())
    named = target.layout.named(target.gradient)
    seen = {parameter: named[parameter].numpy() for parameter in gradient}
    late_priors = name == "gradvit"
    expected = by_hand(
        constants, gradient, seen, x[0].numpy(), statistics, penalised=share > 0 or not late_priors
    )
    assert Objective(attack, target, prior)(x, soft, share).item() == pytest.approx(expected, rel=1e-5)


def test_a_group_is_held_together_by_what_its_members_have_in_common():
    constants, network, images = PUBLISHED["gradinversion"], normed_regression(), images_of(2)
    attack = ATTACKS.make("gradinversion(batch_norm=0)")
    target = target_of(network, images)
    objective = Objective(attack, target, None)
    x, agreed = torch.rand(2, 1, 2, *SHAPE, generator=rng(7)).double()
    objective.agreed = agreed[0]
    gradient = gradient_by_hand(network, x[0].numpy(), torch.eye(CLASSES)[images.y].double().numpy())
    named = target.layout.named(target.gradient)
    seen = {parameter: named[parameter].numpy() for parameter in gradient}
    expected = by_hand(constants, gradient, seen, x[0].numpy(), agreed=agreed[0].numpy())
    assert objective(x, None, 0.0).item() == pytest.approx(expected, rel=1e-9)
    alone = by_hand(constants, gradient, seen, x[0].numpy())
    assert expected > alone + 1e-3


def test_a_group_pulls_on_what_is_returned():
    access = seen_updates(smooth(), [pictures(1, shape=(1, 6, 6))])
    (update,) = attacked_updates(access, 1)
    found = {}
    for group in (0.0, 100.0):
        attack = ATTACKS.make(f"gradinversion(steps=30,restarts=3,batch_norm=0,langevin=0,group={group})")
        found[group] = attack.rebuild(update, Knowledge(), rng(3)).x
    assert not torch.equal(found[0.0], found[100.0])


@pytest.mark.parametrize("name", PUBLISHED)
def test_slopes_agree_with_finite_differences(name):
    attack = dataclasses.replace(ATTACKS.make(name), batch_norm=0.0)
    network = network_for(name) if name in ("april-optim", "gradvit") else smooth(SHAPE).double()
    images = Images(pictures(2).x.double(), torch.tensor([1, 3]), CLASSES)
    target = target_of(network, images, labels=None if attack.labels == "joint" else images.y)
    objective = Objective(attack, target, None)
    x = torch.rand(1, 2, *SHAPE, generator=rng(3)).double().requires_grad_()
    soft = torch.randn(2, CLASSES, generator=rng(4)).double() if attack.labels == "joint" else None
    (slope,) = torch.autograd.grad(objective(x, soft, 0.5), x)
    direction = torch.randn(x.shape, generator=rng(5)).double()
    h = 1e-6
    with torch.enable_grad():
        difference = objective(x + h * direction, soft, 0.5) - objective(x - h * direction, soft, 0.5)
    assert (slope * direction).sum().item() == pytest.approx(difference.item() / (2 * h), rel=1e-4)


@pytest.mark.parametrize("prior", ["patch=1.0,batch_norm=0", "batch_norm=1.0,epochs=1"])
def test_what_gradvit_returns_follows_its_priors(prior):
    torch.manual_seed(0)
    shape = (1, 8, 8)
    access = seen_updates(build("april-vit", shape, CLASSES), [pictures(1, shape=shape)])
    knowledge = Knowledge(auxiliary=pictures(20, 3, shape))
    plain, guided = (
        ATTACKS.make(f"gradvit(steps=12,langevin=0,{options})").run(access, knowledge, rng()).x
        for options in ("patch=0,batch_norm=0", prior)
    )
    assert not torch.equal(plain, guided)

"""Networks as users bring them: attention, unused parameters, backbones that let no gradient through."""

import pytest
import torch
import torch.nn.functional as F
from conftest import CLASSES, SHAPE, make_images
from sent_updates import seen_updates
from torch import Tensor, nn

from glasshouse import Setting, audit
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.crafted.imprint_gain import fixed_picture
from glasshouse.attacks.inversion.april import find_patches
from glasshouse.attacks.inversion.spear import leading_layer
from glasshouse.attacks.inversion.swift import SwiftInversion
from glasshouse.attacks.inversion.target import CUT_OFF
from glasshouse.attacks.inversion.updates import attacked_updates
from glasshouse.defences.hardening import AdversarialTraining
from glasshouse.errors import BadInput, CannotRun, Fault

SEARCH = SwiftInversion(steps=3)


class Attentive(nn.Module):
    """One layer of torch's own attention over the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(1, 2)
        mixed, _ = self.attention(rows, rows, rows, need_weights=False)
        return self.head(mixed.flatten(1))


class Fused(nn.Module):
    """The same attention as one call of a function."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.maps = nn.Linear(8, 24)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.contiguous() for part in self.maps(x).chunk(3, -1))
        return self.head(F.scaled_dot_product_attention(q, k, v).flatten(1))


class Spare(nn.Module):
    """A second head that no loss uses."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(64, 16)
        self.auxiliary = nn.Linear(16, 2)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x.flatten(1)).sigmoid())


class Shut(nn.Module):
    """A backbone that is frozen by what `forward` does, and a head."""

    def __init__(self, kind: str = "no_grad", *, patches: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.body = nn.Conv2d(1, 4, 4, stride=4) if patches else nn.Linear(64, 16)
        self.position = nn.Parameter(torch.zeros(16))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        into = x if isinstance(self.body, nn.Conv2d) else x.flatten(1)
        if self.kind == "no_grad":
            with torch.no_grad():
                features = self.body(into).relu().flatten(1)
        else:
            features = self.body(into).relu().flatten(1).detach()
        return self.head(features + self.position)


class Prototypes(nn.Module):
    """Distances from prototypes, of which torch has no second derivative."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(64, 16)
        self.prototypes = nn.Parameter(torch.randn(8, 16))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.cdist(self.body(x.flatten(1)), self.prototypes))


def update_of(network):
    (update,) = attacked_updates(seen_updates(network, [make_images(2)]), 1)
    return update


def sought(network):
    return SEARCH.rebuild(update_of(network), Knowledge(), torch.Generator().manual_seed(0))


@pytest.mark.parametrize("network", [Attentive, Fused, Spare])
def test_images_are_sought_through_attention_and_past_parameters_that_no_loss_uses(network):
    assert torch.isfinite(sought(network()).x).all()


@pytest.mark.parametrize("kind", ["no_grad", "detach"])
def test_images_that_are_cut_off_from_the_gradient_are_not_sought(kind):
    with pytest.raises(CannotRun, match=CUT_OFF[:40]):
        sought(Shut(kind))


def test_a_network_without_a_second_derivative_is_the_reason_why_no_image_is_sought():
    with pytest.raises(CannotRun, match=r"cannot be differentiated by the images: .*cdist_backward"):
        sought(Prototypes())


def test_memory_that_runs_out_in_a_derivative_is_a_fault(monkeypatch):
    update = update_of(Spare())

    def starved(*arguments, **options):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    monkeypatch.setattr(torch.autograd, "grad", starved)
    with pytest.raises(Fault, match="memory ran out"):
        SEARCH.rebuild(update, Knowledge(), torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", ["no_grad", "detach"])
def test_attacks_that_solve_for_images_say_that_nothing_flows_back(kind):
    with pytest.raises(CannotRun, match=r"nothing flows back|no ReLU follows"):
        leading_layer(update_of(Shut(kind)).protocol)
    with pytest.raises(CannotRun, match="nothing flows back"):
        find_patches(Shut(kind, patches=True), SHAPE)
    with pytest.raises(CannotRun, match="passes no gradient to its input"):
        fixed_picture(Shut(kind), make_images(12))


@pytest.mark.parametrize("kind", ["no_grad", "detach"])
def test_adversarial_training_is_refused_where_no_gradient_reaches_the_images(kind):
    images, defence = make_images(4), AdversarialTraining(eps=0.1, steps=2)
    with pytest.raises(BadInput, match="adversarial training: the network detaches tensors"):
        defence.prepare(Shut(kind), images.x, images.y, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("network", [Attentive, Spare, Prototypes, Shut])
def test_an_audit_of_such_a_network_comes_to_its_end(tmp_path, network):
    setting = Setting(
        data={"clients": 2, "members": 20, "nonmembers": 20, "auxiliary": 20, "test": 20},
        training={"rounds": 1},
        audit={
            "attacks": ["strongest-inversion(seconds=0.2,updates=1)"],
            "defences": [],
            "central": False,
            "curvature": 0,
            "shadows": 0,
            "ladder": False,
        },
    )
    torch.manual_seed(0)
    network = network()
    network.head = nn.Linear(network.head.in_features, 10)
    results = audit(setting, model=network, out=tmp_path / "run", workers=1)
    found = [row for row in results.findings if row.attack is not None]
    stopped = [row.reason for row in found if row.metric == "not-applicable"]
    assert found
    assert bool(stopped) == isinstance(network, Shut | Prototypes)
    assert all("gradient" in reason and "images" in reason for reason in stopped)

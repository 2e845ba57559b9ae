"""Weights for a network whose head lies elsewhere, or has other layers, than that of the file."""

from copy import deepcopy

import pytest
import torch
from conftest import CLASSES, SHAPE
from safetensors.torch import save_file
from torch import Tensor, nn

from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.setting import Setting
from glasshouse.errors import BadInput
from glasshouse.learning.layout import Layout
from glasshouse.models.weights import load_but_head


class Network(nn.Module):
    """Convolutions named as torchvision names them, and whatever head under whatever name."""

    def __init__(self, head: nn.Module, name: str = "fc", depth: int = 2) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(4)
        self.layer1 = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(depth))
        self.name = name
        setattr(self, name, head)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x)).relu()
        for layer in self.layer1:
            x = layer(x).relu()
        return getattr(self, self.name)(x.mean((2, 3)))


def linear(classes=CLASSES, inputs=4):
    return nn.Linear(inputs, classes)


def behind_dropout(classes=CLASSES):
    return nn.Sequential(nn.Dropout(), linear(classes))


def of_two_layers(classes=CLASSES):
    return nn.Sequential(linear(8), nn.ReLU(), linear(classes, 8))


def saved(tmp_path, network):
    state = network.state_dict()
    save_file(state, tmp_path / "saved.safetensors")
    return tmp_path / "saved.safetensors", state


@pytest.mark.parametrize(("network", "file", "new", "ignored"), [
    (lambda: Network(behind_dropout()), lambda: Network(linear(9)), "fc.1.weight 4x4, fc.1.bias 4",
     "fc.weight 9x4, fc.bias 9"),
    (lambda: Network(linear(), "head"), lambda: Network(linear(9)), "head.weight 4x4, head.bias 4",
     "fc.weight 9x4, fc.bias 9"),
    (lambda: Network(linear(), "head"), lambda: Network(of_two_layers(9)), "head.weight 4x4, head.bias 4",
     "fc.0.weight 8x4, fc.0.bias 8, fc.2.weight 9x8, fc.2.bias 9"),
    (lambda: Network(of_two_layers()), lambda: Network(linear()),
     "fc.0.weight 8x4, fc.0.bias 8, fc.2.weight 4x8, fc.2.bias 4", "fc.weight 4x4, fc.bias 4"),
    (lambda: Network(linear()), lambda: Network(behind_dropout(9)), "fc.weight 4x4, fc.bias 4",
     "fc.1.weight 9x4, fc.1.bias 9"),
    (lambda: Network(of_two_layers()), lambda: Network(nn.Identity()),
     "fc.0.weight 8x4, fc.0.bias 8, fc.2.weight 4x8, fc.2.bias 4", ""),
])  # fmt: skip
def test_a_head_that_the_file_has_elsewhere_stays_as_drawn_and_both_are_named(
    tmp_path, network, file, new, ignored
):
    network = network()
    path, state = saved(tmp_path, file())
    before = deepcopy(network.state_dict())
    head = load_but_head(network, path, SHAPE)
    words, _, own = head.words.partition(" (whose own, ")
    assert words == f"the head ({new}) has no counterpart in the file"
    assert sorted(own.removesuffix(", is ignored)").split(", ")) == sorted(ignored.split(", "))
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name] if name in head.tensors else state[name])


def many_layers():
    return nn.Sequential(*(linear(4) for _ in range(4)))


def wider(network):
    network.bn1 = nn.BatchNorm2d(8)
    return network


@pytest.mark.parametrize(("network", "file", "named"), [
    # A deeper body, of which all that the network has fits.
    (lambda: Network(behind_dropout()), lambda: Network(linear(), depth=3), "layer1.2."),
    (lambda: Network(behind_dropout(), depth=3), lambda: Network(linear()), "layer1.2.weight (absent in the"),
    # A body with a tensor of another shape.
    (lambda: Network(behind_dropout()), lambda: wider(Network(linear())), "bn1.weight (8 in the file, 4 in"),
    # More layers than a head has.
    (lambda: Network(many_layers()), lambda: Network(linear(), "head"), "fc.0.weight (absent in the file"),
    (lambda: Network(linear(), "head"), lambda: Network(many_layers()), "fc.0."),
    # Two heads whose layers share a name.
    (lambda: Network(of_two_layers(), "fc"), lambda: Network(nn.Sequential(linear(9), linear(9, 9)), "fc"),
     "fc.0.weight (9x4 in the file, 8x4 in the model)"),
])  # fmt: skip
def test_a_file_that_differs_in_more_than_the_head_is_refused(tmp_path, network, file, named):
    network = network()
    path, _ = saved(tmp_path, file())
    before = deepcopy(network.state_dict())
    with pytest.raises(BadInput) as refused:
        load_but_head(network, path, SHAPE)
    assert named in str(refused.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_a_head_of_two_layers_is_drawn_from_the_seed_and_those_of_shadows_from_theirs(tmp_path):
    path, state = saved(tmp_path, Network(linear()))
    setting = Setting(
        data={"clients": 2, "members": 20, "nonmembers": 8, "auxiliary": 8, "test": 8},
        model={"weights": str(path)},
        audit={"defences": []},
    )
    network = Network(of_two_layers(10))
    first, again = (prepare(setting, model=network) for _ in range(2))
    assert torch.equal(first.start, again.start)
    layout = Layout.of(first.model)
    start, fresh = layout.named(first.start), layout.named(first.fresh(7))
    for name in layout.names:
        head = name.startswith("fc.")
        assert torch.equal(fresh[name], start[name]) == (not head)
        assert head or torch.equal(start[name], state[name])
    (line,) = (line for line in first.notes if "has no counterpart in the file" in line)
    assert "fc.weight 4x4" in line
    assert line.endswith("was drawn anew with seed 0")

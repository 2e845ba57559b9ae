"""Each sample's own gradient: against one sample at a time, for every network of the zoo and for odd ones."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.errors import BadInput
from glasshouse.learning import per_sample, sample_layers
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.per_sample import SampleGradients
from glasshouse.models import MODELS, build

SIDES = {
    "efficientnet-b0": 32,
    "alexnet": 32,
    "vgg": 32,
    "resnet": 32,
    "convnet": 12,
    "convnet-16": 12,
    "cnn": 16,
}


def one_by_one(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Each sample in a batch of its own, by torch."""
    trainable = {name: part for name, part in model.named_parameters() if part.requires_grad}
    rows = []
    for image, label in zip(x, y):
        loss = F.cross_entropy(model(image[None]), label[None])
        rows.append(torch.autograd.grad(loss, list(trainable.values()), materialize_grads=True))
    return {name: torch.stack([row[place] for row in rows]) for place, name in enumerate(trainable)}


def assert_agree(model: nn.Module, x: Tensor, y: Tensor, tolerance: float) -> None:
    expected = one_by_one(model, x, y)
    total = torch.stack([part.flatten(1).norm(dim=1) for part in expected.values()]).norm(dim=0)
    names = []
    for name, gradients in SampleGradients(model)(x, y):
        names.append(name)
        assert gradients.shape == expected[name].shape, name
        assert gradients.dtype == expected[name].dtype
        error = (gradients - expected[name]).flatten(1).norm(dim=1)
        length = expected[name].flatten(1).norm(dim=1)
        # A bias before a norm has a gradient of mere rounding errors, which are small beside the others.
        excess = error / (tolerance * (length + 0.01 * total))
        # In 32 bits a ReLU next to its kink may take the other side in a larger batch: of few samples.
        worst = excess.max() if x.dtype == torch.float64 else excess.median()
        assert worst <= 1, (name, excess)
    assert sorted(names) == sorted(expected)


def restless(model: nn.Module) -> nn.Module:
    """`model` in eval mode, with statistics and scales as training leaves them."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model.eval()


def layers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse the generic way."""

    def refuse(*_: object) -> None:
        raise AssertionError("went through torch.func")

    monkeypatch.setattr(SampleGradients, "_by_functions", refuse)


@pytest.mark.parametrize("name", list(MODELS))
def test_every_network_of_the_zoo_has_the_gradients_of_one_sample_at_a_time(name: str) -> None:
    torch.manual_seed(0)
    side = SIDES.get(name, 8)
    model = restless(build(name, (1, side, side), 4))
    x, y = torch.rand(3, 1, side, side), torch.tensor([0, 3, 1])
    assert_agree(model, x, y, 1e-5)
    assert_agree(model.double(), x.double(), y, 1e-10)


@pytest.mark.parametrize("name", ["lenet", "c1", "convnet", "resnet20-4"])
def test_convolutional_networks_need_no_generic_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layers_alone(monkeypatch)
    torch.manual_seed(0)
    model = restless(build(name, (3, 12, 12), 4)).double()
    assert_agree(model, torch.rand(3, 3, 12, 12).double(), torch.tensor([0, 3, 1]), 1e-10)


def test_both_ways_of_a_convolution_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    layers_alone(monkeypatch)
    torch.manual_seed(0)
    strides = {"stride": (2, 1), "dilation": (1, 2), "padding": (2, 1)}
    model = nn.Sequential(
        nn.Conv2d(4, 8, (3, 2), groups=2, **strides), nn.ReLU(inplace=True), nn.Flatten(), nn.LazyLinear(3)
    ).double()
    x, y = torch.rand(5, 4, 9, 8).double(), torch.tensor([0, 1, 2, 1, 0])
    model(x)
    for wide in (0, 1 << 60):
        for memory in (1, 1 << 30):
            monkeypatch.setattr(sample_layers, "WIDE", wide)
            monkeypatch.setattr(sample_layers, "PATCH_BYTES", memory)
            assert_agree(model, x, y, 1e-12)


class Twice(nn.Module):
    """Uses a layer twice, shares a tensor between two, leaves one unused and freezes one."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.twin, self.unused = nn.Linear(6, 6), nn.Linear(6, 6, bias=False), nn.Linear(6, 6)
        self.twin.weight = self.inner.weight
        self.norms = nn.Sequential(nn.LayerNorm(6), nn.Unflatten(1, (6, 1)), nn.GroupNorm(2, 6), nn.Flatten())
        self.head = nn.Linear(6, 3)
        self.head.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.twin(self.norms(self.inner(self.inner(x).tanh())))
        out: Tensor = self.head(x)
        return out


def test_layers_used_twice_and_shared_tensors_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    layers_alone(monkeypatch)
    torch.manual_seed(0)
    model = Twice().double()
    assert_agree(model, torch.rand(4, 6).double(), torch.tensor([0, 1, 2, 2]), 1e-12)
    assert "head.bias" not in dict(SampleGradients(model)(torch.rand(2, 6).double(), torch.tensor([0, 1])))


class PastTheLayer(nn.Module):
    """Reads a layer's weights without calling it as well."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 5)
        self.scale = nn.Parameter(torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).tanh() @ self.layer.weight * self.scale


class Turned(nn.Module):
    """Has tokens along the first axis and samples along the second, as many of either."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.stack([x * (place + 1) for place in range(len(x))])
        return self.layer(tokens).tanh().sum(0)


class ByValue(nn.Module):
    """Takes a branch by what it sees, which `torch.func.vmap` cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale if bool(x.sum() > 0) else x * self.scale**2


@pytest.mark.parametrize("kind", [PastTheLayer, Turned])
def test_a_network_that_layers_do_not_explain_is_noticed(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    assert_agree(kind().double(), torch.rand(4, 5).double(), torch.tensor([0, 1, 2, 2]), 1e-12)


def test_a_network_that_cannot_be_mapped_goes_sample_by_sample() -> None:
    x = torch.tensor([[1.0, 2, 3], [-1, -2, -3]])
    assert_agree(ByValue(), x, torch.tensor([0, 1]), 1e-6)


def test_little_memory_for_functions_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_sample, "FUNCTION_BYTES", 1)
    torch.manual_seed(0)
    model = build("april-vit", (1, 8, 8), 4).eval()
    assert_agree(model, torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 2]), 1e-5)


def test_gradients_of_a_model_laid_out_for_a_cpu_are_the_same() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(676, 200))
    x, y = torch.rand(3, 1, 28, 28), torch.tensor([0, 1, 2])
    expected = one_by_one(model, x, y)
    for name, gradients in SampleGradients(laid_out(copy.deepcopy(model)))(x, y):
        assert torch.allclose(gradients, expected[name], rtol=1e-4, atol=1e-6)


def test_the_model_is_left_as_it_was() -> None:
    model = restless(build("c1", (1, 8, 8), 4))
    before = copy.deepcopy(model.state_dict())
    list(SampleGradients(model)(torch.rand(2, 1, 8, 8), torch.tensor([0, 1])))
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    assert all(part.grad is None for part in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_batch_norm_in_train_mode_is_refused() -> None:
    with pytest.raises(BadInput, match="eval mode"):
        SampleGradients(build("c1", (1, 8, 8), 4))


def test_bfloat16_is_near_float32() -> None:
    torch.manual_seed(0)
    model = restless(build("c1", (1, 12, 12), 4))
    x, y = torch.rand(3, 1, 12, 12), torch.tensor([0, 3, 1])
    expected = one_by_one(model, x, y)
    for name, gradients in SampleGradients(model, precision="bfloat16")(x, y):
        assert gradients.dtype == torch.float32
        cosines = F.cosine_similarity(gradients.flatten(1), expected[name].flatten(1))
        assert (cosines > 0.97).all(), (name, cosines)

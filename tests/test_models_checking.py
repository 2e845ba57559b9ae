"""Users' own networks: tied weights work; what cannot be trained, copied or sent is refused with a remedy."""

import threading
from copy import deepcopy

import pytest
import torch
from cases import finished
from conftest import CLASSES, SHAPE
from safetensors.torch import save_file, save_model
from torch import nn
from torch.nn.utils import parametrizations, prune

from glasshouse.errors import BadInput
from glasshouse.learning.layout import Layout, read_vector, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.models.checking import checked_copy, make_classifier
from glasshouse.models.loading import load_weights, reinitialised, seeded_model


class Net(nn.Module):
    """A network to change: two layers of the same shape and a head."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, CLASSES)

    def forward(self, x):
        return self.head(self.second(self.first(x.flatten(1)).relu()).relu())


class Tied(Net):
    """The same weights in two layers."""

    def __init__(self):
        super().__init__()
        self.second.weight = self.first.weight


def tied():
    torch.manual_seed(0)
    return Tied()


def test_tied_weights_stand_in_the_vector_once_and_stay_tied():
    model = tied()
    checked_copy(model, SHAPE, CLASSES)
    layout = Layout.of(model)
    assert "second.weight" not in layout.names
    assert layout.size == sum(parameter.numel() for parameter in set(model.parameters()))
    copy = deepcopy(model)
    write_vector(copy, read_vector(model) + 1)
    assert copy.second.weight is copy.first.weight
    assert torch.equal(read_vector(copy), read_vector(model) + 1)
    fresh = reinitialised(model, 1)
    assert fresh.second.weight is fresh.first.weight


def test_a_network_with_tied_weights_is_trained_and_stays_tied(engine):
    model = tied()
    case = finished(engine, model=model, recipe=Recipe(epochs=2, batch_size=10, lr=0.05), rounds=2)
    assert case.model.second.weight is case.model.first.weight
    assert not torch.equal(case.model.first.weight, model.first.weight)


@pytest.mark.parametrize("saved_as", ["both names", "first name", "second name", "save_model"])
def test_tied_weights_are_read_whether_the_file_holds_them_once_or_twice(tmp_path, saved_as):
    saved, loaded, path = tied(), Tied(), tmp_path / "tied.safetensors"
    if saved_as == "save_model":
        save_model(saved, path)
    else:
        state = {name: tensor.clone() for name, tensor in saved.state_dict().items()}
        left_out = {"first name": "second.weight", "second name": "first.weight"}.get(saved_as)
        save_file({name: tensor for name, tensor in state.items() if name != left_out}, path)
    load_weights(loaded, path)
    assert torch.equal(read_vector(loaded), read_vector(saved))


def test_weights_of_a_network_that_did_not_tie_them_are_refused(tmp_path):
    save_file(Net().state_dict(), tmp_path / "untied.safetensors")
    model = tied()
    with pytest.raises(BadInput, match=r"first.weight and second.weight differ, but the model ties them"):
        load_weights(model, tmp_path / "untied.safetensors")
    assert torch.equal(read_vector(model), read_vector(tied()))


def lazy(net):
    net.head = nn.LazyLinear(CLASSES)


def bfloat16(net):
    net.bfloat16()


def half(net):
    net.head.half()


def float64(net):
    net.double()


def mixed(net):
    net.register_buffer("scale", torch.ones(1, dtype=torch.float64))


def complex_parameter(net):
    net.phase = nn.Parameter(torch.ones(3, dtype=torch.complex64))


def complex_buffer(net):
    net.register_buffer("phase", torch.ones(3, dtype=torch.complex64))


def whole_numbers(net):
    net.steps = nn.Parameter(torch.ones(3, dtype=torch.int64), requires_grad=False)


def sparse(net):
    net.graph = nn.Parameter(torch.eye(3).to_sparse())


def meta(net):
    net.head.to("meta")


def expanded(net):
    net.scale = nn.Parameter(torch.ones(1).expand(5))


def shares_memory(net):
    net.second.weight = nn.Parameter(net.first.weight.data)


def shares_with_a_buffer(net):
    net.register_buffer("average", net.first.weight.data)


def inference(net):
    with torch.inference_mode():
        net.scale = nn.Parameter(torch.ones(1), requires_grad=False)


def extra_state(net):
    net.head.__class__ = type("Head", (nn.Linear,), {"get_extra_state": lambda self: {"a": 1}})


def holds_a_lock(net):
    net.lock = threading.Lock()


def keeps_a_result(net):
    net.register_forward_hook(lambda net, x, logits: setattr(net, "kept", logits))


class Shallow(Net):
    """Its copies share everything with it."""

    def __deepcopy__(self, memo):
        return self


def parametrised(net):
    parametrizations.weight_norm(net.head)


def pruned(net):
    prune.l1_unstructured(net.head, "weight", amount=0.5)
    net.head(torch.zeros(1, 64))


FAULTS = [
    (lazy, "head.weight has no shape yet; run a batch through the model once"),
    (bfloat16, "first.weight is torch.bfloat16, and training is in torch.float32; hand over model.float()"),
    (half, "head.weight is torch.float16"),
    (float64, "first.weight is torch.float64"),
    (mixed, "buffer scale is torch.float64"),
    (complex_parameter, "phase is torch.complex64; store it as torch.float32"),
    (complex_buffer, "buffer phase is torch.complex64; register it with persistent=False"),
    (whole_numbers, "steps is torch.int64; store it as torch.float32"),
    (sparse, "graph is sparse"),
    (meta, "head.weight lies on the device meta; build the model on the CPU"),
    (expanded, "scale is an expanded view"),
    (shares_memory, "first.weight and second.weight share their memory"),
    (shares_with_a_buffer, "first.weight and average share their memory"),
    (inference, "scale was made in inference mode"),
    (extra_state, "its state dict holds head._extra_state, a dict"),
    (holds_a_lock, "cannot be copied (TypeError: cannot pickle '_thread.lock' object)"),
    (keeps_a_result, "and no result of a forward pass"),
    (parametrised, "cannot be sent to a worker"),
    (pruned, "cannot be copied"),
]


@pytest.mark.parametrize(("change", "words"), FAULTS, ids=[change.__name__ for change, _ in FAULTS])
def test_a_network_whose_state_cannot_travel_is_refused_in_one_line(change, words):
    net = Net()
    change(net)
    with pytest.raises(BadInput) as refused:
        checked_copy(net, SHAPE, CLASSES)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_network_whose_copies_share_its_weights_is_refused():
    with pytest.raises(BadInput, match=r"its copy shares the parameter first\.weight"):
        checked_copy(Shallow(), SHAPE, CLASSES)


def test_what_is_no_network_is_refused():
    for wrong in ("mlp", Net):
        with pytest.raises(BadInput, match=r"hand over a torch\.nn\.Module"):
            checked_copy(wrong, SHAPE, CLASSES)


def test_a_network_that_pickle_refuses_can_still_be_vetted():
    net = Net()
    parametrised(net)
    make_classifier(net, "Net", SHAPE, CLASSES)


@pytest.mark.parametrize("change", [
    lambda net: net.register_buffer("steps", torch.zeros((), dtype=torch.int64)),
    lambda net: net.register_buffer("filter", torch.ones(3, dtype=torch.complex64), persistent=False),
    lambda net: net.first.requires_grad_(False),
    lambda net: setattr(net, "unused", nn.Linear(3, 3)),
    lambda net: setattr(net, "empty", nn.Parameter(torch.empty(0))),
    lambda net: net.register_forward_hook(lambda net, x, logits: None),
])  # fmt: skip
def test_buffers_frozen_and_unused_parameters_and_hooks_are_fine(change):
    net = Net()
    change(net)
    checked_copy(net, SHAPE, CLASSES)


class Forward(Net):
    """A network with a forward pass to choose."""

    def __init__(self, forward):
        super().__init__()
        self.changed = forward

    def forward(self, x):
        return self.changed(self, x)


def scales_in_place(net, x):
    return Net.forward(net, x.mul_(2).sub_(0))


def scales_past_the_count(net, x):
    x.data.add_(1)
    return Net.forward(net, x)


def exits(net, x):
    raise SystemExit(3)


def breaks_its_gradient(net, x):
    hidden = net.first(x.flatten(1)).exp()
    hidden.mul_(2)
    return net.head(hidden)


PASSES = [
    (scales_in_place, "changes the images it is given; work on x.clone()"),
    (scales_past_the_count, "changes the images it is given"),
    (exits, "cannot take a batch of shape (2, 1, 8, 8): SystemExit: 3"),
    (breaks_its_gradient, "cannot be trained: RuntimeError"),
    (lambda net, x: Net.forward(net, x).double(), "returns torch.float64; return logits.float()"),
]


@pytest.mark.parametrize(("forward", "words"), PASSES)
def test_a_network_whose_passes_cannot_be_used_is_refused(forward, words):
    with pytest.raises(BadInput) as refused:
        checked_copy(Forward(forward), SHAPE, CLASSES)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


class NeverStops(Net):
    """Trains even when it is asked."""

    def train(self, mode=True):
        return super().train(True)


def test_a_network_that_goes_on_training_when_it_is_asked_is_refused():
    with pytest.raises(BadInput, match="goes on training after eval"):
        checked_copy(NeverStops(), SHAPE, CLASSES)


FACTORIES = """
import random
import sys
import numpy as np
import torch
from torch import nn

def net(hidden):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 4))

calls = []
def wider_each_time():
    calls.append(1)
    return net(len(calls))

def of_chance(): return net(random.randrange(1, 10**6) % 1000 + 1)
def exits(): sys.exit(3)

def of_numpy():
    model = net(3)
    model[1].weight.data = torch.from_numpy(np.random.rand(3, 64).astype("float32"))
    return model

class Factory:
    def __call__(self): return net(3)
    def method(self): return net(3)

instance, method = Factory(), Factory().method
"""


@pytest.fixture
def users(tmp_path, monkeypatch):
    """A module of the user's in the current folder; gives its name."""
    name = f"users_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    return name


def test_a_factory_whose_architecture_changes_from_call_to_call_is_refused(users):
    for factory in ("wider_each_time", "of_chance"):
        with pytest.raises(BadInput, match=r"another call of the factory gives differs in 1\.bias"):
            seeded_model(f"{users}:{factory}", SHAPE, CLASSES, 0)


def test_a_later_call_of_the_factory_has_to_give_the_same_architecture(users):
    model = seeded_model(f"{users}:of_numpy", SHAPE, CLASSES, 0)
    assert Layout.of(seeded_model(f"{users}:of_numpy", SHAPE, CLASSES, 1, like=model)) == Layout.of(model)
    with pytest.raises(BadInput, match=r"differs in 1\.bias"):
        seeded_model(f"{users}:of_chance", SHAPE, CLASSES, 1, like=model)


def test_first_weights_follow_from_the_seed_whichever_generator_they_are_drawn_from(users):
    first, again, other = (
        read_vector(seeded_model(f"{users}:of_numpy", SHAPE, CLASSES, seed)) for seed in (5, 5, 6)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("factory", "words"), [
    ("exits", "the factory failed with SystemExit: 3"),
    ("Factory", "not a factory"), ("instance", "Factory, not a factory"), ("method", "method, not a factory"),
])  # fmt: skip
def test_what_is_no_function_and_no_network_is_not_called(users, factory, words):
    with pytest.raises(BadInput) as refused:
        seeded_model(f"{users}:{factory}", SHAPE, CLASSES, 0)
    assert words in str(refused.value)


@pytest.mark.parametrize("spec", ["os:getcwd", "os:abort", "antigravity:fly", "subprocess:run"])
def test_pythons_own_functions_are_no_factories(spec):
    with pytest.raises(BadInput, match="is of Python's standard library"):
        seeded_model(spec, SHAPE, CLASSES, 0)


@pytest.mark.filterwarnings("ignore")
def test_nested_and_quantised_weights_are_refused(tmp_path):
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    quantised = torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.qint8)
    for odd in (nested, quantised):
        torch.save({"weight": odd}, tmp_path / "odd.pt")
        with pytest.raises(BadInput, match=r"not named tensors alone|could run code|damaged, or no weights"):
            load_weights(nn.Linear(3, 3, bias=False), tmp_path / "odd.pt")

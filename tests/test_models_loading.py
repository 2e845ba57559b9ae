"""A user's own models and weights: what is accepted, and one clear line for everything else."""

import doctest
import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from glasshouse.errors import BadInput
from glasshouse.models import build, foreign
from glasshouse.models.foreign import OURS, TIMM, TORCHVISION, in_our_names
from glasshouse.models.loading import load_model, load_weights

SHAPE = (1, 8, 8)

FACTORIES = """
import torch
from torch import nn

def net(shape=(1, 8, 8), classes=10):
    pixels = shape[0] * shape[1] * shape[2]
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(pixels), nn.Linear(pixels, classes))

def of_both(shape, classes): return net(shape, classes)
def of_two_unnamed(size, labels): return net(size, labels)
def of_nothing(): return net()
def of_classes(classes, width=3): return net(classes=classes)
def of_three(shape, classes, depth): return net(shape, classes)
def number(): return 7
def broken(): raise RuntimeError("first line\\nsecond line")
def of_pairs(): return Pair()
def not_finite():
    model = net()
    nn.init.constant_(model[2].bias, float("nan"))
    return model

class Pair(nn.Module):
    def forward(self, x): return x, x

class Thousand(nn.Module):
    def __init__(self, weights=None, progress=True):
        super().__init__()
        self.out = nn.Linear(64, 1000)
    def forward(self, x): return self.out(x.flatten(1))

ready = net()
text = "model"
"""


@pytest.fixture
def users(tmp_path, monkeypatch):
    """A module of the user's in the current folder; gives its name."""
    name = f"users_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(FACTORIES)
    (tmp_path / f"{name}_unfinished.py").write_text("def net(:")
    monkeypatch.chdir(tmp_path)
    return name


def mlp():
    torch.manual_seed(1)
    return build("mlp", SHAPE, 10)


def one_line(refused, *words):
    message = str(refused.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message


def test_a_zoo_name_loads_from_the_zoo():
    assert len(load_model("lenet", SHAPE, 5)(torch.zeros(2, *SHAPE))[0]) == 5


@pytest.mark.parametrize("factory", ["of_both", "of_two_unnamed", "of_nothing", "of_classes"])
def test_a_factory_gets_the_arguments_it_takes(users, factory):
    model = load_model(f"{users}:{factory}", SHAPE, 10)
    assert model(torch.zeros(2, *SHAPE)).shape == (2, 10)


def test_a_factory_that_names_shape_and_classes_is_given_them(users):
    model = load_model(f"{users}:of_both", (3, 4, 6), 7)
    assert model(torch.zeros(2, 3, 4, 6)).shape == (2, 7)


def test_the_check_leaves_the_model_as_it_came(users):
    model = load_model(f"{users}:net", SHAPE, 10)
    assert model.training
    assert model[1].num_batches_tracked == 0


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("of_three", ("depth", "take (shape, classes) or no arguments")),
        ("number", ("gave int", "torch.nn.Module")),
        ("broken", ("RuntimeError: first line second line",)),
        ("of_pairs", ("returns tuple", "logits as one tensor")),
        ("not_finite", ("NaN",)),
        ("Thousand", ("(2, 1000)", "(2, 10)")),
        ("ready", ("Sequential, not a factory",)),
        ("text", ("str, not a factory",)),
        ("absent", ("absent",)),
    ],
)
def test_a_factory_that_gives_no_usable_model_is_refused(users, factory, words):
    with pytest.raises(BadInput) as refused:
        load_model(f"{users}:{factory}", SHAPE, 10)
    one_line(refused, factory, *words)


def test_a_model_for_other_images_is_refused(users):
    with pytest.raises(BadInput) as refused:
        load_model(f"{users}:of_nothing", (3, 32, 32), 10)
    one_line(refused, "(2, 3, 32, 32)", "RuntimeError", "take (shape, classes)")


@pytest.mark.parametrize(
    "spec", ["no.such.module:net", ":net", "package:", ".relative:net", "a:b:c", "a b:c"]
)
def test_what_cannot_be_imported_is_refused(spec):
    with pytest.raises(BadInput) as refused:
        load_model(spec, SHAPE, 10)
    one_line(refused, spec)


def test_a_module_that_does_not_import_is_refused(users):
    with pytest.raises(BadInput) as refused:
        load_model(f"{users}_unfinished:net", SHAPE, 10)
    one_line(refused, "SyntaxError")


def test_a_builtin_without_signature_is_refused():
    with pytest.raises(BadInput) as refused:
        load_model("builtins:dict", SHAPE, 10)
    one_line(refused, "builtins:dict")


def test_a_dotted_name_is_told_the_form():
    with pytest.raises(BadInput, match=r"package\.module:factory"):
        load_model("torchvision.models.resnet18", SHAPE, 10)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
def test_weights_come_back_as_they_were_saved(tmp_path, suffix):
    saved, loaded = build("c1", SHAPE, 10), build("c1", SHAPE, 10)
    saved(torch.rand(4, *SHAPE))  # moves the batch norm's statistics, which are part of the model
    path = tmp_path / f"weights{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(saved.state_dict(), path)
    load_weights(loaded, path)
    for name, tensor in saved.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_half_precision_weights_are_widened(tmp_path):
    model = mlp()
    save_file(
        {name: tensor.half() for name, tensor in model.state_dict().items()}, tmp_path / "half.safetensors"
    )
    load_weights(model, tmp_path / "half.safetensors")
    assert all(tensor.dtype == torch.float32 for tensor in model.state_dict().values())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: w.pop("1.weight"), ("lack 1.weight",)),
        (lambda w: w.update(spare=torch.zeros(1)), ("have extra spare",)),
        (lambda w: w.update({"5.bias": torch.zeros(7)}), ("5.bias has shape (7,)", "(10,)")),
        (lambda w: w["3.bias"].fill_(float("nan")), ("3.bias has NaN",)),
        (
            lambda w: w.update({"3.bias": torch.full((200,), 1e300, dtype=torch.float64)}),
            ("3.bias has NaN or infinite",),
        ),
        (
            lambda w: w.update({"3.bias": torch.zeros(200, dtype=torch.int64)}),
            ("3.bias is torch.int64", "float32"),
        ),
    ],
)
@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_weights_that_do_not_fit_are_refused_and_nothing_is_loaded(tmp_path, change, words, suffix):
    weights = {name: torch.zeros_like(tensor) for name, tensor in mlp().state_dict().items()}
    change(weights)
    path = tmp_path / f"weights{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(weights, path)
    model, before = mlp(), mlp().state_dict()
    with pytest.raises(BadInput) as refused:
        load_weights(model, path)
    one_line(refused, str(path), *words)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_many_wrong_names_are_summed_up(tmp_path):
    save_file({f"layer{i}": torch.zeros(1) for i in range(9)}, tmp_path / "other.safetensors")
    with pytest.raises(BadInput) as refused:
        load_weights(mlp(), tmp_path / "other.safetensors")
    one_line(
        refused, "lack 1.bias, 1.weight, 3.bias and 3 more and have extra layer0, layer1, layer2 and 6 more"
    )


class Payload:
    """Unpickling this would call a function."""

    ran = False

    def __reduce__(self):
        return (setattr, (Payload, "ran", True))


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"weights",
        b"PK\x03\x04 and no more",
        b"\x00" * 64,
        pickle.dumps(Payload()),
        pickle.dumps({"1.weight": [1.0]}),
    ],
)
def test_files_that_are_not_weights_are_refused_without_running_them(tmp_path, suffix, content):
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(content)
    with pytest.raises(BadInput) as refused:
        load_weights(mlp(), path)
    one_line(refused, str(path))
    assert not Payload.ran


@pytest.mark.parametrize(
    "content", [mlp(), {"epoch": 3, "state_dict": {}}, [torch.zeros(1)], {0: torch.zeros(1)}, torch.zeros(3)]
)
def test_torch_files_of_anything_but_named_tensors_are_refused(tmp_path, content):
    torch.save(content, tmp_path / "checkpoint.pt")
    with pytest.raises(BadInput) as refused:
        load_weights(mlp(), tmp_path / "checkpoint.pt")
    one_line(refused, "state_dict()")


def test_names_from_the_file_keep_to_one_line(tmp_path):
    save_file({"two\nlines": torch.zeros(1)}, tmp_path / "odd.safetensors")
    with pytest.raises(BadInput) as refused:
        load_weights(mlp(), tmp_path / "odd.safetensors")
    one_line(refused, r"two\nlines")


def test_sparse_and_empty_tensors_are_refused(tmp_path):
    for tensor in (torch.eye(3).to_sparse(), torch.zeros(3, device="meta")):
        torch.save({"weight": tensor}, tmp_path / "odd.pt")
        with pytest.raises(BadInput, match="not named tensors alone"):
            load_weights(nn.Linear(3, 3, bias=False), tmp_path / "odd.pt")


def test_missing_files_folders_and_unknown_suffixes_are_refused(tmp_path):
    (tmp_path / "folder.pt").mkdir()
    for path, words in (
        (tmp_path / "none.pt", "no such file"),
        (tmp_path / "folder.pt", "no such file"),
        (tmp_path / "weights.pkl", "unknown suffix '.pkl'"),
        (tmp_path / "weights", "unknown suffix ''"),
    ):
        with pytest.raises(BadInput) as refused:
            load_weights(mlp(), path)
        one_line(refused, str(path), words)


@pytest.mark.parametrize("library", [TORCHVISION, TIMM], ids=["torchvision", "timm"])
def test_an_efficientnet_of_another_library_is_loaded_by_its_names(tmp_path, library):
    model, fresh = (build("efficientnet-b0", (3, 32, 32), 10) for _ in range(2))
    foreign = dict(zip(OURS.layers(), library.layers(), strict=True))
    state = model.state_dict()
    assert {name.rpartition(".")[0] for name in state} == set(OURS.layers())
    renamed = {f"{foreign[layer]}.{kind}": state[f"{layer}.{kind}"]
               for layer, _, kind in (name.rpartition(".") for name in state)}  # fmt: skip
    save_file(renamed, tmp_path / "saved.safetensors")
    load_weights(fresh, tmp_path / "saved.safetensors")
    assert all(torch.equal(part, fresh.state_dict()[name]) for name, part in state.items())


@pytest.mark.parametrize(("name", "shape"), [
    ("features.0.0.weight", (32, 3, 3, 3)), ("features.1.0.block.0.0.weight", (32, 1, 3, 3)),
    ("features.1.0.block.1.fc1.weight", (8, 32, 1, 1)), ("features.1.0.block.2.0.weight", (16, 32, 1, 1)),
    ("features.2.0.block.0.0.weight", (96, 16, 1, 1)), ("features.2.1.block.2.fc2.bias", (144,)),
    ("features.4.2.block.1.0.weight", (480, 1, 3, 3)), ("features.6.3.block.1.1.running_mean", (1152,)),
    ("features.7.0.block.3.1.running_var", (320,)), ("features.8.0.weight", (1280, 320, 1, 1)),
    ("classifier.1.weight", (10, 1280)),
    ("conv_stem.weight", (32, 3, 3, 3)), ("blocks.0.0.conv_dw.weight", (32, 1, 3, 3)),
    ("blocks.0.0.se.conv_reduce.weight", (8, 32, 1, 1)), ("blocks.0.0.conv_pw.weight", (16, 32, 1, 1)),
    ("blocks.1.0.conv_pw.weight", (96, 16, 1, 1)), ("blocks.1.1.se.conv_expand.bias", (144,)),
    ("blocks.3.2.conv_dw.weight", (480, 1, 3, 3)), ("blocks.5.3.bn2.running_mean", (1152,)),
    ("blocks.6.0.bn3.running_var", (320,)), ("conv_head.weight", (1280, 320, 1, 1)),
    ("classifier.weight", (10, 1280)),
])  # fmt: skip
def test_the_names_of_other_libraries_mean_the_layers_of_their_shapes(name, shape):
    (ours,) = in_our_names({name: torch.empty(0)})
    assert build("efficientnet-b0", (3, 32, 32), 10).state_dict()[ours].shape == shape


def test_the_docstrings_hold():
    assert doctest.testmod(foreign).failed == 0

"""Networks from elsewhere: answers that are objects, options, a new last layer, other image sizes."""

import re
import subprocess
import sys
import tomllib
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cloudpickle
import pytest
import torch
import torch.nn.functional as F
from conftest import CLASSES, SHAPE, make_images
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.func import functional_call, vmap

import glasshouse
from glasshouse import audit, cli
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.finished import prepare_finished
from glasshouse.auditing.setting import Setting, make_setting
from glasshouse.data.dataset import Dataset
from glasshouse.data.resizing import resized, resized_set
from glasshouse.errors import BadInput
from glasshouse.learning.evaluate import predict
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.per_sample import SampleGradients
from glasshouse.learning.recipe import Recipe
from glasshouse.models import build
from glasshouse.models.checking import checked_copy
from glasshouse.models.loading import load_model
from glasshouse.models.outputs import output_layer
from glasshouse.models.signature import check_named
from glasshouse.models.weights import load_but_head

USERS = """
import torch
from torch import nn

def create(shape, classes, width=8):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], width), nn.ReLU(),
                         nn.Linear(width, classes))

def fails(): 1 / 0
def nothing(): pass
def square(size, labels, width=4): return create(size, labels, width)
def deep(shape, classes, depth): return create(shape, classes, depth)
def open_ended(shape, classes, **options): return create(shape, classes, **options)

class Net(nn.Module):
    def __init__(self, shape, classes, *, width=8):
        super().__init__()
        self.layers = create(shape, classes, width)
    def forward(self, x): return self.layers(x)
"""


@dataclass
class Answer:
    """What a transformer of a well-known library returns."""

    loss: Tensor | None = None
    logits: Tensor | None = None


class Answering(nn.Module):
    """A network whose answer is wrapped by a function of the logits."""

    def __init__(self, wrapped):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(64, CLASSES)
        self.wrapped = wrapped

    def forward(self, x):
        return self.wrapped(self.head(x.flatten(1)))


def as_object(logits):
    return Answer(logits=logits)


def as_mapping(logits):
    return {"loss": None, "logits": logits}


def as_tuple(logits):
    return logits, logits.detach()


@pytest.fixture
def users(tmp_path, monkeypatch):
    """A module of the user's in the current folder; gives its name."""
    name = f"pretrained_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(USERS)
    monkeypatch.chdir(tmp_path)
    return name


@pytest.mark.parametrize("wrapped", [as_object, as_mapping, as_tuple])
def test_answers_that_hold_logits_are_trained_asked_and_differentiated_like_plain_ones(wrapped):
    plain = checked_copy(Answering(lambda logits: logits), SHAPE, CLASSES)
    boxed = checked_copy(Answering(wrapped), SHAPE, CLASSES)
    images, recipe = make_images(9), Recipe(epochs=2, batch_size=4, lr=0.1)
    assert torch.equal(predict(deepcopy(boxed), images.x), predict(plain, images.x))
    reached = [fit(deepcopy(net), read_vector(net), images, recipe, 0) for net in (plain, boxed)]
    assert torch.equal(*reached)
    gradients = [dict(SampleGradients(net.eval())(images.x, images.y)) for net in (plain, boxed)]
    assert all(torch.equal(gradients[0][name], gradients[1][name]) for name in gradients[0])
    state = dict(boxed.named_parameters())
    each = vmap(lambda x: functional_call(boxed, state, (x[None],))[0])(images.x)
    torch.testing.assert_close(each, plain(images.x))


@pytest.mark.parametrize("wrapped", [as_object, as_mapping, as_tuple])
def test_copies_and_other_processes_get_the_logits_under_the_names_of_the_users_own(wrapped):
    boxed = checked_copy(Answering(wrapped), SHAPE, CLASSES)
    x = torch.rand(3, *SHAPE)
    for copy in (
        deepcopy(boxed),
        cloudpickle.loads(cloudpickle.dumps(boxed)),
        checked_copy(boxed, SHAPE, CLASSES),
    ):
        assert torch.equal(copy(x), boxed(x))
        assert set(copy.state_dict()) == {"head.weight", "head.bias"}
    assert output_layer(boxed, SHAPE) is boxed.head


def test_the_users_own_network_is_left_as_it_was():
    network = Answering(as_object)
    checked_copy(network, SHAPE, CLASSES)
    assert isinstance(network(torch.rand(1, *SHAPE)), Answer)


@pytest.mark.parametrize(
    "wrapped", [lambda z: {"out": z}, lambda z: [z[None]], lambda z: Answer(logits=None)]
)
def test_answers_without_logits_are_refused(wrapped):
    with pytest.raises(BadInput, match=r"return the logits as one tensor, or an object .* \.logits"):
        checked_copy(Answering(wrapped), SHAPE, CLASSES)


@pytest.mark.parametrize("factory", ["create(width=3)", "square(width=3)", "deep(depth=3)", "Net(width=3)",
                                     "open_ended(width=3)"])  # fmt: skip
def test_a_users_factory_is_called_with_the_options_in_its_name(users, factory):
    model = load_model(f"{users}:{factory}", SHAPE, CLASSES)
    assert 3 in {parameter.shape[0] for parameter in model.parameters()}
    check_named(f"{users}:{factory}")


def test_networks_of_the_zoo_take_options_and_are_the_same_without_them():
    wide, usual = build("resnet20(width=4)", SHAPE, 3), build("resnet20", SHAPE, 3)
    assert [p.shape[0] for p in wide.parameters()][:1] == [4]
    same = build("resnet20(width=16)", SHAPE, 3)
    assert Layout.of(same) == Layout.of(usual) != Layout.of(wide)
    mlp = build("mlp(hidden=(5, 6))", SHAPE, 3)
    assert [tuple(p.shape) for p in mlp.parameters()] == [(5, 64), (5,), (6, 5), (6,), (3, 6), (3,)]


OPTIONS = [
    ("create(wide=3)", "takes no option 'wide'; it takes width"),
    ("Net(create=3)", "takes no option 'create'; it takes width"),
    ("create(shape=3)", "shape follows from the data; leave it out"),
    ("deep(width=3)", "takes no option 'width'; it takes none"),
]


@pytest.mark.parametrize(("factory", "words"), OPTIONS)
def test_options_that_a_factory_does_not_take_are_refused_before_and_when_it_is_called(users, factory, words):
    for refuse in (check_named, lambda spec: load_model(spec, SHAPE, CLASSES)):
        with pytest.raises(BadInput) as refused:
            refuse(f"{users}:{factory}")
        assert words in str(refused.value)


@pytest.mark.parametrize(("spec", "words"), [
    ("lenet(width=3)", "takes no option 'width'; it takes none"),
    ("resnet20(wide=3)", "takes no option 'wide'; it takes width"),
    ("resnet20(width=0)", "resnet20 width = 0 is out of range"),
    ("mlp(hidden=())", "mlp hidden = () is out of range"),
    ("mlp(hidden=(200, 0.5))", "mlp hidden = 0.5 is out of range"),
    ("mlp(200)", "cannot be read"),
    ("resnet", None),
])  # fmt: skip
def test_options_of_the_zoo_are_checked(spec, words):
    if words is None:
        build(spec, SHAPE, 3)
        return
    with pytest.raises(BadInput) as refused:
        build(spec, SHAPE, 3)
    assert words in str(refused.value)


def test_a_wrong_option_is_refused_before_torch_is_imported(tmp_path):
    (tmp_path / "my.toml").write_text('[model]\nname = "resnet20(wide=3)"\n')
    code = (
        "import sys\nfrom pathlib import Path\nfrom glasshouse.auditing.setting import read_setting\n"
        "from glasshouse.naming import refuse_unknown\n"
        "try: refuse_unknown(read_setting(Path('my.toml')))\nexcept ValueError as error: print(error)\n"
        "print([name for name in ('torch', 'scipy', 'sklearn') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "model 'resnet20(wide=3)' takes no option 'wide'; it takes width",
        "[]",
    ]


def saved(tmp_path, spec="mlp", classes=6, drop=(), shape=SHAPE, **changed):
    """A file of weights of another number of classes, and what is in it."""
    torch.manual_seed(1)
    state = build(spec, shape, classes).state_dict()
    state = {name: tensor for name, tensor in state.items() if name not in drop} | changed
    save_file(state, tmp_path / "saved.safetensors")
    return tmp_path / "saved.safetensors", state


@pytest.mark.parametrize(("drop", "words"), [
    ((), "the last layer 5 (4x200) does not fit the file's (6x200)"),
    (("5.weight", "5.bias"), "the last layer 5 (4x200) is not in the file"),
])  # fmt: skip
def test_weights_that_fit_all_but_the_last_layer_leave_it_as_it_is_and_say_so(tmp_path, drop, words):
    path, state = saved(tmp_path, drop=drop)
    network = build("mlp", SHAPE, CLASSES)
    before = deepcopy(network.state_dict())
    head = load_but_head(network, path, SHAPE)
    assert (head.layer, head.tensors, head.words) == ("5", ("5.weight", "5.bias"), words)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name] if name in head.tensors else state[name])


def test_weights_that_fit_the_last_layer_too_are_all_loaded(tmp_path):
    path, state = saved(tmp_path, classes=CLASSES)
    network = build("mlp", SHAPE, CLASSES)
    assert load_but_head(network, path, SHAPE) is None
    assert all(torch.equal(tensor, state[name]) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize(("spec", "options", "words"), [
    ("mlp", {"shape": (1, 9, 9)}, "1.weight (200x81 in the file, 200x64 in the model); only its last layer"),
    ("mlp(hidden=(200, 100))", {}, "3.weight (100x200 in the file, 200x200 in the model), 3.bias (100"),
    ("mlp", {"drop": ("3.bias",)}, "3.bias (absent in the file, 200 in the model)"),
    ("mlp", {"spare": torch.zeros(2)}, "spare (2 in the file, absent in the model)"),
    ("mlp", {"classes": CLASSES, "5.bias": torch.zeros(7)}, "5.bias (7 in the file, 4 in the model)"),
])  # fmt: skip
def test_weights_that_differ_in_more_than_the_last_layer_are_refused(tmp_path, spec, options, words):
    path, _ = saved(tmp_path, spec, **options)
    network = build("mlp", SHAPE, CLASSES)
    before = deepcopy(network.state_dict())
    with pytest.raises(BadInput) as refused:
        load_but_head(network, path, SHAPE)
    assert words in str(refused.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_a_network_that_is_one_layer_has_no_other_to_take_from_a_file(tmp_path):
    save_file(nn.Linear(5, 3).state_dict(), tmp_path / "saved.safetensors")
    with pytest.raises(BadInput, match=r"weight \(3x5 in the file, 4x5 in the model\)"):
        load_but_head(nn.Linear(5, 4), tmp_path / "saved.safetensors", (1, 1, 5))


DATA = {"clients": 2, "members": 20, "nonmembers": 8, "auxiliary": 8, "test": 8}


def setting_of(model, seed=0):
    return Setting(seed=seed, data=DATA, model=model, audit={"defences": []})


def test_a_new_head_is_drawn_from_the_runs_seed_and_those_of_shadows_from_theirs(tmp_path):
    path, state = saved(tmp_path)
    first, again, other = (
        prepare(setting_of({"name": "mlp", "weights": str(path)}, seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first.start, again.start)
    assert not torch.equal(first.start, other.start)
    assert first.fresh_weights
    layout, drawn = Layout.of(first.model), first.fresh(7)
    fresh, start = layout.named(drawn), layout.named(first.start)
    for name in layout.names:
        assert torch.equal(fresh[name], start[name]) == (not name.startswith("5."))
        assert torch.equal(fresh[name], state[name]) == (not name.startswith("5."))
    assert torch.equal(first.fresh(7), drawn)
    assert any("the last layer 5 (10x200) does not fit the file's (6x200)" in line for line in first.notes)
    assert "# the last layer 5 (10x200) does not fit" in other.config()
    assert "drawn anew with seed 1" in other.config()


@pytest.mark.parametrize("train", [[], ["3.*"]])
def test_first_weights_are_told_by_their_file_and_not_by_the_head_that_a_seed_draws(tmp_path, train):
    def told(seed, **tensors):
        path, _ = saved(tmp_path, **tensors)
        model = {"name": "mlp", "weights": str(path), "train": train}
        return prepare(setting_of(model, seed)).origin.given["first weights"]

    assert told(0) == told(1)
    assert told(0) != told(0, **{"1.bias": torch.ones(200)})


def test_a_network_that_was_handed_over_draws_its_new_head_from_the_seed_too(tmp_path):
    path, _ = saved(tmp_path)
    first, again, other = (
        prepare(setting_of({"weights": str(path)}, seed), model=build("mlp", SHAPE, 10)) for seed in (0, 0, 1)
    )
    assert torch.equal(first.start, again.start)
    assert not torch.equal(first.start, other.start)
    moved = [
        name
        for name, part in Layout.of(first.model).named(first.fresh(3) - first.start).items()
        if part.any()
    ]
    assert moved == ["5.weight", "5.bias"]


def test_frozen_parts_are_those_of_the_file_and_only_the_rest_is_exchanged(tmp_path):
    path, state = saved(tmp_path)
    experiment = prepare(setting_of({"name": "mlp", "weights": str(path), "train": "5.*"}))
    assert Layout.of(experiment.model).names == ("5.weight", "5.bias")
    assert torch.equal(experiment.model[1].weight, state["1.weight"])
    assert len(experiment.fresh(1)) == len(experiment.start) == 10 * 201
    assert any(
        "clients train and send 5.weight, 5.bias (2,010 numbers) of the 55,210" in n for n in experiment.notes
    )


def test_other_frozen_weights_make_another_run(tmp_path):
    model = {"name": "mlp", "train": ["5.*"]}
    origins = []
    for value in (0.0, 1.0):
        path, _ = saved(tmp_path, classes=10, **{"1.bias": torch.full((200,), value)})
        origins.append(prepare(setting_of(model | {"weights": str(path)})).origin.given["first weights"])
    assert origins[0] != origins[1]


def test_a_finished_model_needs_all_of_its_weights(tmp_path):
    path, _ = saved(tmp_path)
    pair = make_images(12).x.numpy(), make_images(12).y.numpy()
    other = make_images(12, seed=1).x.numpy(), make_images(12).y.numpy()
    with pytest.raises(BadInput, match="has shape"):
        prepare_finished(
            Setting(model={"name": "mlp", "weights": str(path)}, audit={"attacks": ["gap"]}),
            {"members": pair, "nonmembers": other},
            None,
        )


@pytest.mark.parametrize(("model", "words"), [
    ({"name": "mlp", "train": ["fc.*"]}, "model.train = 'fc.*' matches no parameter of the model"),
    ({"name": "mlp", "train": ["5.*", ""]}, "model.train = '' matches no parameter of the model"),
])  # fmt: skip
def test_patterns_that_match_nothing_are_refused(model, words):
    with pytest.raises(BadInput) as refused:
        prepare(setting_of(model))
    assert words in str(refused.value)


def test_images_are_resized_once_as_torch_does_it_and_stay_in_range():
    images = make_images(300)
    made = resized(images, 12)
    expected = F.interpolate(images.x, (12, 12), mode="bilinear", antialias=True)
    torch.testing.assert_close(made.x, expected.clamp(0, 1))
    assert made.shape == (1, 12, 12)
    assert torch.equal(made.y, images.y)
    assert 0 <= float(made.x.min()) <= float(made.x.max()) <= 1


def test_a_smaller_side_averages_the_pixels_it_covers():
    x = torch.rand(2, 1, 8, 8)
    images = make_images(2)
    constant = resized(type(images)(torch.full_like(x, 0.3), images.y, CLASSES), 3)
    torch.testing.assert_close(constant.x, torch.full((2, 1, 3, 3), 0.3))


def test_a_resized_data_set_is_one_piece_of_memory_and_keeps_its_parts():
    images = make_images(12)
    dataset = Dataset("set", images[:8], images[8:])
    made = resized_set(dataset, 4)
    assert torch.equal(made.pool.x, resized(images, 4).x)
    assert made.pool.x.data_ptr() == made.train.x.data_ptr()
    assert resized_set(dataset, None) is dataset
    assert resized_set(dataset, 8) is dataset


def test_the_network_is_built_for_the_size_that_the_images_are_brought_to():
    experiment = prepare(setting_of({"name": "mlp", "image_size": 5}))
    assert experiment.split.pool.shape == (1, 5, 5)
    assert experiment.model[1].in_features == 25
    assert experiment.notes == ("images of 8x8 pixels are resized to 5x5, bilinearly with antialiasing",)


def shown(language):
    """The blocks of the page for one's own network that are about pre-trained ones."""
    text = (Path(__file__).parent.parent / "docs" / "bring-your-own.md").read_text()
    section = text.partition("## My network is pre-trained")[2].partition("## My clients train like")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def test_the_audit_of_a_head_that_the_docs_show_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(glasshouse, "audit", partial(audit, out="run", workers=1, quiet=True), raising=False)
    (code,) = shown("python")
    exec(code, {})
    lines = capsys.readouterr().out.splitlines()
    assert f"None bytes-up {4 * 17 * 10:.1f}" in lines
    assert any(line.startswith("label-counts label-overlap") for line in lines)
    assert any("linear-leak the linear layer '1' is frozen" in line for line in lines)


def test_the_configuration_of_a_head_that_the_docs_show_is_one():
    (text,) = shown("toml")
    assert make_setting(tomllib.loads(text)).model.train == ("head.*", "*.adapter.*")


def test_one_pattern_may_stand_for_a_list_of_one():
    assert make_setting({"model": {"train": "5.*"}}) == make_setting({"model": {"train": ["5.*"]}})


@pytest.mark.parametrize(("model", "words"), [
    ("name = 'mlp(hidden=(200, 100))'\nweights = 'saved.safetensors'", "3.weight (200x200 in the file"),
    ("name = 'mlp'\ntrain = ['fc.*']", "model.train = 'fc.*' matches no parameter"),
    ("name = 'lenet(width=3)'", "takes no option 'width'; it takes none"),
    ("name = 'mlp'\nimage_size = 0", "model.image_size = 0 does not fit"),
    ("name = '{users}:fails'", "the factory failed with ZeroDivisionError: division by zero; repair it"),
    ("name = '{users}:nothing'", "the factory gave NoneType; return a torch.nn.Module"),
])  # fmt: skip
def test_what_cannot_be_used_ends_the_command_with_a_line_and_code_2(
    users, tmp_path, monkeypatch, capsys, model, words
):
    saved(tmp_path)
    (tmp_path / "my.toml").write_text(f"[model]\n{model.format(users=users)}\n")
    monkeypatch.setattr(sys, "argv", ["glasshouse", "audit", "my.toml", "--quiet"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line

"""What `glasshouse vet` does with files that are no weights: exit code 1 is a verdict, and never a crash."""

import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
import zipfile

import pytest
import torch
from received_models import network
from safetensors.torch import save_file
from test_cli import run

from glasshouse import models
from glasshouse.errors import BadInput
from glasshouse.models import build
from glasshouse.vetting import files, probing
from glasshouse.vetting.vet import vet

WORDS = ("--model", "mlp", "--shape", "1x16x16")
STATE = network("mlp").state_dict()
FIRST = next(iter(STATE))


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def saved(value, **options) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def tar_of(content: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        entry = tarfile.TarInfo("storages")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def packed(content: bytes) -> bytes:
    """The same torch archive with its records packed, so that it unpacks to far more than it takes."""
    file = io.BytesIO()
    plain = zipfile.ZipFile(io.BytesIO(content))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as small:
        for name in plain.namelist():
            small.writestr(name, plain.read(name))
    return file.getvalue()


def scripted() -> bytes:
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2)), file)
    return file.getvalue()


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    save_file(STATE, "honest.safetensors")
    return lambda *words: run(monkeypatch, capsys, "vet", *words)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "content",
    [
        lambda: saved(STATE | {FIRST: torch.nested.nested_tensor([torch.rand(2, 2)])}),
        lambda: saved(STATE | {FIRST: torch.nested.nested_tensor([torch.rand(2, 2)], layout=torch.jagged)}),
        lambda: saved(STATE | {FIRST: torch.quantize_per_tensor(STATE[FIRST], 0.1, 0, torch.qint8)}),
        lambda: saved(STATE | {FIRST: STATE[FIRST].to_sparse()}),
        lambda: saved(STATE | {FIRST: STATE[FIRST].to_sparse_csr()}),
        lambda: saved(STATE | {FIRST: STATE[FIRST].to("meta")}),
        lambda: saved(STATE | {FIRST: STATE[FIRST] + 0j}),
        lambda: saved(STATE | {FIRST: STATE[FIRST] > 0}),
        lambda: saved(STATE | {7: torch.zeros(2)}),
        lambda: saved(STATE | {"a\nb\x1b[31m\ud800": torch.zeros(2)}),
        lambda: saved(network("mlp")),
        lambda: saved(Evil()),
        lambda: saved([1]),
        lambda: pickle.dumps(Evil()),
        lambda: tar_of(saved(STATE)),
        lambda: packed(saved(STATE | {FIRST: torch.zeros(10**6)})),
        lambda: packed(saved({name: torch.zeros_like(value) for name, value in STATE.items()})),
        lambda: scripted(),
    ],
)
def test_a_file_that_can_be_read_and_holds_something_else_is_a_verdict(command, tmp_path, content):
    (tmp_path / "received.pt").write_bytes(content())
    code, out, error = command("received.pt", *WORDS)
    assert (code, error) == (1, "")
    assert out.startswith("CRAFTED: do not train this model; it is not the network that you named")
    assert all(line.isprintable() for line in out.splitlines())
    assert "digest" not in out
    assert not (tmp_path / "evil").exists()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x02",
        saved(STATE)[:-100],
        saved(STATE)[:2000],
        saved(STATE).replace(b"_rebuild_tensor_v2", b"_rebuild_tensor_v9", 1),  # its checksum no longer fits
        saved(STATE).replace(b"PK\x01\x02\x00\x00\x00\x00\x08\x08", b"PK\x01\x02\x00\x00\x00\x00\x09\x08", 1),
        b"\xff".join(saved(STATE).rsplit(b"archive/data.pkl", 1)),  # its list names what is no text
        saved(STATE)[:27] + b"\x02" + saved(STATE)[28:],  # a record with another name
        saved(STATE, _use_new_zipfile_serialization=False)[:-100],
        pickle.dumps(torch.float32, protocol=2)[:-1],
    ],
)
@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_a_file_that_cannot_be_read_is_one_line_and_exit_code_2(command, tmp_path, content, suffix):
    (tmp_path / f"received.{suffix}").write_bytes(content)
    code, out, error = command(f"received.{suffix}", *WORDS)
    assert (code, out) == (2, "")
    assert error.startswith("glasshouse: weights received")
    assert error[:-1].isprintable()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("content", "code"),
    [
        (lambda: pickle.dumps(Evil(), protocol=0), "os mkdir"),
        (lambda: pickle.dumps(Evil(), protocol=2), "os mkdir"),
        (lambda: pickle.dumps(Evil(), protocol=4), "os mkdir"),
        (lambda: pickle.dumps(Evil(), protocol=4)[:-1], "os mkdir"),  # runs, and fails only then
        (lambda: saved({FIRST: torch.zeros(2), "x": Evil()}), "os mkdir"),
        (lambda: saved([STATE, Evil()], _use_new_zipfile_serialization=False), "os mkdir"),
        (lambda: saved({"x": torch.load}), "torch.serialization load"),
    ],
)
def test_a_file_that_would_run_code_is_a_verdict_that_names_it_and_runs_nothing(
    command, tmp_path, content, code
):
    (tmp_path / "received.pt").write_bytes(content())
    assert command("received.pt", *WORDS)[0] == 1
    shown = command("received.pt", *WORDS)[1]
    assert code.replace("os ", os.mkdir.__module__ + " ") in shown
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        (lambda state: state | {"front.weight": torch.zeros(4, 4)}, "the file has layers that your network"),
        (lambda state: {name: state[name] for name in list(state)[1:]}, "it lacks layers that your network"),
        (lambda state: state | {FIRST: torch.zeros(3, 256)}, f"{FIRST} 3x256 instead of 200x256"),
        (lambda state: {f"module.{name}": value for name, value in state.items()}, "new-layers"),
        (lambda state: state | {FIRST: state[FIRST].int()}, "save it as torch.float32"),
        (lambda state: state | {FIRST: state[FIRST].double() * 1e300}, "not-finite"),
        (lambda state: state | {FIRST: state[FIRST] * torch.inf}, "not-finite"),
        (lambda state: state | {"\x1b[2Jclean: all is well": torch.zeros(2)}, "new-layers"),
    ],
)
def test_every_way_to_send_another_network_is_a_verdict(command, change, sign):
    save_file(change(dict(STATE)), "received.safetensors")
    code, out, _ = command("received.safetensors", *WORDS)
    assert code == 1
    assert sign in out
    assert all(line.isprintable() for line in out.splitlines())
    code, out, _ = command("received.safetensors", *WORDS, "--json")
    assert (code, json.loads(out)["crafted"]) == (1, True)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_another_precision_are_judged_as_they_would_be_loaded(command, kind):
    save_file({name: value.to(kind) for name, value in STATE.items()}, "received.safetensors")
    assert command("received.safetensors", *WORDS)[0] == 0


def test_tied_weights_that_differ_are_a_verdict(command, tmp_path, monkeypatch):
    (tmp_path / "tied_nets.py").write_text(
        "from torch import nn\n"
        "def net():\n"
        "    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))\n"
        "    model[3].weight = model[1].weight\n"
        "    return model\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ("--model", "tied_nets:net", "--shape", "1x16x16", "--classes", "256")
    weight, bias = torch.rand(256, 256) - 0.5, torch.zeros(256)
    state = {"1.weight": weight, "1.bias": bias, "3.bias": bias.clone()}
    save_file(state, "once.safetensors")
    assert command("once.safetensors", *words)[0] == 0
    save_file(state | {"3.weight": weight + 1}, "twice.safetensors")
    code, out, _ = command("twice.safetensors", *words)
    assert code == 1
    assert "but the model ties them" in out


def test_an_earlier_model_that_does_not_fit_is_a_verdict_as_it_came_from_the_server_too(command):
    save_file(STATE | {"front.weight": torch.zeros(4, 4)}, "changed.safetensors")
    save_file(STATE | {FIRST: STATE[FIRST] * torch.nan}, "broken.safetensors")
    for earlier, sign in (
        ("changed", "new-layers: changed.safetensors, of an earlier"),
        ("broken", "earlier"),
    ):
        words = ("honest.safetensors", *WORDS, "--before", f"{earlier}.safetensors")
        code, out, _ = command(*words)
        assert code == 1
        assert sign in out
    assert command("honest.safetensors", *WORDS, "--before", "absent.safetensors")[0] == 2


def test_weights_with_which_a_users_network_fails_are_a_verdict(command, tmp_path, monkeypatch):
    (tmp_path / "choosy_nets.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(256, 10)\n"
        "    def forward(self, x):\n"
        "        assert self.layer.bias.abs().max() < 9, 'bias'\n"
        "        return self.layer(x.flatten(1))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    state = {"layer.weight": torch.rand(10, 256), "layer.bias": torch.full((10,), 99.0)}
    save_file(state, "received.safetensors")
    code, out, _ = command("received.safetensors", "--model", "choosy_nets:Net", "--shape", "1x16x16")
    assert code == 1
    assert "fails: with these weights" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--shape", "999999x999999x999999"), "over the limit of 4,194,304"),
        (("--shape", "1x16x16", "--classes", "999999999999"), "over the limit of 100,000"),
        (("--shape", "1x16x16", "--classes", str(2**80)), "over the limit of 100,000"),
        (("--shape", "1x16x16", "--classes", "-1"), "at least 2"),
        (("--shape", "1x16x16", "--seed", str(2**63)), "below 2^63"),
        (("--data", "~nobody/x"), "not a folder"),
    ],
)
def test_a_shape_or_number_beyond_all_bounds_is_refused_before_anything_is_built(command, words, message):
    code, _, error = command("honest.safetensors", "--model", "mlp", *words)
    assert code == 2
    assert message in error


def test_a_network_that_does_not_fit_into_memory_is_refused_before_it_is_built(monkeypatch):
    monkeypatch.setattr(models, "available_memory", lambda: 10**9)
    with pytest.raises(BadInput, match=r"would have 200,\d{3},\d{3} parameters .* give smaller images"):
        build("mlp", (1, 1000, 1000), 10)


def test_images_that_do_not_fit_into_memory_with_all_that_is_made_of_them_are_refused(monkeypatch):
    monkeypatch.setattr(probing, "available_memory", lambda: 1000)
    with pytest.raises(BadInput, match=r"8 images of shape \(1, 16, 16\) need"):
        vet(network("lenet"), (1, 16, 16))


def test_a_model_whose_answers_overflow_is_not_called_clean():
    model = network("lenet")
    with torch.no_grad():
        model[0].weight *= 1e38
        model[-1].weight *= 1e38
    vetting = vet(model, (1, 16, 16))
    assert vetting.crafted
    assert "not-finite" in {sign.name for sign in vetting.signs}


@pytest.mark.parametrize(
    "error", [RuntimeError("first\nsecond"), MemoryError(), SystemExit(1), SystemExit(0)]
)
def test_a_crash_is_no_verdict(command, monkeypatch, error):
    def crash(*_, **__):
        raise error

    monkeypatch.setattr(files, "vet_file", crash)
    code, out, told = command("honest.safetensors", *WORDS)
    assert (code, out) == (3, "")
    told_of = "the model's code left" if isinstance(error, SystemExit) else type(error).__name__
    assert told.startswith("glasshouse: unexpected ")
    assert told_of in told
    assert told.count("\n") == 1
    monkeypatch.setenv("GLASSHOUSE_TRACEBACK", "1")
    assert "Traceback" in command("honest.safetensors", *WORDS)[2]


@pytest.mark.parametrize("place", ["/dev/full", "closed pipe"])
def test_a_verdict_that_cannot_be_told_is_none(command, place):
    words = [sys.executable, "-m", "glasshouse.cli", "vet", "honest.safetensors", *WORDS]
    if place == "closed pipe":
        reading, writing = os.pipe()
        os.close(reading)
    else:
        writing = os.open(place, os.O_WRONLY)
    code = subprocess.run(words, check=False, stdout=writing, stderr=subprocess.PIPE).returncode
    os.close(writing)
    assert code not in (0, 1)


def test_a_pipe_or_device_is_not_waited_for(command, tmp_path):
    for suffix in ("pt", "safetensors"):
        os.mkfifo(tmp_path / f"pipe.{suffix}")
        assert command(f"pipe.{suffix}", *WORDS)[0] == 2
        (tmp_path / f"zero.{suffix}").symlink_to("/dev/zero")
        assert command(f"zero.{suffix}", *WORDS)[0] == 2


def test_a_factory_that_leaves_is_no_verdict(command, tmp_path):
    (tmp_path / "leaves.py").write_text("import sys\ndef net(): sys.exit(1)\n")
    assert command("honest.safetensors", "--model", "leaves:net", "--shape", "1x16x16")[0] in (2, 3)


def test_the_module_that_a_model_was_imported_from_is_named_beside_the_verdict(
    command, tmp_path, monkeypatch
):
    (tmp_path / "nets_of_mine.py").write_text(
        "from glasshouse.models import build\n"
        "def net(shape, classes):\n"
        "    return build('mlp', shape, classes)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    plain = command("honest.safetensors", *WORDS)
    code, printed, said = command("honest.safetensors", "--model", "nets_of_mine:net", "--shape", "1x16x16")
    assert (code, printed) == plain[:2]
    assert (
        said == f"glasshouse: imported nets_of_mine from {tmp_path / 'nets_of_mine.py'}, which ran its code\n"
    )

"""Vetting for clients that lack a class, and in federations that train only a part of the network."""

import json

import numpy as np
import pytest
import torch
from received_models import natural_images, network
from safetensors.torch import save_file
from test_cli import run
from torch import nn

from glasshouse.vetting.vet import digest

SHAPE = (1, 16, 16)

OWN = """
import torch
from torch import nn

class Network(nn.Module):
    def __init__(self, shape, classes, frozen=False, drawn=0):
        super().__init__()
        torch.manual_seed(drawn)
        self.body = nn.Sequential(nn.Conv2d(shape[0], 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(8 * 14 * 14, classes)
        self.body.requires_grad_(not frozen)
    def forward(self, x): return self.head(self.body(x))
"""


@pytest.fixture
def vet(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words: run(monkeypatch, capsys, "vet", *words)


def held(labels, path="mine.npz"):
    """Images of a client with these labels, each eight times."""
    y = np.repeat(labels, 8)
    np.savez(path, x=natural_images(len(y), SHAPE).numpy(), y=y)
    return path


# Classes.


@pytest.mark.parametrize("labels", [range(8), (0, 1, 2, 4, 5, 6, 7, 9), (3,)])
def test_a_client_that_lacks_classes_says_how_many_there_are(vet, labels):
    save_file(network("lenet").state_dict(), "sent.safetensors")
    code, out, _ = vet("sent.safetensors", "--model", "lenet", "--data", held(labels), "--classes", "10")
    assert code == 0
    assert digest(network("lenet")) in out


def test_a_client_that_lacks_a_middle_class_need_not_say_so(vet):
    save_file(network("lenet").state_dict(), "sent.safetensors")
    assert vet("sent.safetensors", "--model", "lenet", "--data", held((0, 1, 2, 4, 9)))[0] == 0


def test_more_classes_in_the_file_than_the_labels_suggest_are_a_reason_with_a_remedy(vet):
    save_file(network("lenet").state_dict(), "sent.safetensors")
    code, out, _ = vet("sent.safetensors", "--model", "lenet", "--data", held(range(8)))
    assert code == 1
    assert "your labels suggest 8 classes, the file's last layer has 10" in out
    assert "give --classes 10" in out
    code, out, _ = vet("sent.safetensors", "--model", "lenet", "--data", held(range(8)), "--classes", "8")
    assert code == 1
    assert "--classes 10" not in out


def test_fewer_classes_than_there_are_labels_are_refused(vet):
    save_file(network("lenet").state_dict(), "sent.safetensors")
    code, _, error = vet("sent.safetensors", "--model", "lenet", "--data", held(range(8)), "--classes", "7")
    assert code == 2
    assert "--classes 7: the labels of mine.npz go up to 7; give at least 8" in error


def test_an_empty_folder_stands_for_a_class_without_an_image(vet, tmp_path):
    from PIL import Image

    save_file(network("lenet", classes=3).state_dict(), "sent.safetensors")
    for name in ("cat", "dog", "hen"):
        (tmp_path / "mine" / name).mkdir(parents=True)
    for number, image in enumerate(natural_images(12, SHAPE)):
        picture = Image.fromarray((image[0] * 255).byte().numpy())
        picture.save(tmp_path / "mine" / ("cat", "hen")[number % 2] / f"{number}.png")
    assert vet("sent.safetensors", "--model", "lenet", "--data", "mine")[0] == 0
    assert vet("sent.safetensors", "--model", "lenet", "--data", tmp_path / "mine" / "cat")[0] == 2


# Heads.


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A factory of the client's own, by its name, and networks as the server has them."""
    name = f"heads_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return f"{name}:Network"


def states(own):
    """What a federation that trains the head sends in two rounds: all, then the head alone."""
    make = __import__(own.partition(":")[0]).Network
    first = make(SHAPE, 10, drawn=5).state_dict()
    generator = torch.Generator().manual_seed(0)
    head = {
        name: tensor + 0.01 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in first.items()
        if name.startswith("head.")
    }
    return first, head


SHOWN = ("--shape", "1x16x16")


def test_a_file_of_the_head_alone_is_judged_with_the_body_of_the_round_before(vet, own):
    first, head = states(own)
    save_file(first, "first.safetensors")
    save_file(head, "head.safetensors")
    words = ("head.safetensors", "--model", own, *SHOWN, "--json")
    assert vet(*words)[0] == 1
    code, out, _ = vet(*words, "--train", "head.*", "--before", "first.safetensors")
    verdict = json.loads(out)
    assert (code, verdict["crafted"], verdict["signs"]) == (0, False, [])
    code, other, _ = vet(*words, "--train", "head.weight", "--train", "head.bias")
    assert code == 0
    assert json.loads(other)["digest"] == verdict["digest"]  # of what is sent
    assert [sign["name"] for sign in json.loads(other)["signs"]] == ["frozen-unseen"]


def test_a_factory_that_freezes_its_body_needs_no_pattern(vet, own):
    _, head = states(own)
    save_file(head, "head.safetensors")
    held(range(10))
    code, out, _ = vet("head.safetensors", "--model", f"{own}(frozen=True)", "--data", "mine.npz")
    assert code == 0
    assert "those of --model stand in" in out


def test_a_frozen_tensor_that_is_not_that_of_the_round_before_is_a_sign(vet, own):
    first, head = states(own)
    save_file(first, "first.safetensors")
    save_file(head, "second.safetensors")
    words = ("--model", own, *SHOWN, "--train", "head.*", "--before", "first.safetensors")
    words = (*words, "--before", "second.safetensors")
    save_file(first | head, "sent.safetensors")
    assert vet("sent.safetensors", *words)[0] == 0
    save_file(first | head | {"body.0.bias": first["body.0.bias"] + 1e-3}, "sent.safetensors")
    code, out, _ = vet("sent.safetensors", *words)
    assert code == 1
    assert "frozen-changed: body.0.bias differ" in out
    save_file(first | head | {"body.1.running_mean": torch.full((8,), 0.1)}, "sent.safetensors")
    code, out, _ = vet("sent.safetensors", *words)
    assert code == 0
    assert "frozen-changed: body.1.running_mean differ" in out


def test_what_is_trained_may_not_be_missing_and_nothing_may_be_added(vet, own):
    _, head = states(own)
    words = ("--model", own, *SHOWN, "--train", "head.*")
    save_file({"head.weight": head["head.weight"]}, "sent.safetensors")
    code, out, _ = vet("sent.safetensors", *words)
    assert code == 1
    assert "missing-layers: it lacks layers that your network has: head.bias 10" in out
    save_file(head | {"extra": torch.zeros(3)}, "sent.safetensors")
    code, out, _ = vet("sent.safetensors", *words)
    assert code == 1
    assert "new-layers: the file has layers that your network does not: extra 3" in out


def test_a_crafted_head_shows_though_the_body_is_frozen(vet, own):
    crafted = nn.Linear(8 * 14 * 14, 10)
    with torch.no_grad():
        crafted.weight.mul_(1e-3)
        crafted.bias.copy_(torch.linspace(0, 600, 10))
    save_file({f"head.{name}": part for name, part in crafted.state_dict().items()}, "sent.safetensors")
    code, out, _ = vet("sent.safetensors", "--model", own, *SHOWN, "--train", "head.*")
    assert code == 1
    assert "exploding-biases in head" in out


def test_a_pattern_that_matches_nothing_is_refused(vet, own):
    _, head = states(own)
    save_file(head, "sent.safetensors")
    code, _, error = vet("sent.safetensors", "--model", own, *SHOWN, "--train", "fc.*")
    assert code == 2
    assert "'fc.*' matches no parameter" in error

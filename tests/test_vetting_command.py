"""The command `glasshouse vet`."""

import json

import pytest
import torch
from received_models import eluding, network
from safetensors.torch import save_file
from test_cli import run

from glasshouse.vetting.vet import digest


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    save_file(network("lenet").state_dict(), "honest.safetensors")
    save_file(eluding(network("lenet")).state_dict(), "dead.safetensors")
    return lambda *words: run(monkeypatch, capsys, "vet", *words)


def test_the_command_says_clean_with_exit_code_0(command):
    code, out, _ = command("honest.safetensors", "--model", "lenet", "--shape", "1x16x16")
    assert code == 0
    assert out.startswith("clean")
    assert digest(network("lenet")) in out


def test_the_command_says_crafted_and_why_with_exit_code_1(command):
    code, out, _ = command("dead.safetensors", "--model", "lenet", "--shape", "1x16x16", "--json")
    assert code == 1
    verdict = json.loads(out)
    assert verdict["crafted"]
    assert {"name", "layer", "why", "alarming"} == verdict["signs"][0].keys()
    code, out, _ = command("dead.safetensors", "--model", "lenet", "--shape", "1x16x16")
    assert code == 1
    assert out.startswith("CRAFTED")
    assert "dead-layer in 7" in out


def test_weights_in_a_file_that_are_not_numbers_are_a_verdict(command):
    broken = network("lenet").state_dict()
    broken["0.weight"] = broken["0.weight"] * torch.nan
    save_file(broken, "broken.safetensors")
    code, out, _ = command("broken.safetensors", "--model", "lenet", "--shape", "1x16x16")
    assert code == 1
    assert "not-finite in 0.weight" in out


def test_the_command_compares_with_predecessors_and_peers(command):
    words = ("honest.safetensors", "--model", "lenet", "--shape", "1x16x16", "--classes", "10")
    assert command(*words, "--before", "honest.safetensors")[0] == 0
    code, out, _ = command(*words, "--peer-digest", "0" * 64)
    assert code == 1
    assert "inconsistent" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "either --data or --shape"),
        (("--shape", "16x16"), "like 1x28x28"),
        (("--data", "digits-absent"), "digits-absent"),
        (("--shape", "1x16x16", "--peer-digest", "x"), "64 digits"),
    ],
)
def test_the_command_names_bad_input_with_exit_code_2(command, words, message):
    code, _, error = command("honest.safetensors", "--model", "lenet", *words)
    assert code == 2
    assert message in error

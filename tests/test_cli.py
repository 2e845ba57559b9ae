import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import glasshouse
from glasshouse import api, cli
from glasshouse.auditing.setting import EXAMPLE, read_setting


def run(monkeypatch, capsys, *words):
    """Run a command in this process: its exit code, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["glasshouse", *map(str, words)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    captured = capsys.readouterr()
    return stopped.value.code or 0, captured.out, captured.err


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words: run(monkeypatch, capsys, *words)


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['glasshouse', '--help']\n"
        "from glasshouse.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'scipy', 'sklearn', 'matplotlib', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


WRONG_NAMES = [
    ["audit", "--model", "lenett"],
    ["audit", "--data", "cifar11"],
    ["audit", "--defences", "prunning(fraction=0.5)+clipping"],
    ["study", "mia-badd"],
    ["study", "mia-bda", "--list"],
    ["vet", "received.pt", "--model", "lenett", "--shape", "1x8x8"],
    ["inspect", "update.pt", "--before", "sent.pt", "--model", "lenett"],
    ["search-policy", "--model", "lenett"],
]


def test_a_wrong_name_is_refused_before_anything_heavy_is_imported():
    code = (
        "import sys\n"
        "from glasshouse.cli import main\n"
        f"for words in {WRONG_NAMES!r}:\n"
        "    sys.argv = ['glasshouse', *words]\n"
        "    try: main()\n"
        "    except SystemExit as stopped: assert stopped.code == 2, words\n"
        "heavy = {'torch', 'numpy', 'scipy', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert [line.partition("; did you mean")[1] for line in ended.stderr.splitlines()] == [
        "; did you mean" for _ in WRONG_NAMES
    ]


@pytest.mark.parametrize(
    "name", ["audit", "gate", "init", "study", "vet", "inspect", "list", "data", "report"]
)
def test_every_command_shows_an_example(command, name):
    code, out, _ = command(name, "--help")
    assert code == 0
    assert f"glasshouse {name}" in out.replace("\n", " ")
    assert "Example" in out


LISTED = [
    *("attacks", "defences", "models", "data", "partitions", "strategies", "channels", "studies"),
    "adversaries",
]


def test_list_alone_shows_what_can_be_listed(command):
    code, out, _ = command("list")
    assert code == 0
    assert [line.split()[2] for line in out.splitlines()] == LISTED


def test_the_public_names_are_shown_without_importing_them():
    import glasshouse

    assert {"audit", "inspect_update", "search_policy", "vet", "Setting"} <= set(dir(glasshouse))
    assert all(getattr(glasshouse, name) is not None for name in dir(glasshouse))


@pytest.mark.parametrize("kind", LISTED)
def test_every_listed_name_is_described(command, kind):
    code, out, _ = command("list", kind)
    assert code == 0
    for line in out.splitlines():
        name, _, summary = line.partition("  ")
        assert name
        assert len(summary.strip()) > 20, line


def test_init_writes_the_example_and_never_over_a_file(command, tmp_path):
    assert command("init", "my.toml")[0] == 0
    assert read_setting(tmp_path / "my.toml") == EXAMPLE
    code, _, err = command("init", "my.toml")
    assert code == 2
    assert err == "glasshouse: my.toml exists; choose another name, or delete it first\n"


def npz(path, **arrays):
    rng = np.random.default_rng(0)
    content = {"x": rng.random((60, 8, 8, 1), dtype=np.float32), "y": np.arange(60) % 3} | arrays
    np.savez(path, **content)
    return path


def test_a_users_data_are_audited_from_the_command_line(command, tmp_path):
    config = tmp_path / "c.toml"
    config.write_text(
        '[data]\nclients = 2\n[training]\nrounds = 1\n[audit]\nattacks = ["gap"]\ndefences = []\n'
    )
    npz(tmp_path / "mine.npz")
    out = tmp_path / "out"
    code, stdout, _ = command(
        "audit", config, "--data", "mine.npz", "--model", "mlp", "--out", out, "--workers", 1
    )
    assert code == 0
    assert stdout.splitlines()[-1] == str(out)
    assert {row["data"] for row in json.loads((out / "results.json").read_text())} == {"mine.npz"}
    code, stdout, _ = command("report", out)
    assert code == 0
    assert stdout.strip() == str(out / "report.html")


WRONG = {
    "an unknown model": (["--model", "lenett"], "unknown model 'lenett'; did you mean 'lenet'?"),
    "an unknown data set": (["--data", "minst"], "did you mean 'mnist'?"),
    "a model that is too small a door": (["--model", "convnet"], "convnet"),
    "NaN pixels": (["--data", "nan.npz"], "image 3 has NaN"),
    "pixels out of range": (["--data", "bright.npz"], "floats must lie in [0, 1]"),
    "a label out of range": (["--data", "labels.npz"], "label -1 of image 0"),
    "a class with no image": (["--data", "gap.npz"], "class 1 has no image"),
    "a truncated archive": (["--data", "half.npz"], "half.npz"),
    "more clients than samples": (["--data", "few.npz"], "10 clients"),
    "weights that are a pickle": (["--weights", "weights.pt"], "weights.pt"),
    "weights of another shape": (["--weights", "shape.safetensors"], "shape"),
    "a missing module": (["--model", "nowhere:Net"], "nowhere"),
    "an output folder that is a file": (["--out", "file.txt"], "file.txt"),
    "an output folder below a file": (["--out", "file.txt/below"], "choose another --out"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_input_is_one_line_with_a_remedy_and_exit_code_2(command, tmp_path, what):
    rng = np.random.default_rng(0)
    x = rng.random((60, 8, 8, 1), dtype=np.float32)
    broken = x.copy()
    broken[3, 0, 0] = np.nan
    npz(tmp_path / "nan.npz", x=broken)
    npz(tmp_path / "bright.npz", x=x * 3)
    npz(tmp_path / "labels.npz", y=np.arange(60) % 3 - 1)
    npz(tmp_path / "gap.npz", y=(np.arange(60) % 2) * 2)
    npz(tmp_path / "few.npz", x=x[:15], y=np.arange(15) % 3)
    whole = npz(tmp_path / "whole.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "file.txt").write_text("")
    torch.save(Exploit(), tmp_path / "weights.pt")
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(2)}, tmp_path / "shape.safetensors")

    words, expected = WRONG[what]
    code, out, err = command("audit", *words)
    assert code == 2
    assert err.startswith("glasshouse: ")
    assert err.count("\n") == 1, err
    assert expected in err
    assert out == ""
    assert not (tmp_path / "exploited").exists()
    assert not list(tmp_path.glob("runs/*"))


class Exploit:
    """What a hostile pickle does when it is loaded."""

    def __reduce__(self):
        return os.mkdir, ("exploited",)


def test_unknown_studies_and_cells_are_refused(command):
    code, _, err = command("study", "client")
    assert (code, "did you mean 'clients'?" in err) == (2, True)
    code, _, err = command("study", "clients", "--cells", "nothing*", "--out", "x")
    assert (code, "no cell of clients matches 'nothing*'" in err) == (2, True)


def test_an_unknown_data_set_cannot_be_fetched(command):
    code, _, err = command("data", "cifar")
    assert (code, "cifar10" in err) == (2, True)


def test_an_interruption_says_how_to_go_on(command, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("glasshouse.api.audit", interrupted)
    code, _, err = command("audit")
    assert code == 130
    assert err == "glasshouse: interrupted; the same command continues where it stopped\n"


def test_what_a_command_does_is_a_function_of_the_package():
    commands = ("audit", "audit_record", "plan", "plan_of_record", "inspect_update", "search_policy", "study")
    for name in (*commands, "compare"):
        assert name in dir(glasshouse)
        assert getattr(glasshouse, name) is getattr(api, name)

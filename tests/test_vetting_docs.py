"""The page on vetting: its commands run as they stand, and its sentences agree with its tables."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from received_models import network
from safetensors.torch import save_file
from test_cli import run

PAGE = (Path(__file__).parent.parent / "docs" / "vetting.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"^```\n(.*?)^```", PAGE, re.M | re.S)
    for line in block.splitlines()
    if line.startswith("glasshouse")
]
SCRIPT = re.search(r"^```bash\n(.*?)^```", PAGE, re.M | re.S).group(1)
EXPECTED = {"crafted.safetensors": 1, "changed.safetensors": 1}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder in which `glasshouse vet --demo` was run, and what it printed."""
    place = tmp_path_factory.mktemp("shown")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(place)
        from glasshouse.vet_demo import demonstrate

        return place, list(demonstrate())


def test_the_demonstration_says_which_of_its_models_are_crafted(shown):
    place, (honest, crafted, changed, last) = shown
    assert "clean: no known way" in honest
    assert "(exit code 0)" in honest
    assert "staircase in 1: 200 of 200 rows" in crafted
    assert "new-layers: the file has layers that your network does not: front.bias 64" in changed
    assert all("(exit code 1)" in text for text in (crafted, changed))
    assert "vet-demo" in last
    assert len(list((place / "vet-demo").iterdir())) == 5


def test_the_demonstrations_own_commands_say_the_same_again(shown, monkeypatch, capsys):
    place, texts = shown
    monkeypatch.chdir(place)
    for text in texts[:-1]:
        words = re.search(r"^\$ glasshouse (.*)$", text, re.M).group(1)
        code, out, _ = run(monkeypatch, capsys, *shlex.split(words))
        assert f"{out}(exit code {code})" in text


def test_a_demonstration_spares_a_folder_with_something_else_in_it(monkeypatch, capsys, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    code, _, error = run(monkeypatch, capsys, "vet", "--demo", "--out", str(tmp_path))
    assert code == 2
    assert "holds mine.txt already" in error
    assert run(monkeypatch, capsys, "vet", "--demo", "--out", str(tmp_path / "mine.txt"))[0] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give the received weights and --model"),
        (("received.safetensors",), "give the received weights and --model"),
        (("--demo", "--model", "mlp"), "--demo takes nothing but --out"),
        (("--demo", "received.safetensors"), "--demo takes nothing but --out"),
        (("r.pt", "--model", "mlp", "--shape", "1x8x8", "--out", "x"), "--out is for --demo"),
    ],
)
def test_options_that_do_not_go_together_are_one_line_and_exit_code_2(monkeypatch, capsys, words, message):
    code, out, error = run(monkeypatch, capsys, "vet", *words)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert message in error


@pytest.mark.parametrize("line", [line for line in COMMANDS if "--demo" not in line])
def test_every_command_on_the_page_ends_as_the_page_says(shown, monkeypatch, capsys, line):
    place, _ = shown
    monkeypatch.chdir(place)
    save_file(network("cnn", shape=(1, 8, 8)).state_dict(), "received.safetensors")
    words = ["digits" if word == "my-images/" else word for word in shlex.split(line)[1:]]
    code, out, error = run(monkeypatch, capsys, *words)
    assert code == EXPECTED.get(Path(words[1]).name, 0), error
    for said in re.findall(r"^```text\n(.*?)^```", PAGE, re.M | re.S):
        first, second = said.splitlines()
        if second.split(":")[0].strip() in out:
            assert out.startswith(first.removesuffix(" ..."))
            assert second.removesuffix(" ...") in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "trains"),
    [("honest", True), ("crafted", False), ("changed", False), ("absent", False), ("cut", False)],
)
def test_the_script_on_the_page_trains_only_what_is_clean(shown, tmp_path, file, trains):
    place, _ = shown
    content = (place / "vet-demo" / "honest.safetensors").read_bytes()
    (tmp_path / "last-round.safetensors").write_bytes(
        (place / "vet-demo" / "round-2.safetensors").read_bytes()
    )
    if file == "cut":
        (tmp_path / "received.safetensors").write_bytes(content[:-100])
    elif file != "absent":
        shutil.copy(place / "vet-demo" / f"{file}.safetensors", tmp_path / "received.safetensors")
    command = f'glasshouse() {{ {sys.executable} -m glasshouse.cli "$@"; }}\n{SCRIPT}'
    ended = subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert ("\ntraining" in ended.stdout) == trains
    assert ("not training: exit code" in ended.stdout) == (not trains)


def rows_of(title):
    """The cells of the table with this first column, by the first cell."""
    start = PAGE.index(f"| {title} |")
    lines = PAGE[start:].split("\n\n")[0].splitlines()[2:]
    return {
        cells[0]: cells[1:] for cells in ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    }


def found(cell):
    """`3 of 4 (0.2 to 0.9)` as two numbers."""
    first, _, second = cell.split(" (")[0].partition(" of ")
    return int(first), int(second)


def test_every_sign_has_a_line_on_the_page():
    source = Path(__file__).parent.parent / "src" / "glasshouse" / "vetting"
    text = "\n".join(file.read_text() for file in source.glob("*.py"))
    names = {*re.findall(r"Sign\(\"([\w-]+)\"", text), *re.findall(r"\(\"(\w+-layers)\"", text)}
    assert len(names) > 20
    assert sorted(name for name in names if f"`{name}`" not in PAGE) == []

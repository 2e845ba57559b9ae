import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasshouse.auditing.setting import EXAMPLE, Setting, as_toml, make_setting, read_setting
from glasshouse.auditing.template import template
from glasshouse.errors import BadInput
from glasshouse.learning.recipe import Recipe


def test_the_template_is_the_embedded_example():
    assert make_setting(tomllib.loads(template())) == EXAMPLE


RECIPE = {
    "optimiser": "adam",
    "betas": (0.8, 0.9),
    "eps": 1e-6,
    "schedule": "step",
    "step_size": 3,
    "gamma": 0.5,
}


@pytest.mark.parametrize(
    "setting", [Setting(), EXAMPLE, Setting(data={"name": 'a "b"\\c'}), Setting(training=RECIPE)]
)
def test_a_setting_survives_its_toml(setting):
    assert make_setting(tomllib.loads(as_toml(setting))) == setting


@pytest.mark.parametrize(("text", "words"), [
    ("seed = 0\n\n[data]\nclient = 3\n", r"line 4: unknown key 'data.client'; did you mean 'data.clients'\?"),
    ("sead = 0\n", r"line 1: unknown key 'sead'; did you mean 'seed'\?"),
    ("[data]\nclients = 'ten'\n", r"line 2: data.clients = 'ten' does not fit: .*valid integer"),
    ("[training]\n# one\nrounds = 2.5\n", r"line 3: training.rounds = 2.5 does not fit"),
    ("[training]\nlr = true\n", r"line 2: training.lr = True does not fit"),
    ("[training]\nfraction = 2.0\n", r"line 2: training.fraction = 2.0 does not fit: .*or equal to 1"),
    ("[training]\noptimiser = 'lion'\n", r"line 2: training.optimiser = 'lion' does not fit"),
    ("[training]\nschedule = 'linear'\n",
     r"line 2: training.schedule = 'linear' .* 'constant', 'cosine', 'halving', 'steps' or 'step'"),
    ("[training]\noptimiser = 'adamw'\nmomentum = 0.9\n", r"line 3: training.momentum = 0.9 is no option"),
    ("[training]\n\nstep_size = 2\n", r"line 3: training.step_size = 2 does not go with"),
    ("[training]\nwarmup = 10\n", r"line 2: training.warmup = 10 .* below the 10 rounds"),
    ("[training]\nwarmup = 1\nschedule_over = 'epochs'\n", r"line 2: training.warmup = 1 .* the 1 epochs"),
    ("[training]\nschedule = 'step'\n", r": training.step_size is missing"),
    ("[training]\nbetas = [0.9]\n", r"line 2: training.betas.1 = \[0.9\] does not fit"),
    ("[training]\naugment = 'crop+spin'\n", r"line 2: training.augment = 'spin': unknown augm"),
    ("[audit]\nattacks = 'gap'\n", r"line 2: audit.attacks = 'gap' does not fit"),
    ("[atacks]\n", r"line 1: unknown key 'atacks'"),
    ("[data\n", r"not valid TOML: .*line 1"),
    ("[training]\nrounds = 1000000000\n", r"line 2: training.rounds = 10+ does not fit: .*equal to 1000000"),
    ("[training]\nrounds = 1e9\n", r"line 2: training.rounds = 1000000000.0 does not fit: .*valid integer"),
    ("[data]\nclients = 1000001\n", r"data.clients = 1000001 does not fit: .*equal to 1000000"),
    ("seed = 9223372036854775808\n", r"line 1: seed = 9223372036854775808 does not fit: .*less than"),
    (f"seed = {'9' * 5000}\n", r"not valid TOML: Exceeds the limit"),
    (f"seed = 0x{'f' * 5000}\n", r"seed = a number of 20000 bits does not fit"),
    (f"seed = {'[' * 9000}{']' * 9000}\n", r"nested too deeply"),
    (f"data = {'{a = ' * 9000}1{'}' * 9000}\n", r"nested too deeply"),
    ("x" + ".a" * 50_000 + " = 1\n", r"nested too deeply"),
    ("[x" + " . 'a,'" * 50_000 + "]\n", r"nested too deeply"),
    ('x = {s = """\nx""", y' + '."a"' * 50_000 + " = 1}\n", r"nested too deeply"),
    (f"[audit]\nattacks = {'[' * 300}{']' * 300}\n", r"attacks.0 = \[\[\[...\]\]\] does not fit"),
    (f"[training]\noptimiser = '{'x' * 9000}'\n", r"optimiser = 'x{20,50}\.\.\.x{20,50}' does not fit"),
    ("[data]\nname = 1979-05-27\n", r"data.name = datetime.date\(1979, 5, 27\) does not fit: .*string"),
    ("[training]\nlr = inf\n", r"training.lr = inf does not fit: .*finite"),
    ("[training]\nfraction = nan\n", r"training.fraction = nan does not fit"),
    ("[data]\nname = '\0'\n", r"not valid TOML: .*character"),
    ("[data]\nname = \"\\ud800\"\n", r"not valid TOML: .*not a Unicode scalar"),
    ("['a\\nb']\nx = 1\n", r"unknown key 'a\\\\nb'"),
])  # fmt: skip
def test_a_wrong_configuration_is_named_by_line_key_and_rule(tmp_path, text, words):
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=words) as caught:
        read_setting(file)
    assert "\n" not in str(caught.value)
    assert "wrong.toml" in str(caught.value)


def test_a_missing_configuration_says_how_to_get_one(tmp_path):
    with pytest.raises(BadInput, match="`glasshouse init` writes one"):
        read_setting(tmp_path / "none.toml")


@given(
    st.builds(
        Setting,
        seed=st.integers(0, 2**63 - 1),
        data=st.fixed_dictionaries({"name": st.text(), "partition": st.text()}),
        model=st.fixed_dictionaries({"name": st.text(), "weights": st.text()}),
        training=st.fixed_dictionaries(
            {"lr": st.floats(0, exclude_min=True, allow_infinity=False), "rounds": st.integers(1, 1_000_000)}
        ),
        audit=st.fixed_dictionaries({"attacks": st.lists(st.text(), max_size=3), "adaptive": st.booleans()}),
    )
)
def test_whatever_names_and_numbers_a_setting_holds_its_toml_reads_back_the_same(setting):
    assert make_setting(tomllib.loads(as_toml(setting))) == setting


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 2**63}, "seed = 9223372036854775808 does not fit"),
        ({"data": Setting().data.model_copy(update={"name": "caf\udce9"})}, r"'caf\\udce9' has bytes"),
    ],
)
def test_a_setting_that_could_not_be_read_back_is_not_written(changes, words):
    with pytest.raises(BadInput, match=words):
        as_toml(Setting().model_copy(update=changes))


def test_only_a_regular_file_of_bounded_length_is_a_configuration(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    with (tmp_path / "long.toml").open("wb") as file:
        file.truncate(10**9)
    for path, words in (
        (tmp_path, "is a folder; give a file"),
        (tmp_path / "pipe.toml", "is a pipe; give a file"),
        (Path("/dev/zero"), "is a device; give a file"),
        (tmp_path / "long.toml", "is 1,000,000,000 bytes long, over the limit of 1,000,000"),
        (tmp_path / "a\0b.toml", r"a\\x00b.toml: no file can have this name"),
        (tmp_path / ("a" * 300), "cannot be read"),
    ):
        with pytest.raises(BadInput, match=words):
            read_setting(path)


def test_dots_in_strings_and_comments_are_no_depth(tmp_path):
    dots = "0.1," * 2000
    for text in (f'"fgsm(eps=({dots}))" # {dots}', f"'fgsm(eps=({dots}))'", f'"""fgsm(eps=(\\\n{dots}))"""'):
        (tmp_path / "dots.toml").write_text(f"audit.attacks = [{text}\n]\n")
        assert read_setting(tmp_path / "dots.toml").audit.attacks == (f"fgsm(eps=({dots}))",)


def test_an_empty_configuration_is_the_default(tmp_path):
    (tmp_path / "empty.toml").touch()
    assert read_setting(tmp_path / "empty.toml") == Setting()


def test_a_message_is_one_printable_line_whatever_it_names():
    message = str(BadInput("a\nb\x1b[31m\u2028\ud800" + "x" * 9000))
    assert message.startswith("a\\nb\\x1b[31m\\u2028\\ud800xxx")
    assert message.isprintable()
    assert len(message) < 2100


def test_the_schedule_of_a_configuration_spans_its_rounds_unless_it_says_otherwise():
    told = {"rounds": 12, "epochs": 3, "schedule": "cosine", "warmup": 2}
    assert Setting(training=told).training.recipe().rounds == 12
    local = Setting(training=told | {"schedule_over": "epochs"}).training.recipe()
    assert (local.rounds, local.schedule, local.warmup) == (0, "cosine", 2)
    assert Setting().training.recipe() == Recipe()


def test_an_unknown_schedule_ends_the_command_with_one_line_before_torch_is_loaded(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text('[data]\nname = "nowhere.npz"\n[training]\nschedule = "linear"\n')
    code = (
        f"import sys; sys.argv = ['glasshouse', 'audit', {str(file)!r}]\n"
        "from glasshouse.cli import main\n"
        "try: main()\nexcept SystemExit as end: sys.exit(100 if 'torch' in sys.modules else end.code)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "'constant', 'cosine', 'halving', 'steps' or 'step'" in line

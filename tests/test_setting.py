import tomllib

import pytest

from glasshouse.auditing.setting import EXAMPLE, Setting, as_toml, make_setting, read_setting
from glasshouse.auditing.template import template
from glasshouse.errors import BadInput


def test_the_template_is_the_embedded_example():
    assert make_setting(tomllib.loads(template())) == EXAMPLE


@pytest.mark.parametrize("setting", [Setting(), EXAMPLE, Setting(data={"name": 'a "b"\\c'})])
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
    ("[audit]\nattacks = 'gap'\n", r"line 2: audit.attacks = 'gap' does not fit"),
    ("[atacks]\n", r"line 1: unknown key 'atacks'"),
    ("[data\n", r"not valid TOML: .*line 1"),
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

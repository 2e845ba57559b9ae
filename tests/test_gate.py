"""May this be released? Exit codes 0, 1 and 2, and the finding that decides."""

import json
import sys
import tomllib

import pytest
from report_runs import a_row

from glasshouse import cli
from glasshouse.auditing.experiment import check_names
from glasshouse.auditing.setting import Setting, as_toml, make_setting, read_setting
from glasshouse.auditing.template import FOOTER
from glasshouse.errors import BadInput
from glasshouse.verdicts.limits import DEFAULT, limits_in, read_limits

UTILITY = {"family": "utility", "adversary": None, "attack": None, "metric": "test-accuracy"}
GONE = {"metric": "not-applicable", "value": None, "low": None, "high": None, "chance": None, "n": 0}


@pytest.fixture
def run(tmp_path):
    """A folder with a leaking model and a defended one, and a server that could not attack."""
    server = {"adversary": "crafting server", "attack": "mandrake", "family": "reconstruction", **GONE}
    rows = []
    for defence, accuracy, auc in (("none", 0.9, 0.7), ("pruning", 0.8, 0.55)):
        rows.append(
            a_row(**UTILITY, defence=defence, value=accuracy, low=accuracy - 0.02, high=accuracy + 0.02)
        )
        rows.append(a_row(defence=defence, value=auc, low=auc - 0.04, high=auc + 0.04, attack="lira"))
        rows.append(a_row(**server, defence=defence, reason="the model has no linear layer"))
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(rows))
    (folder / "config.toml").write_text(as_toml(Setting()))
    return folder


@pytest.fixture
def gate(run, monkeypatch, capsys, tmp_path):
    def asked(limits, *words):
        file = tmp_path / "limits.toml"
        file.write_text(limits)
        monkeypatch.setattr(sys, "argv", ["glasshouse", "gate", str(run), "--limits", str(file), *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return stopped.value.code or 0, captured.out, captured.err

    return asked


@pytest.mark.parametrize(("auc", "end", "code"), [
    (0.75, "possible", 0),
    (0.73, "possible", 1),
    (0.73, "point", 0),
    (0.69, "point", 1),
    (0.69, "shown", 0),
    (0.65, "shown", 1),
])  # fmt: skip
def test_the_interval_decides_and_the_user_says_which_end(gate, auc, end, code):
    left, out, _ = gate(f"outsider = {{ auc = {auc} }}\n", "--end", end)
    assert left == code
    assert "lira: AUC 0.700, 95% interval 0.660 to 0.740" in out
    assert ("not kept: outsider, auc: at most" in out) == bool(code)


def test_the_cautious_end_decides_unless_told_otherwise(gate):
    assert gate("outsider = { auc = 0.73 }")[0] == 1
    assert gate('outsider = { auc = 0.73 }\nend = "shown"')[0] == 0
    assert gate('outsider = { auc = 0.73 }\nend = "shown"', "--end", "possible")[0] == 1


def test_what_contradicts_its_promise_is_not_released(gate, run):
    rows = json.loads((run / "results.json").read_text())
    spent = {"family": "privacy", "adversary": None, "attack": None, "metric": "epsilon-spent-record"}
    bound = {"family": "canary-records", "attack": "canary-records", "metric": "epsilon-delta-lower-bound"}
    rows += [
        a_row(**spent, defence="pruning", value=1.0, low=None, high=None, chance=None),
        a_row(**bound, defence="pruning", value=3.0, low=3.0, high=None, chance=0.0),
    ]
    (run / "results.json").write_text(json.dumps(rows))
    code, out, _ = gate('outsider = "total"', "--defence", "pruning")
    assert code == 1
    assert "spends at least 3.000; one of the two is wrong" in out
    assert gate('outsider = "total"')[0] == 0


def test_an_adversary_that_could_not_be_tried_keeps_no_limit(gate):
    code, out, _ = gate('crafting-server = "slight"\n')
    assert code == 1
    assert "crafting server: at most slight: could not be tried (the model has no linear layer)" in out
    assert gate('crafting-server = "slight"\n', "--accept-untried")[0] == 0
    assert gate('client = "slight"\n')[0] == 1


def test_a_defence_is_released_by_its_own_findings_and_its_price(gate):
    limits = '[limits]\noutsider = "slight"\n'
    assert gate(limits)[0] == 1
    assert gate(limits, "--defence", "pruning")[0] == 0
    code, out, _ = gate(limits + "accuracy = 0.05\n", "--defence", "pruning")
    assert code == 1
    assert "the defence costs more than 0.05" in out


@pytest.mark.parametrize(("limits", "words", "line"), [
    ('outsidr = "slight"', (), "unknown adversary in limits 'outsidr'; did you mean 'outsider'?"),
    ("outsider = {auk = 0.6}", (), "did you mean 'auc'?"),
    ("outsider = ", (), "limits are not valid TOML"),
    ("", (), "holds no limits"),
    ("[audit]\n", (), "holds no limits"),
    ("limits = 3", (), "limits = 3 is no table"),
    ('outsider = "slight"', ("--end", "worst"), "unknown end of the interval 'worst'"),
    ('outsider = "slight"', ("--defence", "prunin"), "did you mean 'pruning'?"),
])  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(gate, limits, words, line):
    code, out, err = gate(limits, *words)
    assert (code, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1


def test_files_that_are_not_there_are_bad_input(gate, run, monkeypatch, capsys):
    (run / "results.json").unlink()
    assert gate('outsider = "slight"')[0] == 2
    monkeypatch.setattr(sys, "argv", ["glasshouse", "gate", str(run), "--limits", "gone.toml"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert "gone.toml cannot be read" in capsys.readouterr().err


def test_limits_of_the_run_itself_are_asked_where_no_others_are_given(run, monkeypatch, capsys):
    setting = Setting(audit={"limits": {"outsider": {"auc": 0.8}}})
    (run / "config.toml").write_text(as_toml(setting))
    monkeypatch.setattr(sys, "argv", ["glasshouse", "gate", str(run)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 0
    assert "every limit is kept" in capsys.readouterr().out


def test_limits_survive_the_toml_of_a_setting(tmp_path):
    limits = {"curious server": "slight", "outsider": {"tpr-at-1%-fpr": 0.05, "auc": 0.6}, "end": "point"}
    setting = Setting(audit={"limits": limits})
    text = as_toml(setting)
    assert make_setting(tomllib.loads(text)) == setting
    assert limits_in(text) == read_limits(limits)
    file = tmp_path / "a.toml"
    file.write_text(text)
    assert read_setting(file) == setting
    assert limits_in(as_toml(Setting())) is DEFAULT


def test_limits_of_unknown_adversaries_are_refused_before_any_work():
    with pytest.raises(BadInput, match="unknown adversary in limits 'sever'"):
        check_names(Setting(audit={"limits": {"sever": "slight"}}))


def test_the_limits_of_the_template_can_be_used():
    table = FOOTER.partition("[audit.limits]")[2]
    assert len(limits_in(table).limits) == 5

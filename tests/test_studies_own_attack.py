"""A user's own attack in a study, and the list of what a study would do."""

import dataclasses
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from cases import finished
from report_runs import a_row

from glasshouse.access import QueryAccess, UpdateAccess
from glasshouse.attacks.attack import Attack
from glasshouse.attacks.evasion.pgd import FGSM
from glasshouse.cli import main
from glasshouse.errors import BadInput
from glasshouse.evidence.membership import MembershipScores
from glasshouse.exhibits import Records
from glasshouse.findings import from_row
from glasshouse.learning.engine import Engine
from glasshouse.measures.estimate import proportion
from glasshouse.progress.time_left import duration
from glasshouse.studies import STUDIES, timings
from glasshouse.studies.batch_robustness.cells import at_eps, attack_name
from glasshouse.studies.mia_bad.cells import batch_column, sample_column, with_scores
from glasshouse.studies.mia_bad.training import TrainedTarget
from glasshouse.studies.overview import overview
from glasshouse.studies.own_attack import beside_others, check_attack
from glasshouse.studies.run import read_plan, run_study, stages

HERE = __name__
BR = "grid/digits/stdcnn/lr/256"


@dataclass(frozen=True, kw_only=True)
class Sure(Attack):
    """Calls a record a member if the model is sure."""

    short: bool = False
    family = "membership"
    needs = (QueryAccess,)
    knows = ("candidates",)

    def run(self, access, knowledge, rng):
        top = access.probabilities(knowledge.candidates.x).max(1).values.numpy()
        return MembershipScores(top[: 3 if self.short else None], top > np.median(top))


class OfUpdates(Sure):
    """An attack of another adversary."""

    needs = (UpdateAccess,)


class Batches(Sure):
    """An attack on batches of eight."""

    query_unit = 8
    knows = ("candidates",)

    def run(self, access, knowledge, rng):
        scores = knowledge.batches.sum(1).astype(float)
        return MembershipScores(scores, scores > np.median(scores))


class Mine(FGSM):
    """FGSM by another name."""


@pytest.fixture(scope="module")
def target():
    with Engine(1) as engine:
        case = finished(engine)
        case = dataclasses.replace(case, subject=dataclasses.replace(case.subject, data="cifar10"))
        yield TrainedTarget(case, "central", proportion(50, 60), proportion(40, 60))


def test_an_own_attack_is_one_more_rival_on_single_records(target):
    own = f"{HERE}:Sure"
    result = with_scores(target, sample_column(target, own))
    mine = {row.metric: row.value for row in result.findings if row.attack == own}
    assert {"auc", "balanced-accuracy", "accuracy-at-5:1"} <= set(mine)
    assert {one.attack for one in result.exhibits.records} >= {own, "gap"}
    assert not any(row.attack == own for row in batch_column(target, own, batch=8))


def test_an_own_attack_on_batches_is_a_rival_at_its_size(target):
    own = f"{HERE}:Batches"
    assert not any(row.attack == own for row in sample_column(target, own))
    assert any(row.attack == own and row.metric == "auc" for row in batch_column(target, own, batch=8))
    assert not any(row.attack == own for row in batch_column(target, own, batch=4))


def test_an_own_attack_with_too_few_scores_is_a_finding_of_the_study(target):
    own = f"{HERE}:Sure(short=True)"
    findings = sample_column(target, own)
    (mine,) = [row for row in findings if row.attack == own]
    assert mine.metric == "not-applicable"
    assert "scores of shape (3,)" in mine.reason
    (table,) = beside_others(own, findings, ())
    ((_, attack, metric, *_, reason),) = table.rows
    assert (attack, metric, reason) == (own, "could not run", mine.reason)


def test_the_own_attack_stands_beside_the_others_paired_by_their_records():
    rng = np.random.default_rng(0)
    member = np.arange(100) < 50
    rows, records = [], []
    for attack, shift in (("m:Mine", 1.0), ("gap", 0.2)):
        labels = {"attack": attack, "adversary": "outsider", "strategy": "fedavg", "cell": "c", "seed": 0}
        rows.append(from_row(a_row(source="mia-bad", value=0.5 + shift / 4, **labels)))
        columns = {"record": np.arange(100), "member": member, "score": rng.normal(size=100) + shift * member}
        records.append(Records(table="membership", columns=columns, **labels))
    (table,) = beside_others("m:Mine", rows, records)
    (mine, rival) = table.rows
    assert mine[1:4] == ("m:Mine", "auc", 0.75)
    assert rival[1:4] == ("gap", "auc", 0.55)
    _, _, _, _, value, low, high, how = rival
    assert low < value < high
    assert how == "paired, n = 100"


def test_limits_go_into_an_attack_beside_its_own_options():
    assert at_eps("m:Mine(steps=5,eps=9)", (0.1, 0.3)) == "m:Mine(steps=5,eps=(0.1, 0.3))"
    assert attack_name("m:Mine(steps=5)", 0.3) == "m:Mine(steps=5,eps=0.3)"
    assert attack_name("fgsm", 0.3) == "fgsm(eps=0.3)"


@pytest.mark.parametrize(("study", "spec", "words"), [
    ("clients", "gap", "clients takes no further attack; these studies do: mia-bad (one of membership)"),
    ("mia-bad", "fgsm", "'fgsm' is an attack of family 'evasion'; mia-bad takes one of membership"),
    ("mia-bad", f"{HERE}:OfUpdates", "does not work as the outsider, which every attack of mia-bad is"),
    ("mia-bad", "gapp", "unknown attack 'gapp'"),
    ("batch-robustness", f"{HERE}:Sure", "batch-robustness takes one of evasion"),
    ("batch-robustness", "strongest(seconds=3)", "attack "),
])  # fmt: skip
def test_an_attack_that_does_not_fit_is_refused_in_a_line(study, spec, words):
    with pytest.raises(BadInput) as refused:
        check_attack(STUDIES.make(study), spec)
    assert words in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.fixture(scope="module")
def robust(tmp_path_factory):
    """One cell of a study, with an attack beside."""
    out = tmp_path_factory.mktemp("study") / "run"
    spec = f"{HERE}:Mine"
    return run_study("batch-robustness", cells=BR, attack=spec, out=out, workers=1, quiet=True)


def test_an_own_evasion_attack_meets_every_limit_of_the_study(robust):
    found = {row.attack: row.value for row in robust.findings if row.metric == "robust-accuracy"}
    for eps in ("0.05", "0.3"):
        assert found[f"{HERE}:Mine(eps={eps})"] == found[f"fgsm(eps={eps})"]


def test_a_study_with_another_attack_is_another_run(robust):
    with pytest.raises(BadInput, match="another configuration"):
        run_study("batch-robustness", cells=BR, out=robust.folder, workers=1, quiet=True)


def test_the_list_says_what_is_printed_and_what_ran_and_how_long_it_took(robust):
    head, columns, *lines = overview("batch-robustness", attack=f"{HERE}:Mine", out=robust.folder)
    assert head == "batch-robustness at scale smoke: 18 cells, 1 seed each; under a minute in all"
    assert columns.split() == ["cell", "printed", "seconds"]
    assert len(lines) == 18
    cells = {line.split()[0]: line.split()[1:] for line in lines}
    assert cells.pop(BR)[0] == "no"
    assert {tuple(rest) for rest in cells.values()} == {("no", "unknown")}
    (done,) = [line for line in lines if line.endswith(", done")]
    assert float(done.split()[2].rstrip(",")) > 0
    more = list(overview("batch-robustness", seeds=2, attack=f"{HERE}:Mine", out=robust.folder))
    assert any(line.startswith(BR) and "by 1 of 2 seeds done" in line for line in more)


def test_the_list_knows_the_printed_numbers_of_mia_bad(tmp_path):
    lines = list(overview("mia-bad", scale="laptop", out=tmp_path / "nowhere"))[2:]
    printed = {line.split()[0]: line.split()[1] for line in lines}
    assert printed["table-1/cifar10/lenet/central/8"] == "yes"
    assert printed["table-2/mnist/lenet/2-clients/32"] == "yes"
    assert printed["table-2/mnist/lenet/central/sample"] == "no"  # the paper prints none for one place
    assert printed["matched/cifar10/lenet/2-clients"] == "no"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(("study", "scale", "yes", "no"), [
    ("ats", "laptop", "figure-8/cifar100/convnet-16/library", "table-4/fashion-mnist/convnet-16/none"),
    ("ats", "paper", "table-1/cifar100/resnet20-4/none", "figure-4/cifar100/resnet20-4/none"),
    ("ats", "paper", "training/cifar100/resnet20-4/none", "table-6/cifar100/resnet20-4/hybrid-pruning-99"),
    ("scale-mia", "laptop", "table-4/cnn/cifar10/1024", "heads/22/64"),
    ("scale-mia", "laptop", "table-3/resnet/scale-mia/16", "table-3/cnn/scale-mia/16"),
    ("scale-mia", "laptop", "table-5/alexnet/0.01/16", "table-5/cnn/0.01/16"),
    ("fed-fsnet", "laptop", "table/mnist/mlp/f-1.0/fed-fsnet", "leaks/mnist/mlp/f-0.1/fed-fsnet"),
    ("batch-robustness", "laptop", None, "full/fashion-mnist/stdcnn/lr/64"),
    ("clients", "smoke", None, "clients-10"),
])  # fmt: skip
def test_the_list_knows_for_which_cells_a_number_is_printed(study, scale, yes, no, tmp_path):
    _, _, *lines = overview(study, scale=scale, out=tmp_path)
    printed = {line.split()[0]: line.split()[1] for line in lines}
    assert {*printed.values()} <= {"yes", "no"}
    assert yes is None or printed[yes] == "yes"
    assert printed[no] == "no"


def test_what_never_ran_here_takes_as_long_as_it_took_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(timings, "FILE", tmp_path / "seconds.csv")
    timings.FILE.write_text("study,scale,cell,seconds\n")
    cell = "table-1/digits/mlp/central/8"
    timings.write_usual_seconds("mia-bad", "smoke", {cell: 7, "other": 1})
    timings.write_usual_seconds("mia-bad", "smoke", {cell: 1234.56})
    timings.write_usual_seconds("mia-bad", "laptop", {cell: 8})
    assert timings.usual_seconds("mia-bad", "smoke") == {cell: 1230, "other": 1}
    line = list(overview("mia-bad", cells="*/central/8", seeds=2, out=tmp_path / "nowhere"))[-1]
    assert line.startswith(cell)
    assert line.endswith("about 2,460.0, on two cores")


def test_a_study_whose_cells_were_all_timed_says_how_long_it_takes_with_as_many_at_once_as_there_are_cores(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(timings, "FILE", tmp_path / "seconds.csv")
    timings.FILE.write_text("study,scale,cell,seconds\n")
    cells = read_plan("clients", scale="smoke", cells="*", seeds=2, seed=0, attack=None).study.cells("smoke")
    timings.write_usual_seconds("clients", "smoke", {cell.name: 600 for cell in cells[1:]})
    untimed = next(iter(overview("clients", seeds=2, out=tmp_path / "nowhere")))
    assert untimed.endswith("under a minute in all")
    timings.write_usual_seconds("clients", "smoke", {cells[0].name: 1800})
    first = next(iter(overview("clients", seeds=2, out=tmp_path / "nowhere")))
    assert first.endswith(f"about {duration(2 * (1800 + 600 * (len(cells) - 1)))} in all on two cores")
    alone = dataclasses.replace(cells[0], single=True)
    plan = read_plan("clients", scale="smoke", cells="*", seeds=2, seed=0, attack=None)
    assert [sum(stage.seconds) for stage in stages(plan, [alone, alone, cells[1]], 2)] == [1800, 600]


@pytest.mark.parametrize(("words", "said"), [
    (["mia-bad", "--list", "--cells", "nothing*"], "no cell of mia-bad matches 'nothing*'"),
    (["clients", "--list", "--attack", "gap"], "clients takes no further attack"),
])  # fmt: skip
def test_a_list_of_what_there_is_not_is_refused_with_exit_code_2(words, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["glasshouse", "study", *words])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_the_command_lists_and_runs_nothing(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["glasshouse", "study", "clients", "--list"])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 0
    assert capsys.readouterr().out.splitlines()[2] == "clients-1   no        unknown"
    assert list(tmp_path.iterdir()) == []

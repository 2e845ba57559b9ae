"""What an audit will do, and how long: said before it starts."""

import dataclasses
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from test_cli import command, run  # noqa: F401 - a fixture

import glasshouse
from glasshouse import Setting
from glasshouse.attacks import ATTACKS
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.planning import pace as timing
from glasshouse.auditing.planning.chores import Attacking, chores
from glasshouse.auditing.planning.effort import Load, effort
from glasshouse.auditing.planning.pace import Pace, Rate, measure
from glasshouse.auditing.planning.plan import Planner
from glasshouse.auditing.planning.schedule import Schedule
from glasshouse.auditing.planning.words import WIDTH, short, time_lines, whole
from glasshouse.auditing.run import run_audit
from glasshouse.auditing.setting import EXAMPLE, make_setting
from glasshouse.auditing.target import Variant
from glasshouse.defences import DEFENCES
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import read_vector
from glasshouse.progress import Progress

SMALL = {
    "data": {"clients": 3, "members": 60, "nonmembers": 20, "auxiliary": 40, "test": 30},
    "model": {"name": "mlp"},
    "training": {"rounds": 2, "local_test": 0, "batch_size": 32},
    "audit": {
        "attacks": ["gap", "lira", "saturated-head", "pgd(eps=0.1,steps=2)"],
        "defences": ["gaussian-noise(std=0.05)"],
        "shadows": 4,
        "curvature": 20,
    },
}
PLAIN, CENTRAL = Variant("fedavg", "none"), Variant("central", "none")


def small(**tables):
    """A small setting with some keys of its tables changed."""
    return make_setting({name: table | tables.get(name, {}) for name, table in SMALL.items()})


@pytest.fixture(scope="module")
def experiment():
    return prepare(small())


@pytest.fixture(scope="module")
def plan():
    return glasshouse.plan(small(), workers=1)


def even(seconds=1.0, **more):
    """A pace at which a step of every training, and a pass of every image, takes so long."""
    return Pace({PLAIN: Rate(seconds)}, ask=seconds, climb=seconds, **more)


def stages(experiment, pace, workers):
    engine = Engine(workers)
    return list(Schedule(experiment, pace, workers).stages(chores(experiment, engine)))


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """An audit that was not quiet: its folder, its findings, and the tasks it opened, with their steps."""
    opened, task, folder = [], Progress.task, tmp_path_factory.mktemp("plan") / "run"

    def noted(self, label, total, **options):
        opened.append((label, total - options.get("done", 0)))
        return task(self, label, total, **options)

    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(Progress, "task", noted)
        findings = run_audit(small(), out=folder, workers=1).findings
    return folder, findings, opened


def test_the_tasks_of_a_plan_are_those_that_the_audit_then_opens(experiment, audited):
    planned = [(stage.label, len(stage.seconds)) for stage in stages(experiment, even(), 1)]
    inside = ("audit", "seeds", "federation")  # the last is a shadow model's training
    opened = [(label, steps) for label, steps in audited[2] if label not in inside and steps]
    assert opened == [entry for entry in planned if entry[0] not in ("curvature", "page")]


def test_the_attacks_of_a_plan_are_those_that_the_audit_then_runs(plan, audited):
    planned = {(p.assignment.spec, p.assignment.access.adversary, p.variant.defence) for p in plan.running}
    attacked = [row for row in audited[1] if row.attack is not None and row.value is not None]
    assert planned == {(row.attack, row.adversary, row.defence) for row in attacked}


def test_what_a_run_has_kept_takes_no_time_when_it_goes_on(experiment, audited, tmp_path):
    folder = shutil.copytree(audited[0], tmp_path / "run")
    assert list(chores(experiment, Engine(1), folder)) == []
    (lost,) = (folder / "work").glob("gaussian-*/gap-*.json")
    lost.unlink()
    (left,) = chores(experiment, Engine(1), folder)
    assert isinstance(left, Attacking)
    assert [planned.assignment.spec for planned in left.attacks] == ["gap"]


def test_a_quiet_audit_is_not_timed_and_finds_the_same(audited, tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "_measure", lambda job: pytest.fail("a quiet audit was timed"))
    quiet = run_audit(small(), out=tmp_path / "quiet", workers=1, quiet=True)
    assert timeless(quiet.findings) == timeless(audited[1])


def timeless(findings):
    """The findings without what depends on the clock."""
    rows = [dataclasses.asdict(finding) | {"seconds": None} for finding in findings]
    return [row for row in rows if not row["metric"].endswith("seconds")]


def test_timing_draws_no_random_number_and_leaves_the_network_as_it_was(experiment):
    before = torch.get_rng_state(), str(np.random.get_state()), experiment.start.clone()
    mode = experiment.model.training
    with Engine(1) as engine:
        measure(experiment, [PLAIN, CENTRAL], engine)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert str(np.random.get_state()) == before[1]
    assert torch.equal(experiment.start, before[2])
    assert all(not parameter.grad for parameter in experiment.model.parameters())
    assert experiment.model.training is mode


def test_a_defence_that_trains_longer_is_timed_as_slower(experiment):
    slow = Variant("fedavg", "adversarial-training(eps=0.1,steps=10)")
    with Engine(1) as engine:
        pace = measure(experiment, [PLAIN, slow], engine)
    assert pace.of(slow).step > 3 * pace.of(PLAIN).step
    assert pace.of(Variant("fedavg", "pruning")) == pace.of(PLAIN)


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_every_strategy_can_be_timed(strategy):
    federation = prepare(small(training={"strategy": strategy}))
    with Engine(1) as engine:
        pace = measure(federation, [Variant(strategy, "none")], engine)
    assert pace.of(Variant(strategy, "none")).step > 0


@pytest.mark.parametrize("defence", list(DEFENCES))
def test_every_defence_can_be_timed(experiment, defence):
    under = Variant("fedavg", defence)
    with Engine(1) as engine:
        assert list(measure(experiment, [under], engine).rates) == [under]


class Unable(FedAvg):
    """A strategy that fails with a single client."""

    def combine(self, server, delivery):
        assert len(delivery.clients) > 1, "one client is\nnot enough"
        return super().combine(server, delivery)


def test_an_audit_that_cannot_be_timed_says_so_and_begins(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(STRATEGIES.places, "unable", f"{__name__}:Unable")
    tables = {"training": {"strategy": "unable"}, "audit": {"attacks": ["gap"], "defences": []}}
    results = run_audit(small(**tables), out=tmp_path / "run", workers=1)
    assert any(finding.attack == "gap" for finding in results.findings)
    assert "how long it takes cannot be told: one client is not enough" in capsys.readouterr().err


class Shut(torch.nn.Module):
    """A network whose backbone is frozen by what `forward` does; in eval mode, all of it may be."""

    def __init__(self, *, asked=True):
        super().__init__()
        self.body, self.head, self.asked = torch.nn.Linear(64, 8), torch.nn.Linear(8, 10), asked

    def forward(self, x):
        with torch.no_grad():
            features = self.body(x.flatten(1))
        with torch.set_grad_enabled(torch.is_grad_enabled() and (self.training or self.asked)):
            return self.head(features)


@pytest.mark.parametrize("asked", [True, False])
def test_a_network_that_cuts_its_images_off_is_planned(asked):
    planned = glasshouse.plan(small(audit={"attacks": ["gap"]}), model=Shut(asked=asked), workers=1)
    assert planned.seconds is not None
    assert [one.assignment.spec for one in planned.running if one.variant == PLAIN] == ["gap"]


class Unasked(Shut):
    """A network that takes no gradient of an answer in eval mode."""

    def forward(self, x):
        if not self.training and x.requires_grad:
            raise RuntimeError("no gradient\nby pixels")
        return super().forward(x)


def test_passes_that_fail_leave_the_time_untold(experiment):
    untimed = dataclasses.replace(experiment, model=Unasked(), start=read_vector(Unasked()))
    with Engine(1) as engine, pytest.raises(timing.Untimed, match="no gradient by pixels"):
        measure(untimed, [PLAIN], engine)


def test_a_training_takes_as_long_as_its_steps(experiment):
    """60 members in 3 clients, by batches of 32: one step of each client a round, two of the central one."""
    by_label = {stage.label: stage.total for stage in stages(experiment, even(fixed=0.0), 1)}
    asked = 30 * 2  # the test images, in each of two rounds
    assert by_label["training, none"] == pytest.approx(2 * 3 + asked)
    assert by_label["training, central"] == pytest.approx(2 * 2 + asked)
    trained_on = 24  # of 40 auxiliary images, nine tenths are drawn, two thirds of which are for training
    assert trained_on < 32
    assert by_label["shadow models"] == pytest.approx(4 * (2 * 3 + 120))


def test_workers_share_jobs_and_other_work_on_the_machine_makes_everything_longer(experiment):
    alone, shared, busy = (
        sum(
            stage.total
            for stage in stages(experiment, even(wait=wait), workers)
            if stage.kind == "shadow models"
        )
        for wait, workers in ((1.0, 1), (1.0, 2), (3.0, 1))
    )
    assert shared == pytest.approx(alone / 2)
    assert busy == pytest.approx(3 * alone)


def load(experiment, **pace):
    return Load(experiment, even(**pace), client=7.0, rounds=2, cohort=3, clients=3)


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ("strongest-inversion(seconds=5.0)", 5.0),  # what its option says
        ("pgd(eps=(0.1,0.2),steps=10)", 0.7 * 2 * 10 * 30),  # passes over 30 test images, most of them alive
        ("saturated-head", 2 * 3 * 7.0),  # two rounds of three clients
        ("saturated-head(adaptive=True,repeats=5)", 5 * 2 * 3 * 7.0),
        (
            "source-inference",
            2 * 5 * 80,
        ),  # two rounds, three clients and two more models, 80 records
        ("gradient-alignment", 3 * 2 * 5 * 120),  # derivatives, of auxiliary records too
    ],
)
def test_an_attack_takes_as_long_as_what_it_does_most(experiment, spec, seconds):
    (access, *_) = ATTACKS.make(spec).needs
    assert effort(spec, access, load(experiment)) == pytest.approx(seconds, rel=0.02, abs=0.1)


@pytest.mark.parametrize("spec", list(ATTACKS))
def test_every_attack_has_an_estimate(experiment, spec):
    for access in ATTACKS.make(spec).needs:
        assert 0 < effort(spec, access, load(experiment)) < float("inf")


def test_a_plan_says_what_is_trained_who_attacks_and_how_long(plan):
    text = " ".join(str(plan).split())
    assert [(row.name, row.models, row.rounds, row.clients) for row in plan.trained] == [
        ("central baseline", 1, 2, 1),
        ("federation, fedavg", 1, 2, 3),
        ("gaussian noise 0.05", 1, 2, 3),
        ("shadow models", 4, 2, 3),
        ("shadow models, gaussian noise 0.05", 4, 2, 3),
    ]
    assert "3 clients by iid, with 20 training images each" in text
    assert re.search(r"crafting server: saturated-head\+", text)
    assert re.search(r"about [\w ]+ with 1 worker \(", text)
    assert plan.seconds.total > 0
    assert plan.impossible == []


def test_a_plan_says_what_was_made_of_the_network():
    with Engine(1) as engine:
        planner = Planner(prepare(small(model={"train": ["5.*"]})), engine)
        for lines in (whole(planner.plan), short(planner.plan)):
            assert "clients train and send 5.weight, 5.bias (" in " ".join(" ".join(lines).split())


def test_lines_of_a_plan_fit_eighty_columns(plan):
    long = dataclasses.replace(
        plan,
        title="my_models:create(width=8) on hf:somebody/a-data-set-with-a-long-name-" + "x" * 30,
        seconds=dataclasses.replace(plan.seconds, wait=4.0),
        seeds=3,
        searched=26,
        attacks=tuple(
            dataclasses.replace(planned, reason="a reason " * 30 if place % 2 else None)
            for place, planned in enumerate(plan.attacks)
        ),
    )
    lines = [*whole(long), *short(long), *time_lines(long, first="")]
    assert [line for line in lines if len(line) > WIDTH] == []
    assert not any("{" in line for line in lines)


def test_with_adam_a_plan_says_what_cannot_run_and_the_first_lines_of_an_audit_too():
    with Engine(1) as engine:
        planner = Planner(prepare(small(training={"optimiser": "adam", "lr": 0.01})), engine)
        plan = planner.plan
    assert {planned.assignment.spec.partition("(")[0] for planned in plan.impossible} == {"saturated-head"}
    text = " ".join(str(plan).split())
    assert "What cannot run saturated-head and saturated-head (adaptive) (crafting server): " in text
    assert any(line.startswith("cannot run: saturated-head") for line in short(plan))


def test_attacks_that_one_reason_stops_share_a_line(plan):
    attacks = [dataclasses.replace(planned, reason="no images") for planned in plan.attacks]
    several = dataclasses.replace(plan, attacks=tuple(attacks))
    assert sum(line.startswith("cannot run: ") for line in short(several)) == 1
    text = " ".join(str(several).split())
    assert text.count("no images") == 1
    for planned in attacks:
        assert planned.assignment.spec.partition("(")[0] in text
        assert planned.assignment.access.adversary in text


def test_several_seeds_take_several_times_as_long(experiment, monkeypatch):
    monkeypatch.setattr("glasshouse.auditing.planning.plan.measure", lambda *_: even())
    one, three = (Planner(experiment, Engine(1), seeds=seeds).timed()[0].seconds.by_kind for seeds in (1, 3))
    assert three["training"] == pytest.approx(3 * one["training"])
    assert three["page"] == one["page"]


def test_a_search_plans_its_first_pass_and_guesses_what_follows(monkeypatch):
    monkeypatch.setattr("glasshouse.auditing.planning.plan.measure", lambda *_: even())
    few = ["clipping(norm=1.0)", "pruning(fraction=0.95)"]
    monkeypatch.setattr("glasshouse.auditing.planning.searching.singles", lambda evasion: few)
    searched = prepare(small(audit={"defences": ["all"]}))
    plan, expected = Planner(searched, Engine(1)).timed()
    labels = [stage.label for stage in expected]
    assert plan.searched == 2
    assert "2 defences meet one attack" in " ".join(str(plan).split())
    assert {f"attacks on {name}" for name in few} < set(labels)
    assert labels.count("attacks on *") > 0


def test_a_finished_model_is_attacked_and_not_trained(monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 1, 8, 8), dtype=np.float32), np.arange(60) % 3
    parts = {"members": (x[:20], y[:20]), "nonmembers": (x[20:40], y[20:40]), "auxiliary": (x[40:], y[40:])}
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    setting = Setting(audit={"attacks": ["gap", "lira", "fgsm"], "shadows": 4})
    plan = glasshouse.plan(setting, model=network, **parts, workers=1)
    assert [row.name for row in plan.trained] == ["shadow models"]
    assert {p.assignment.access.adversary for p in plan.running} <= {"outsider", "owner"}


CONFIG = """
[data]
clients = 2
members = 20
nonmembers = 10
auxiliary = 10
test = 10
[training]
rounds = 1
[audit]
attacks = ["{attack}"]
defences = []
curvature = 0
"""


def test_the_command_plans_and_writes_nothing(command, tmp_path):  # noqa: F811
    (tmp_path / "c.toml").write_text(CONFIG.format(attack="gap"))
    code, out, _ = command("audit", "c.toml", "--plan", "--workers", 1)
    assert code == 0
    assert out.startswith("lenet on digits, seed 0\n")
    assert "outsider: gap" in out
    assert [path.name for path in tmp_path.iterdir()] == ["c.toml"]


def test_what_cannot_be_is_the_same_line_with_a_plan_and_without(command, tmp_path):  # noqa: F811
    (tmp_path / "c.toml").write_text(CONFIG.format(attack="gapp"))
    planned, audited = (command("audit", "c.toml", *more) for more in (("--plan",), ()))
    assert planned == audited
    assert planned[0] == 2
    assert planned[2].startswith("glasshouse: unknown attack 'gapp'")
    assert planned[2].count("\n") == 1


def test_an_audit_ends_with_its_verdict_in_five_lines_and_the_path_on_standard_output(command, tmp_path):  # noqa: F811
    (tmp_path / "c.toml").write_text(CONFIG.format(attack="gap"))
    code, out, err = command("audit", "c.toml", "--out", "run", "--workers", 1)
    page = re.sub(r"\s+", " ", (tmp_path / "run" / "report.html").read_text())
    assert (code, out) == (0, "run\n")
    done = [place for place, line in enumerate(err.splitlines()) if " steps in " in line][-1]
    verdict = err.splitlines()[done + 1 :]
    assert 3 <= len(verdict) <= 5
    for line in verdict:
        title, _, words = line.partition(": ") if ": " in line else ("", "", line)
        assert title in ("", "Why", "What it costs", "What the closest would cost", "How sure")
        assert words.replace("'", "&#39;") in page
    assert command("audit", "c.toml", "--out", "run", "--workers", 1, "--quiet")[1:] == ("run\n", "")


@pytest.fixture(scope="module")
def documented():
    """The code blocks of the page that says how long an audit takes."""
    page = (Path(__file__).parent.parent / "docs" / "getting-started.md").read_text()
    section = page.partition("## How long will it take?")[2]
    return dict(re.findall(r"```(\w+)\n(.+?)```", section, re.DOTALL))


def test_the_docs_show_the_plan_of_the_example(documented):
    with Engine(1) as engine:
        assert documented["text"] == f"{Planner(prepare(EXAMPLE), engine).plan}\n"


def test_the_python_of_the_docs_runs(documented, capsys):
    exec(documented["python"], {})
    out = capsys.readouterr().out
    assert "saturated-head crafting server" in out
    assert re.search(r"\n\d+ seconds\n$", out)

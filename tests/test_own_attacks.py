"""Users' own attacks that fail: a finding with the reason, and the audit goes on; faults are no findings."""

import sys
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cases import finished
from conftest import CLASSES

from glasshouse import Setting, audit
from glasshouse.access import Access, ModelAccess, QueryAccess, ServerAccess, UpdateAccess
from glasshouse.attacks.attack import Attack, Nobody
from glasshouse.attacks.membership.threshold import Gap
from glasshouse.auditing.attacking import assignments
from glasshouse.auditing.examine import examine
from glasshouse.command_options import tell_decision
from glasshouse.errors import BadInput, CannotRun, Fault
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.evidence.labels import CountedLabels, LabelCounts
from glasshouse.evidence.membership import MembershipScores
from glasshouse.evidence.reconstruction import Rebuilt, Reconstructions
from glasshouse.evidence.source import Sources
from glasshouse.learning.engine import Engine
from glasshouse.learning.recipe import Recipe


@pytest.fixture(scope="module")
def case():
    with Engine(1) as engine:
        yield finished(engine, recipe=Recipe(epochs=1, batch_size=10, lr=0.05))


@dataclass(frozen=True, kw_only=True)
class Own(Attack):
    """An attack whose answer a test chooses, as a function of access, knowledge and candidates."""

    family = "membership"
    needs = (QueryAccess,)
    knows = ("candidates",)

    def run(self, access, knowledge, rng):
        return ANSWER["now"](access, knowledge.candidates)


class OwnEvasion(Own):
    """The same for images."""

    family = "evasion"
    needs = (ModelAccess,)


class OwnLabels(Own):
    """The same for labels."""

    family = "labels"
    needs = (UpdateAccess,)


class OwnSource(Own):
    """The same for sources."""

    family = "source"
    needs = (UpdateAccess,)


class OwnImages(Own):
    """The same for reconstructions."""

    family = "reconstruction"
    needs = (ServerAccess,)


ANSWER = {}


def reason_of(case, answer, attack=Own, adversary=None):
    """The reason of the one finding that is left of an attack with this answer."""
    ANSWER["now"] = answer
    (finding,) = examine(case, f"{__name__}:{attack.__name__}", adversary or attack.needs[0]).findings()
    assert (finding.metric, finding.value, finding.n) == ("not-applicable", None, None)
    assert finding.reason.isprintable()
    assert len(finding.reason) <= 1050
    return finding.reason


def raising(error):
    def answer(access, images):
        raise error

    return answer


class OfManyLines(Exception):
    def __str__(self):
        return "first\nsecond \ud800 \x1b[31m" + "x" * 10_000


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError

    __repr__ = __str__


@pytest.mark.parametrize(("error", "words"), [
    (ZeroDivisionError("no"), "the attack raised ZeroDivisionError: no (test_own_attacks.py, line "),
    (AssertionError(), "the attack raised AssertionError (test_own_attacks.py"),
    (KeyError("a"), "the attack raised KeyError: 'a'"),
    (SystemExit(3), "the attack raised SystemExit: 3"),
    (RecursionError("deep"), "the attack raised RecursionError: deep"),
    (OfManyLines(), "the attack raised OfManyLines: first second"),
    (Unspeakable(), "the attack raised Unspeakable"),
    (BadInput("eps = 9 is out of range"), "eps = 9 is out of range"),
    (CannotRun("there is no moon"), "there is no moon"),
    (CannotRun(""), "the attack cannot run, and does not say why"),
    (FileNotFoundError(2, "No such file", "x.npy"), "the attack raised FileNotFoundError: [Errno 2]"),
    (PermissionError(13, "Permission denied"), "the attack raised PermissionError: [Errno 13]"),
    (ConnectionError("no server"), "the attack raised ConnectionError: no server (test_own_attacks.py"),
])  # fmt: skip
def test_what_an_attack_raises_is_the_reason_of_its_finding(case, error, words):
    assert words in reason_of(case, raising(error))


@pytest.mark.parametrize("error", [
    OSError(28, "No space left on device"), OSError(5, "Input/output error"),
    MemoryError("out of it"), Fault("the disk is full"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
])  # fmt: skip
def test_a_fault_of_the_machine_is_no_finding(case, error):
    ANSWER["now"] = raising(error)
    with pytest.raises(Fault) as fault:
        examine(case, f"{__name__}:Own", QueryAccess)
    assert "\n" not in str(fault.value)


def test_the_terminal_names_an_own_attack_that_could_not_run(case, capsys):
    ANSWER["now"] = raising(KeyError("oops"))
    findings = examine(case, f"{__name__}:Own", QueryAccess).findings()
    tell_decision(SimpleNamespace(findings=findings, same_records=False), {})
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"{__name__}:Own could not run: the attack raised KeyError: 'oops' (test_own_attacks.py"
    )


def test_an_interruption_is_no_finding(case):
    ANSWER["now"] = raising(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        examine(case, f"{__name__}:Own", QueryAccess)


def test_a_file_that_fails_an_attack_of_glasshouse_is_a_fault(case, monkeypatch):
    def unreadable(self, access, knowledge, rng):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Gap, "run", unreadable)
    with pytest.raises(Fault, match="Permission denied"):
        examine(case, "gap", QueryAccess)


def test_what_an_attack_of_glasshouse_raises_is_a_bug_and_not_a_finding(case, monkeypatch):
    def broken(self, access, knowledge, rng):
        raise ZeroDivisionError

    monkeypatch.setattr(Gap, "run", broken)
    with pytest.raises(ZeroDivisionError):
        examine(case, "gap", QueryAccess)


def answers(scores, decisions=None, **more):
    """Membership scores made of a function of the number of candidates."""

    def answer(access, images):
        n = len(images)
        chosen = np.zeros(n, dtype=bool) if decisions is None else decisions(n)
        return MembershipScores(scores(n), chosen, **{name: make(n) for name, make in more.items()})

    return answer


def zeros(n):
    return np.zeros(n)


@pytest.mark.parametrize(("answer", "words"), [
    (lambda access, images: None, "the attack returned nothing; an attack on membership returns Membership"),
    (lambda access, images: [0.5], "the attack returned a list"),
    (lambda access, images: LabelCounts(()), "the attack returned a LabelCounts"),
    (answers(lambda n: np.zeros(n - 1)), "scores of shape (99,); it takes numbers as an array of shape (100"),
    (answers(lambda n: np.zeros(1)), "scores of shape (1,)"),
    (answers(lambda n: np.zeros((n, 1))), "scores of shape (100, 1)"),
    (answers(lambda n: np.full(n, np.nan)), "scores that are not finite numbers"),
    (answers(lambda n: np.full(n, np.inf)), "scores that are not finite numbers"),
    (answers(lambda n: [0.0] * n), "scores as a list"),
    (answers(lambda n: torch.zeros(n)), "scores as a Tensor"),
    (answers(lambda n: np.array(["a"] * n)), "scores of <U1"),
    (answers(zeros, lambda n: np.zeros(3, dtype=bool)), "decisions of shape (3,)"),
    (answers(zeros, lambda n: np.zeros(n, dtype=int)), "decisions of int64; it takes truth values"),
    (answers(zeros, by_client=lambda n: np.zeros((3, n - 1))), "scores by client of shape (3, 99)"),
    (answers(zeros, by_round=lambda n: {0: np.full(n, np.nan)}), "scores by round that are not finite"),
    (answers(zeros, by_round=lambda n: 7), "the attack raised AttributeError"),
])  # fmt: skip
def test_a_wrong_answer_about_membership_is_named(case, answer, words):
    assert words in reason_of(case, answer)


def examples(eps=(0.1,), change=lambda x: x, **more):
    return lambda access, images: AdversarialExamples(change(images.x[None].clone()), eps, **more)


def counted(*clients, counts=None):
    held = np.ones(CLASSES) if counts is None else counts
    return lambda access, images: LabelCounts((CountedLabels(clients, held),))


def rebuilt(clients=(0,), seconds=1.0, note=None):
    return lambda access, images: Reconstructions((Rebuilt(images.x[:2], clients),), seconds, 1.0, note)


@pytest.mark.parametrize(("attack", "answer", "words"), [
    (OwnEvasion, examples(change=lambda x: x[:, :3]), "something other than images"),
    (OwnEvasion, examples(change=lambda x: x * float("nan")), "something other than images"),
    (OwnEvasion, examples((float("nan"),)), "eps = nan is out of range"),
    (OwnEvasion, examples((float("inf"),)), "eps = inf is out of range"),
    (OwnEvasion, examples(()), "limits are ()"),
    (OwnEvasion, examples(norm="l1"), "norm = 'l1' is out of range; it must be one of linf, l2"),
    (OwnLabels, lambda access, images: LabelCounts(()), "counted nobody's labels"),
    (OwnLabels, counted(99), "answers for clients (99,); they are numbered 0 to 2"),
    (OwnLabels, counted(-1), "answers for clients (-1,)"),
    (OwnLabels, counted(0, 0), "answers for clients (0, 0)"),
    (OwnLabels, counted(0, counts=np.ones(CLASSES + 1)), "label counts of shape (5,)"),
    (OwnLabels, counted(0, counts=np.full(CLASSES, np.nan)), "label counts that are not finite"),
    (OwnSource, lambda access, images: Sources(np.zeros(3, dtype=int)), "clients of shape (3,)"),
    (OwnImages, rebuilt((0, 0)), "answers for clients (0, 0)"),
    (OwnImages, rebuilt(seconds=float("nan")), "the attack raised AssertionError"),
    (OwnImages, rebuilt(note=7), "the attack raised TypeError"),
])  # fmt: skip
def test_a_wrong_answer_of_another_family_is_named(case, attack, answer, words):
    assert words in reason_of(case, answer, attack)


def test_an_answer_in_numpys_own_numbers_can_be_kept(case):
    ANSWER["now"] = examples((np.float32(0.125),))
    judgement = examine(case, f"{__name__}:OwnEvasion", ModelAccess).judgement
    assert {type(eps) for eps in judgement.outcomes} == {float}


# What an attack says of itself.


def declaring(**entries):
    """An attack under the name `Declared`, with other declarations."""

    def run(self, access, knowledge, rng):
        raise ValueError("it ran")

    declared = type("Declared", (Attack,), {"run": run, "__module__": __name__} | entries)
    sys.modules[__name__].Declared = declared
    return f"{__name__}:Declared"


def fails(self):
    raise ZeroDivisionError


FINE = {"family": "membership", "needs": (QueryAccess,), "knows": ("candidates",)}


class Foreign(QueryAccess):
    """An access that nobody grants."""


@pytest.mark.parametrize(("entries", "words"), [
    ({}, "the attack raised ValueError: it ran"),
    ({"family": "magic"}, "the attack's family 'magic' is unknown; known: membership, source"),
    ({"family": "os:system"}, "the attack's family 'os:system' is unknown"),
    ({"family": None}, "the attack's family None is unknown"),
    ({"family": ["membership"]}, "the attack's family ['membership'] is unknown"),
    ({"family": property(fails)}, "the attack's family None is unknown"),
    ({"family": "m" * 9000}, "is unknown; known: membership"),
    ({"knows": ("everything",)}, "asks to know ('everything',); it takes a tuple of candidates, auxiliary"),
    ({"knows": "candidates"}, "asks to know 'candidates'"),
    ({"knows": ([],)}, "asks to know ([],)"),
    ({"knows": None}, "asks to know None"),
    ({"knows": ("batches",)}, "asks to know ('batches',)"),
    ({"knows": property(fails)}, "asks to know None"),
    ({"needs": ()}, "the attack needs (); it takes a tuple of access types, as in (QueryAccess,)"),
    ({"needs": None}, "the attack needs None"),
    ({"needs": QueryAccess}, "the attack needs <class"),
    ({"needs": ("QueryAccess",)}, "the attack needs ('QueryAccess',)"),
    ({"needs": (Access,)}, "the attack needs (<class"),
    ({"needs": (Foreign,)}, "the attack needs (<class"),
    ({"query_unit": 0}, "asks about 0 records at once"),
    ({"query_unit": "x"}, "asks about 'x' records at once"),
    ({"query_unit": property(fails)}, "the attack raised ZeroDivisionError"),
    ({"query_unit": 10**30}, "do not fill batches"),
    ({"query_unit": 4, "member_share": float("nan")}, "share of members is nan"),
])  # fmt: skip
def test_what_an_attack_says_wrongly_of_itself_is_the_reason_of_its_finding(case, entries, words):
    spec = declaring(**FINE | entries)
    (assignment,) = assignments([spec])
    assert not assignment.meets_central
    (finding,) = examine(case, spec, assignment.access).findings()
    assert (finding.metric, finding.value) == ("not-applicable", None)
    assert words in finding.reason
    assert finding.adversary == ("nobody" if "needs" in entries else "outsider")
    assert 0 < len(finding.family) < 100


def test_an_attack_that_says_nothing_of_itself_is_an_attack_of_nobody(case):
    spec = declaring()
    (assignment,) = assignments([spec])
    assert assignment.access is Nobody
    assert "the attack needs None" in examine(case, spec, Nobody).reason


# Asking with gradients switched off.


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_answers_are_the_same_with_gradients_switched_off(case, mode):
    asked = {}

    def asks(access, images):
        with mode():
            asked["inside"] = access.probabilities(images.x * 0.5)
        asked["outside"] = access.probabilities(images.x * 0.5)
        return nothing(images)

    ANSWER["now"] = asks
    assert examine(case, f"{__name__}:Own", QueryAccess).reason is None
    assert not asked["inside"].is_inference()
    assert torch.equal(asked["inside"], asked["outside"])
    asked["inside"].requires_grad_().sum().backward()


def nothing(images):
    return MembershipScores(np.zeros(len(images)), np.zeros(len(images), dtype=bool))


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_clients_train_the_same_with_the_servers_gradients_switched_off(case, mode):
    means = []

    def exchanges(access, images):
        with mode():
            means.append(access.exchange(access.current * 1, [0, 1]).mean)
        return Reconstructions((Rebuilt(images.x[:0], (0, 1)),), 0.0, 0.0)

    for _ in range(2):
        ANSWER["now"] = exchanges
        assert examine(case, f"{__name__}:OwnImages", ServerAccess).reason is None
    assert means[0].abs().sum() > 0
    assert torch.equal(*means)


def test_a_model_of_another_shape_is_not_sent(case):
    def sends(access, images):
        with pytest.raises(BadInput, match="a model of another shape"):
            access.exchange(access.current[1:], [0, 1])
        return Reconstructions((Rebuilt(images.x[:0], (0, 1)),), 0.0, 0.0)

    ANSWER["now"] = sends
    examination = examine(case, f"{__name__}:OwnImages", ServerAccess)
    assert examination.reason is None
    assert examination.sent == ()


# In an audit.

MINE = """
import sys
from dataclasses import dataclass
import numpy as np
from glasshouse.access import QueryAccess
from glasshouse.attacks.attack import Attack
from glasshouse.evidence.membership import MembershipScores

@dataclass(frozen=True, kw_only=True)
class Mine(Attack):
    how: str = ""
    family = "membership"
    needs = (QueryAccess,)
    knows = ("candidates",)

    def run(self, access, knowledge, rng):
        if self.how == "exit":
            sys.exit(0)
        if self.how == "raise":
            raise ValueError("no luck")
        scores = {"short": np.zeros(3), "nan": np.full(120, np.nan), "text": ["yes"] * 120}
        if self.how in scores:
            return MembershipScores(scores[self.how], np.zeros(120, dtype=bool))

class Magic(Mine):
    family = "magic"
    knows = ("everything",)

class Lonely(Mine):
    needs = ()
"""


def test_an_audit_goes_on_after_attacks_that_fail(tmp_path, monkeypatch):
    name = f"mine_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    how = [f"Mine(how='{how}')" for how in ("exit", "raise", "short", "nan", "text")]
    classes = ("Mine", *how, "Magic", "Lonely")
    own = [f"{name}:{spec}" for spec in classes]
    setting = Setting(
        data={"clients": 2, "members": 60, "nonmembers": 60, "auxiliary": 60, "test": 60},
        model={"name": "mlp"},
        training={"rounds": 1},
        audit={"attacks": [*own, "gap"], "defences": [], "central": False, "curvature": 0, "shadows": 0},
    )
    results = audit(setting, out=tmp_path / "run", workers=2, quiet=True)
    reasons = {finding.attack: finding.reason for finding in results.findings if finding.attack}
    assert "the attack returned nothing" in reasons[own[0]]
    assert "the attack raised SystemExit: 0" in reasons[own[1]]
    assert f"the attack raised ValueError: no luck ({name}.py, line 20)" in reasons[own[2]]
    assert "scores of shape (3,); it takes numbers as an array of shape (120)" in reasons[own[3]]
    assert "scores that are not finite numbers" in reasons[own[4]]
    assert "scores as a list; it takes numbers" in reasons[own[5]]
    assert "family 'magic' is unknown" in reasons[own[6]]
    assert "the attack needs ()" in reasons[own[7]]
    assert reasons["gap"] is None
    assert "no luck" in results.report.read_text()
    assert {one.attack for one in results.records if one.attack} == {"gap"}

"""The one place where attacks meet cases: nothing that one attack does reaches another, or the truth."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from cases import ONE_STEP, SUBJECT, access_to, finished, truth_of, waiting
from conftest import CLASSES, SHAPE, make_plain_model, make_split
from timeless import timeless

from glasshouse.access import (
    AggregateAccess,
    BlindServerAccess,
    ModelAccess,
    Protocol,
    QueryAccess,
    ServerAccess,
    UpdateAccess,
)
from glasshouse.attacks.attack import Attack
from glasshouse.auditing.attacking import Assignment, attack_target
from glasshouse.auditing.case import Case
from glasshouse.auditing.examine import examine
from glasshouse.auditing.target import Target, Variant
from glasshouse.errors import BadInput
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.evidence.labels import CountedLabels, LabelCounts
from glasshouse.evidence.membership import MembershipScores
from glasshouse.federation.channels.channel import Ideal, RoundFailed
from glasshouse.federation.shadows import Answers, Shadows
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import Layout
from glasshouse.learning.recipe import Recipe
from glasshouse.progress import Progress
from glasshouse.runfolder import RunFolder


def nothing(candidates):
    """Evidence that says nothing of anybody."""
    return MembershipScores(np.zeros(len(candidates)), np.zeros(len(candidates), dtype=bool))


@dataclass(frozen=True, kw_only=True)
class Relabels(Attack):
    """Moves no image, and calls every class the one that the model names: right by its own account."""

    family = "evasion"
    needs = (ModelAccess,)
    knows = ("candidates",)

    def run(self, access, knowledge, rng):
        images = knowledge.candidates
        images.y[:] = access.logits(images.x).argmax(1)
        return AdversarialExamples(images.x[None].clone(), (0.1,))


@dataclass(frozen=True, kw_only=True)
class Blackens(Attack):
    """Blackens the images that it is shown, past torch's own count of changes."""

    family = "membership"
    needs = (QueryAccess,)
    knows = ("candidates", "auxiliary")

    def run(self, access, knowledge, rng):
        for images in (knowledge.candidates, knowledge.auxiliary):
            images.x.numpy()[:] = 0
        return nothing(knowledge.candidates)


@dataclass(frozen=True, kw_only=True)
class Levels(Attack):
    """Makes all shadow models answer alike."""

    family = "membership"
    needs = (QueryAccess,)
    knows = ("candidates", "shadows")

    def run(self, access, knowledge, rng):
        for answers in (knowledge.shadows.auxiliary, knowledge.shadows.candidates):
            answers.logits[:] = 0
            answers.images.x[:] = 0
        return nothing(knowledge.candidates)


@dataclass(frozen=True, kw_only=True)
class Zeroes(Attack):
    """Empties the model that it owns."""

    family = "membership"
    needs = (ModelAccess,)
    knows = ("candidates",)

    def run(self, access, knowledge, rng):
        with torch.no_grad():
            for parameter in access.model.parameters():
                parameter.zero_()
        return nothing(knowledge.candidates)


@dataclass(frozen=True, kw_only=True)
class Erases(Attack):
    """Empties what a server has seen, and the network of the protocol."""

    family = "labels"
    needs = (UpdateAccess,)

    def run(self, access, knowledge, rng):
        for seen in access.rounds:
            seen.sent.zero_()
            for update in seen.updates:
                update.delta.zero_()
        with torch.no_grad():
            for parameter in access.protocol.architecture.parameters():
                parameter.zero_()
        return LabelCounts((CountedLabels((0,), np.zeros(CLASSES)),))


@dataclass(frozen=True, kw_only=True)
class AsksTwice(Attack):
    """Asks about the candidates, inverts their pixels in place, and asks again."""

    family = "membership"
    needs = (QueryAccess,)
    knows = ("candidates",)

    def run(self, access, knowledge, rng):
        x = knowledge.candidates.x
        before = access.probabilities(x)
        x.sub_(1).neg_()
        after = access.probabilities(x)
        x.numpy()[:] = 0.5
        grey = access.probabilities(x)
        changed = [(answers - before).abs().sum(1) for answers in (after, grey)]
        return MembershipScores(torch.minimum(*changed).numpy(), np.zeros(len(x), dtype=bool))


@dataclass(frozen=True, kw_only=True)
class Reuses(Attack):
    """Sends a model, and then uses its memory for something else."""

    family = "labels"
    needs = (ServerAccess,)

    def run(self, access, knowledge, rng):
        vector = access.current.clone()
        access.exchange(vector, [0, 1])
        vector.zero_()
        return LabelCounts((CountedLabels((0,), np.zeros(CLASSES)),))


VANDALS = [
    ("Relabels", ModelAccess), ("Blackens", QueryAccess), ("Levels", QueryAccess), ("Zeroes", ModelAccess),
    ("Erases", UpdateAccess),
]  # fmt: skip
HONEST = [
    Assignment("loss-threshold", QueryAccess),
    Assignment("lira", QueryAccess),
    Assignment("fgsm(eps=0.1)", ModelAccess),
    Assignment("label-counts", UpdateAccess),
]


def made_up_shadows(case):
    """Four shadow models with random answers."""
    rng = np.random.default_rng(0)

    def answers(images, trained):
        inside = np.stack([rng.permutation(len(images)) < trained * len(images) for _ in range(4)])
        logits = rng.normal(size=(4, len(images), images.classes)).astype(np.float32)
        return Answers(images, logits, inside, ~inside)

    return Shadows(answers(case.auxiliary, 0.5), answers(case.truth.candidates, 0), "four made-up shadows")


@pytest.fixture(scope="module")
def case():
    with Engine(1) as engine:
        case = finished(engine, recipe=Recipe(epochs=1, batch_size=10, lr=0.05), rounds=2)
        shadows = made_up_shadows(case)
        yield dataclasses.replace(case, shadows=lambda kind: shadows)


def honest_findings(case):
    return [timeless(examine(case, assignment.spec, assignment.access).findings()) for assignment in HONEST]


@pytest.mark.parametrize(("vandal", "adversary"), VANDALS)
def test_what_an_attack_does_to_its_copies_reaches_no_other_attack(case, vandal, adversary):
    expected = honest_findings(case)
    assert all(finding.value is not None for findings in expected for finding in findings[:2])
    examine(case, f"{__name__}:{vandal}", adversary)
    assert honest_findings(case) == expected


@pytest.mark.parametrize("workers", [1, 2])
def test_attacks_that_follow_each_other_in_one_worker_do_not_meet(case, tmp_path, workers):
    target = Target(Variant("fedavg", "none"), case, np.ones(1, dtype=bool), 2)

    def attacked(tried, name):
        folder, progress = RunFolder(tmp_path / name, "x"), Progress(quiet=True)
        return attack_target(target, tried, case.shadows, folder, engine, progress, detailed=True)

    vandals = [Assignment(f"{__name__}:{name}", adversary) for name, adversary in VANDALS]
    between = [assignment for pair in zip(vandals, HONEST) for assignment in pair]
    with Engine(workers) as engine:
        alone, mixed = attacked(HONEST, "alone"), attacked(between, "mixed")
    for one, other in zip(alone, mixed[1::2], strict=True):
        assert timeless(one.findings) == timeless(other.findings)
        assert one.exhibits == other.exhibits


def test_an_attack_that_relabels_its_images_is_judged_by_the_true_labels(case):
    robust, clean = examine(case, f"{__name__}:Relabels", ModelAccess).scores
    truth = case.truth.test
    right = (case.model(truth.x).argmax(1) == truth.y).double().mean().item()
    assert right < 1
    assert robust.estimate.value == clean.estimate.value == pytest.approx(right)


def test_answers_are_to_the_images_as_they_are_when_asked(case):
    for _ in range(2):  # the second attack finds the answers that the first one was given
        examination = examine(case, f"{__name__}:AsksTwice", QueryAccess)
        assert (examination.evidence.scores > 1e-3).all()
    x = case.truth.candidates.x
    expected = case.model(x).double().softmax(1)
    torch.testing.assert_close(access_to(case, QueryAccess).probabilities(x), expected)


def test_images_of_another_shape_are_another_question(case):
    ask = access_to(case, QueryAccess).probabilities
    x = case.truth.candidates.x[:2]
    assert ask(x).shape == (2, CLASSES)
    with pytest.raises(RuntimeError):
        ask(x.reshape(4, 1, 4, 8))


def test_a_model_that_was_sent_is_remembered_as_it_was_sent(case):
    examination = examine(case, f"{__name__}:Reuses", ServerAccess)
    (sent,) = examination.sent
    assert torch.equal(sent.vector, case.clients.current)


def test_an_adversary_that_cannot_do_what_an_attack_needs_is_refused(case):
    with pytest.raises(BadInput, match="pgd is no attack of the outsider; it takes the owner"):
        examine(case, "pgd", QueryAccess)


# What a blind server sees is a sum.


def test_a_blind_server_sees_no_round_of_one_client(engine):
    case = finished(engine, split=make_split((10, 12, 14, 16)), rounds=3, fraction=0.25)
    assert [len(seen.delivery.clients) for seen in case.rounds] == [1, 1, 1]
    examination = examine(case, "label-counts", AggregateAccess)
    assert "the sum of one update is that update" in examination.reason
    (finding,) = examination.findings()
    assert (finding.metric, finding.value, finding.reason) == ("not-applicable", None, examination.reason)
    assert examine(case, "label-counts", UpdateAccess).reason is None


def test_rounds_of_one_client_are_left_out_and_counted(engine):
    split = make_split((10, 12, 14, 16))
    lone = finished(engine, split=split, rounds=2, fraction=0.25)
    pairs = finished(engine, split=split, rounds=1, fraction=0.5)
    case = dataclasses.replace(lone, rounds=(*lone.rounds, *pairs.rounds))
    access = access_to(case, AggregateAccess)
    assert [len(seen.clients) for seen in access.rounds] == [2]
    examination = examine(case, "label-counts", AggregateAccess)
    assert examination.note == "2 of 3 rounds had one client and are left out"
    assert {finding.note for finding in examination.findings()} == {examination.note}
    assert "left out" not in " ".join(examination.granted)


def test_an_exchange_with_one_client_is_not_blind(engine):
    for channel in (None, Ideal()):  # a plain channel is put behind secure aggregation
        access = access_to(waiting(engine, channel=channel), BlindServerAccess)
        with pytest.raises(RoundFailed, match="the sum of one client's update is that update"):
            access.exchange(access.current, [1])
        assert access.exchange(access.current, [0, 2]).updates is None


def test_a_single_client_has_no_blind_server(engine):
    case = waiting(engine, split=make_split((30,)))
    reason = examine(case, "scale-mia", BlindServerAccess).reason
    assert "there is one client" in reason


def test_a_sum_in_which_all_but_one_client_refused_is_not_delivered(engine):
    case = waiting(engine, channel=Ideal(), defence="vet")
    access = access_to(case, BlindServerAccess)
    dead = torch.zeros_like(access.current)
    with pytest.raises(RoundFailed, match="the sum of one client's update is that update"):
        access.exchange(dead, [0, 1, 2], apart={1: access.current})


# What a case does not hold, nobody can attack.


def reason_of(case, spec, adversary):
    examination = examine(case, spec, adversary)
    assert examination.judgement is None
    assert examination.scores == ()
    (finding,) = examination.findings()
    assert (finding.value, finding.n, finding.reason) == (None, None, examination.reason)
    return examination.reason


def protocol_of(model):
    return Protocol(model, Layout.of(model), ONE_STEP, SHAPE, CLASSES)


@pytest.fixture
def finished_model():
    """A model and lists of who was trained on and who was not, as a stranger brings them."""
    model, split = make_plain_model().eval(), make_split((30,))
    return Case(
        subject=SUBJECT,
        protocol=protocol_of(model),
        model=model,
        truth=truth_of(split),
        auxiliary=split.images("auxiliary"),
    )


def test_a_finished_model_is_attacked_by_those_who_ask_it_or_own_it_and_by_nobody_else(finished_model):
    area, *_ = examine(finished_model, "loss-threshold", QueryAccess).scores
    assert area.estimate.value is not None
    robust, *_ = examine(finished_model, "fgsm(eps=0.1)", ModelAccess).scores
    assert robust.estimate.n == len(finished_model.truth.test)
    assert reason_of(finished_model, "label-counts", UpdateAccess) == "no round was seen"
    assert reason_of(finished_model, "label-counts", AggregateAccess) == "no round was seen"
    for spec, adversary in (("saturated-head", ServerAccess), ("scale-mia", BlindServerAccess)):
        assert reason_of(finished_model, spec, adversary) == "there are no clients to exchange models with"
    assert "no shadow models" in reason_of(finished_model, "lira", QueryAccess)


def test_one_update_is_enough_for_a_curious_server_and_for_nobody_else(engine):
    whole = finished(engine, split=make_split((20,)))
    case = Case(
        subject=SUBJECT,
        protocol=whole.protocol,
        rounds=whole.rounds,
        sizes=whole.sizes,
        truth=whole.truth,
    )
    scores = {score.metric: score for score in examine(case, "label-counts", UpdateAccess).scores}
    assert scores["label-overlap"].estimate.n == 1
    assert "one client" in reason_of(case, "label-counts", AggregateAccess)
    assert reason_of(case, "gap", QueryAccess) == "there is no final model"
    assert reason_of(case, "fgsm(eps=0.1)", ModelAccess) == "there is no final model"
    assert reason_of(case, "saturated-head", ServerAccess) == "there are no clients to exchange models with"
    assert "auxiliary" in reason_of(case, "loss-trajectory", UpdateAccess)


def test_rounds_without_a_truth_give_evidence_and_no_judgement(engine):
    case = dataclasses.replace(finished(engine, rounds=2), truth=None)
    examination = examine(case, "label-counts", UpdateAccess)
    assert examination.reason is None
    assert {counted.clients for counted in examination.evidence.counted} == {(0,), (1,), (2,)}
    assert examination.judgement is None
    assert examination.scores == ()
    assert examination.findings() == []
    assert "no candidates" in reason_of(case, "loss-threshold", QueryAccess)


def test_a_truth_without_test_images_or_clients_says_what_it_lacks(engine):
    case = finished(engine)
    blank = dataclasses.replace(case, truth=dataclasses.replace(case.truth, test=None, clients=()))
    assert "test images" in reason_of(blank, "fgsm(eps=0.1)", ModelAccess)
    assert "what clients hold" in reason_of(blank, "label-counts", UpdateAccess)
    area, *_ = examine(blank, "loss-threshold", QueryAccess).scores
    assert area.estimate.value is not None

"""One attack on one case: the only place where access is granted, an attack runs and its answer is judged."""

import dataclasses
import time
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from glasshouse.access import Access
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import (
    SHADOWS,
    Attack,
    Knowledge,
    accesses,
    declared,
    kind_of,
    misdeclared,
    shadow_kinds,
)
from glasshouse.auditing.case import Case
from glasshouse.auditing.failures import answering_for
from glasshouse.auditing.grants import Grant, SentModel, grant
from glasshouse.auditing.hypotheses import hypothesis
from glasshouse.auditing.requirements import check_protocol, held, missing
from glasshouse.data.images import Images
from glasshouse.errors import BadInput, CannotRun, one_line
from glasshouse.evidence.evidence import Evidence, Judgement, Score
from glasshouse.evidence.truth import Question, Truth, about_records
from glasshouse.exhibits import Exhibits
from glasshouse.federation.channels.channel import RoundFailed
from glasshouse.findings import Finding
from glasshouse.learning.seeds import derive, torch_rng
from glasshouse.measures.estimate import Estimate

NOT_RUN = "not-applicable"
"""The metric of an attack that could not run."""

LONGEST_REASON = 1000


@dataclass(frozen=True, eq=False)
class Examination:
    """What one attack made of one case, or the `reason` why it could not run.

    `granted` is what it was given beyond its access, in words. Without a truth there is evidence and no
    judgement. `sent` are the models that a crafting server sent; `seconds` is wall time.
    """

    case: Case
    spec: str
    adversary: type[Access]
    family: str
    granted: tuple[str, ...] = ()
    note: str | None = None
    evidence: Evidence | None = None
    question: Question | None = None
    judgement: Judgement | None = None
    reason: str | None = None
    sent: tuple[SentModel, ...] = ()
    seconds: float | None = None

    @property
    def scores(self) -> tuple[Score, ...]:
        """The judgement's scores; none where there is none."""
        return () if self.judgement is None else self.judgement.scores

    @property
    def cell(self) -> str:
        """The cell of an audit that the examination belongs to."""
        return f"{self.case.subject.defence}/{self.spec}"

    def finding(self, score: Score, **more: float | None) -> Finding:
        """What one score says; `more` may name the number that a paper printed."""
        return self.case.subject.finding(
            self.family,
            score.metric,
            score.estimate,
            cell=self.cell,
            adversary=self.adversary.adversary,
            attack=self.spec,
            chance=score.chance,
            assumes=self.granted,
            note=self.note,
            seconds=self.seconds,
            **more,
        )

    def findings(self) -> list[Finding]:
        """A finding for each score, or the one that says why there is none."""
        if self.reason is not None:
            missing = self.finding(Score(NOT_RUN, Estimate(None, None, None, 0, self.reason)))
            return [dataclasses.replace(missing, n=None)]
        return [self.finding(score) for score in self.scores]

    def exhibits(self) -> Exhibits:
        """The curves, labelled; pictures are for whoever has a folder to write them to."""
        drawn = Exhibits() if self.judgement is None else self.judgement.exhibits
        return drawn.about(**self.labels)

    @property
    def labels(self) -> dict[str, str | int | None]:
        """What exhibits are labelled with."""
        subject = self.case.subject
        return {
            "cell": self.cell,
            "attack": self.spec,
            "defence": subject.defence or "none",
            "strategy": subject.strategy or "",
            "adversary": self.adversary.adversary,
            "seed": subject.seed,
        }


def examine(
    case: Case,
    spec: str,
    adversary: type[Access],
    *,
    seed: int | None = None,
    rng: torch.Generator | None = None,
    detailed: bool = True,
) -> Examination:
    """Let the attack that `spec` names work on `case` as `adversary`, and judge what it returns.

    The attack's random numbers come from `rng`, or follow from `seed`, by default from the subject's own. A
    `detailed` judgement has pictures, and is broken down by client and round.

    What a user's own attack raises, or returns wrongly, is the reason of a null finding. What an attack of
    Glasshouse raises is a bug, and a fault of the machine is no finding: both end the examination.
    """
    attack: Attack = ATTACKS.make(spec)
    subject = case.subject
    if seed is None:
        seed = derive(subject.seed or 0, "attack", subject.defence or "none", spec, adversary.adversary)
    began = time.perf_counter()
    granted: Grant | None = None
    try:
        with answering_for(attack, spec):
            _check_declared(attack)
        _check_adversary(attack, spec, adversary)
        question = question_of(case, attack, seed, detailed)
        knowledge = _knowledge(case, attack, question)
        granted = grant(case, adversary, changes_network=attack.changes_network)
        with answering_for(attack, spec):
            check_protocol(case, attack, adversary)
            evidence = _run(attack, granted.access, knowledge, rng or torch_rng(seed), case)
            seconds = round(time.perf_counter() - began, 3)
            examination = Examination(
                case,
                spec,
                adversary,
                family(attack),
                granted=knowledge.described() + granted.described,
                note=granted.note,
                evidence=evidence,
                question=question,
                judgement=None if question is None else evidence.judge(question),
                sent=tuple(granted.sent),
                seconds=seconds,
            )
            examination.findings()  # what a wrong answer would break, it breaks here
    except CannotRun as reason:
        words = one_line(str(reason), LONGEST_REASON) or "the attack cannot run, and does not say why"
        return Examination(case, spec, adversary, _family_name(attack), reason=words)
    return examination


def family(attack: Attack) -> str:
    """The kind of question an attack answers; one about batches is easier than one about single records."""
    return attack.family if attack.query_unit == 1 else f"batch-{attack.family}"


def _family_name(attack: Attack) -> str:
    """The family as the attack calls it, which may be one that there is not."""
    if kind_of(attack) is None:
        return one_line(str(declared(attack, "family")), 40)
    try:
        return family(attack)
    except (Exception, SystemExit):  # the reason of the null finding names it
        return attack.family


def _check_declared(attack: Attack) -> None:
    fault = misdeclared(attack)
    if fault is not None:
        raise CannotRun(fault)


def _check_adversary(attack: Attack, spec: str, adversary: type[Access]) -> None:
    """Refuse an adversary that cannot do what the attack needs; one that can do more may run it too."""
    able = accesses(attack)
    if not any(issubclass(access, adversary) for access in able):
        named_able = " or ".join(dict.fromkeys(access.adversary for access in able))
        raise BadInput(f"{spec} is no attack of the {adversary.adversary}; it takes the {named_able}")


def question_of(case: Case, attack: Attack, seed: int, detailed: bool) -> Question | None:
    """What the attack is asked; null where nobody knows the answer."""
    truth = case.truth
    if truth is None:
        return None
    candidates, holder, batches = _images(truth.candidates, truth), truth.holder, None
    places = truth.places
    if _kind(attack).about == "records":
        batches, member = about_records(truth, attack.query_unit, attack.member_share)
    else:
        candidates = _images(truth.test, truth)
        holder, places = np.full(len(candidates), -1), truth.test_places
        member = holder >= 0
    return Question(
        truth=truth,
        candidates=candidates,
        holder=holder,
        member=member,
        model=case.model,
        auxiliary=_images(case.auxiliary, truth),
        rng=torch_rng(seed, "blind guess"),
        batches=batches,
        detailed=detailed,
        record=hypothesis(case.promises, "record"),
        client=hypothesis(case.promises, "client"),
        places=places,
    )


def _images(images: Images | None, truth: Truth) -> Images:
    return truth.pool[:0] if images is None else images


def _knowledge(case: Case, attack: Attack, question: Question | None) -> Knowledge:
    """A copy of what `attack` knows, for it alone; shadow models are trained only where it asks for them."""
    known: dict[str, Any] = {}
    for name in attack.knows:
        if name in SHADOWS:
            known[name] = None if case.shadows is None else case.shadows(shadow_kinds(attack)[name])
        else:
            known[name] = held(name, case, question)
        if not known[name]:
            raise CannotRun(missing(name, case, attack))
    batches = None if question is None else question.batches
    return deepcopy(Knowledge(**known, batches=batches, surrogate=case.surrogate))


def _run(attack: Attack, access: Access, knowledge: Knowledge, rng: torch.Generator, case: Case) -> Evidence:
    """The attack's evidence, or what a failed round leaves of it."""
    kind = _kind(attack)
    try:
        evidence = attack.run(access, knowledge, rng)
    except RoundFailed as failure:
        return kind.of_failed_round(str(failure), case.protocol.shape, len(case.sizes))
    if not isinstance(evidence, kind):
        returned = "nothing" if evidence is None else f"a {type(evidence).__name__}"
        raise CannotRun(
            f"the attack returned {returned}; an attack on {attack.family} returns {kind.__name__}"
        )
    return evidence


def _kind(attack: Attack) -> type[Evidence]:
    """The kind of evidence that an attack returns whose declarations were checked."""
    kind = kind_of(attack)
    assert kind is not None
    return kind

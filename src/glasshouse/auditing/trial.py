"""One trained federation on trial: each attack gets its access, the auditor keeps the truth and scores."""

import dataclasses
import re
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from glasshouse.access import Access, AggregateAccess, BlindServerAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.auditing.experiment import Experiment
from glasshouse.auditing.gallery import pictures
from glasshouse.auditing.grants import Grantor
from glasshouse.auditing.risk import risks
from glasshouse.auditing.robustness import curve
from glasshouse.auditing.scoring import Score, score
from glasshouse.auditing.shadowing import Shadowing
from glasshouse.auditing.truth import Truth, establish
from glasshouse.auditing.yardstick import outcomes
from glasshouse.errors import BadInput, CannotRun
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.evidence.evidence import Evidence
from glasshouse.evidence.membership import MembershipScores
from glasshouse.evidence.reconstruction import Reconstructions
from glasshouse.federation.channels.channel import Ideal, RoundFailed
from glasshouse.federation.federation import Federation
from glasshouse.federation.history import History
from glasshouse.findings import Finding
from glasshouse.learning.seeds import derive, torch_rng
from glasshouse.measures.estimate import proportion
from glasshouse.measures.membership import roc
from glasshouse.store import RunFolder
from glasshouse.vetting.vet import vet

MOST_VETTED = 2
"""As many of the models that a crafting server sent are vetted."""

CURVES = ("roc", "gallery", "risk", "robustness")
"""What an attack may leave for the page beside its findings."""


@dataclass(frozen=True, eq=False)
class Examination:
    """One attack's evidence, beside what is true and what it was granted beyond its access, in words."""

    evidence: Evidence
    truth: Truth
    granted: tuple[str, ...]
    seconds: float

    def entries(self, score: Score) -> dict[str, Any]:
        """What a finding says of one of its scores."""
        estimate = score.estimate
        return estimate.entries() | {
            "metric": score.metric,
            "chance": score.chance,
            "assumes": self.granted + ((estimate.note,) if estimate.note else ()),
            "seconds": self.seconds,
        }


@dataclass(frozen=True, eq=False)
class Trial:
    """A federation trained under one defence, or, with the strategy `central`, the baseline."""

    experiment: Experiment
    folder: RunFolder
    defence: str
    strategy: str
    federation: Federation
    history: History
    grantor: Grantor

    @property
    def name(self) -> str:
        """What is on trial, in a word: the defence, or the central baseline."""
        return self.strategy if self.strategy == "central" else self.defence

    def cached(self, name: str, compute: Callable[[], Any]) -> Any:
        """What was computed for this trial under `name`, read from the folder if it is there."""
        return self.folder.cached(f"{slug(self.name)}/{name}", compute)

    def training(self) -> list[dict[str, Any]]:
        """Accuracy, and the bytes to and from a client, round by round."""
        cell = f"{self.strategy}/{self.defence}"
        common = {"cell": cell, "defence": self.defence, "strategy": self.strategy}
        figures = ("acc_global", "acc_local", "down", "up")
        return [
            common | {"round": row.number + 1} | {key: getattr(row, key) for key in figures}
            for row in self.history.rounds
        ]

    def attack(self, spec: str, kind: type[Access], shadowing: Shadowing) -> dict[str, Any]:
        """The finding rows, curves and pictures of one attack; read from the folder if they are there.

        Of an evasion attack also its `outcomes`, image by image.
        """
        name = f"{slug(spec)}-by-{slug(kind.adversary)}"
        kept: dict[str, Any] = self.cached(name, lambda: self._attack(spec, kind, shadowing))
        if not isinstance(kept, dict) or set(kept) != {"rows", "outcomes", *CURVES}:
            file = self.folder.work / slug(self.name) / f"{name}.json"
            raise BadInput(f"{file} is damaged; delete it and run again")
        return kept

    def examine(self, spec: str, kind: type[Access], shadowing: Shadowing) -> "Examination":
        """Let one attack run with the access `kind`; raises `CannotRun` where it does not apply."""
        attack: Attack = ATTACKS.make(spec)
        seed = derive(self.experiment.setting.seed, "attack", self.defence, spec, kind.adversary)
        truth = establish(self.experiment, attack, self.grantor.model, seed)
        knowledge = self._knowledge(attack, truth, shadowing)
        shown = [images.x for images in (knowledge.candidates, knowledge.auxiliary) if images is not None]
        versions = [x._version for x in shown]
        began = time.perf_counter()
        access = self.grantor.grant(kind, changes_network=attack.changes_network)
        evidence = self._run(attack, access, knowledge, torch_rng(seed))
        if versions != [x._version for x in shown]:
            raise BadInput(f"attack {spec!r} changed the images that it was shown; it must work on a copy")
        seconds = round(time.perf_counter() - began, 3)
        return Examination(evidence, truth, knowledge.described() + self._granted(attack, kind), seconds)

    def finding(self, spec: str, kind: type[Access], **entries: Any) -> Finding:
        """A finding of one attack on this federation."""
        return self.experiment.finding(
            cell=f"{self.defence}/{spec}",
            family=family(ATTACKS.make(spec)),
            adversary=kind.adversary,
            attack=spec,
            defence=self.defence,
            strategy=self.strategy,
            **entries,
        )

    def _attack(self, spec: str, kind: type[Access], shadowing: Shadowing) -> dict[str, Any]:
        try:
            examination = self.examine(spec, kind, shadowing)
            scores = score(examination.evidence, examination.truth)
        except CannotRun as reason:
            empty = self.finding(spec, kind, metric="not-applicable", value=None, assumes=(str(reason),))
            return {"rows": [empty.row()], "outcomes": {}} | {name: [] for name in CURVES}
        evidence, truth = examination.evidence, examination.truth
        bare = self.name == "none"
        stem = f"{slug(spec)}-by-{slug(kind.adversary)}"
        shown = pictures(evidence, truth, self.folder.path, stem) if bare else []
        by_whom = {
            "cell": f"{self.defence}/{spec}",
            "attack": spec,
            "defence": self.defence,
            "strategy": self.strategy,
            "adversary": kind.adversary,
        }
        found = [self.finding(spec, kind, **examination.entries(each)) for each in scores]
        if bare and self.grantor.sent:
            found.append(self._vetted(spec, kind))
        return {
            "rows": [each.row() for each in found],
            "outcomes": outcomes(evidence, truth),
            "roc": [by_whom | line for line in _roc(evidence, truth)],
            "gallery": [by_whom | picture for picture in shown],
            "risk": [by_whom | entry for entry in (risks(evidence, truth) if bare else [])],
            "robustness": [by_whom | point for point in _robustness(evidence, truth)],
        }

    def _vetted(self, spec: str, kind: type[Access]) -> Finding:
        """What clients that vet would have said to the models that this attack sent."""
        sent = self.grantor.sent[:MOST_VETTED]
        verdicts = [vet(each.model(), self.federation.shape) for each in sent]
        share = proportion(sum(verdict.crafted for verdict in verdicts), len(verdicts))
        alarming = [sign for verdict in verdicts for sign in verdict.signs if sign.alarming]
        reasons = {(sign.name, sign.layer): str(sign) for sign in alarming}  # models differ in the numbers
        row = self.finding(
            spec,
            kind,
            metric="vet-alarm",
            **share.entries(),
            assumes=tuple(reasons.values()),
        )
        return dataclasses.replace(row, family="vetting")

    def _run(self, attack: Attack, access: Access, knowledge: Knowledge, rng: torch.Generator) -> Evidence:
        """The attack's evidence; where no round comes about, a reconstruction ends with no images."""
        try:
            return attack.run(access, knowledge, rng)
        except RoundFailed as failure:
            if attack.family != "reconstruction":
                raise CannotRun(f"the round failed: {failure}") from failure
            everyone = tuple(range(len(self.federation.sizes)))
            return Reconstructions(torch.empty(0, *self.federation.shape), everyone, 0.0, 0.0, str(failure))

    def _granted(self, attack: Attack, kind: type[Access]) -> tuple[str, ...]:
        """What an attack was granted beyond its access and its knowledge, in words."""
        words = ("leave to change the network",) if attack.changes_network else ()
        if kind is BlindServerAccess:
            return (*words, self.grantor.blind.channel.described)
        if kind is AggregateAccess:
            channel = self.federation.channel
            return (*words, (Ideal() if channel.shows_updates else channel).described)
        return words

    def _knowledge(self, attack: Attack, truth: Truth, shadowing: Shadowing) -> Knowledge:
        """What `attack` is told; shadow models are trained only where it asks for them."""
        early = self.experiment.setting.training.target_accuracy is not None
        rounds = len(self.history.rounds) if early else None
        makers: dict[str, Callable[[], Any]] = {
            "candidates": lambda: truth.candidates,
            "auxiliary": lambda: self.experiment.auxiliary,
            "shadows": lambda: shadowing.offline(self.defence, rounds),
            "online_shadows": lambda: shadowing.online(self.defence, rounds),
        }
        if "candidates" in attack.knows and not len(truth.candidates):
            raise CannotRun("there is nobody to compare members with; set data.nonmembers above 0")
        told: dict[str, Any] = {}
        for name in attack.knows:
            told[name] = makers[name]()
            if not len(told[name]):
                raise CannotRun(f"the setting keeps no {name} images; set data.{name} above 0")
        return Knowledge(**told, batches=truth.batches)


def family(attack: Attack) -> str:
    """The kind of question an attack answers; one about batches is easier than one about single records."""
    return attack.family if attack.query_unit == 1 else f"batch-{attack.family}"


def slug(text: str) -> str:
    """`text` as a file name of its own: readable, and with a digest where characters had to go."""
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")
    return readable if readable == text else f"{readable}-{zlib.crc32(text.encode()):08x}"


def _roc(evidence: Evidence, truth: Truth) -> list[dict[str, Any]]:
    if not isinstance(evidence, MembershipScores):
        return []
    fpr, tpr = roc(evidence.scores, truth.member)
    members = int(truth.member.sum())
    unit = 1 if truth.batches is None else truth.batches.shape[1]
    counts = {"members": members, "nonmembers": len(truth.member) - members, "unit": unit}
    return [counts | {"fpr": fpr, "tpr": tpr}]


def _robustness(evidence: Evidence, truth: Truth) -> list[dict[str, Any]]:
    if not isinstance(evidence, AdversarialExamples):
        return []
    return [{"norm": evidence.norm} | point for point in curve(evidence, truth)]

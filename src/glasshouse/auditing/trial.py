"""One trained federation on trial: each attack gets its access, the auditor keeps the truth and scores."""

import re
import time
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from glasshouse.access import Access
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Attack, CannotRun, Evidence, Knowledge, MembershipScores
from glasshouse.auditing.bench import Bench
from glasshouse.auditing.gallery import pictures
from glasshouse.auditing.grants import Grantor
from glasshouse.auditing.scoring import Truth, score
from glasshouse.errors import BadInput
from glasshouse.federation.federation import Federation
from glasshouse.federation.history import History
from glasshouse.learning.seeds import derive, numpy_rng, torch_rng
from glasshouse.measures.membership import roc
from glasshouse.store import RunFolder


@dataclass(frozen=True, eq=False)
class Trial:
    """A federation trained under one defence."""

    bench: Bench
    folder: RunFolder
    defence: str
    strategy: str
    federation: Federation
    history: History
    grantor: Grantor

    def curve(self) -> list[dict[str, Any]]:
        """Accuracy round by round."""
        cell = f"{self.strategy}/{self.defence}"
        common = {"cell": cell, "defence": self.defence, "strategy": self.strategy}
        return [
            common | {"round": row.number + 1, "acc_global": row.acc_global, "acc_local": row.acc_local}
            for row in self.history.rounds
        ]

    def attack(self, spec: str, kind: type[Access]) -> dict[str, Any]:
        """The finding rows, ROC curve and pictures of one attack; read from the folder if they are there."""
        name = f"{slug(self.defence)}/{slug(spec)}-by-{slug(kind.adversary)}"
        kept: dict[str, Any] = self.folder.cached(name, lambda: self._attack(spec, kind))
        if not isinstance(kept, dict) or set(kept) != {"rows", "roc", "gallery"}:
            raise BadInput(f"{self.folder.work / name}.json is damaged; delete it and run again")
        return kept

    def _attack(self, spec: str, kind: type[Access]) -> dict[str, Any]:
        attack: Attack = ATTACKS.make(spec)
        seed = derive(self.bench.setting.seed, "attack", self.defence, spec, kind.adversary)
        truth = self._truth(attack, seed)
        everything = Knowledge(truth.candidates, self.bench.split.images("auxiliary"))
        knowledge = everything.only(attack.told)
        labels = {"cell": f"{self.defence}/{spec}", "attack": spec, "defence": self.defence}
        began = time.perf_counter()
        try:
            if lacking := everything.missing(attack.told):
                raise CannotRun(f"the setting keeps no images as {lacking}")
            evidence = attack.run(self.grantor.grant(kind), knowledge, torch_rng(seed))
            seconds = round(time.perf_counter() - began, 3)
            scores = score(evidence, truth)
        except CannotRun as reason:
            empty = self.bench.finding(
                **labels,
                family=attack.family,
                adversary=kind.adversary,
                metric="not-applicable",
                value=None,
                assumes=(str(reason),),
            )
            return {"rows": [empty.row()], "roc": [], "gallery": []}
        rows = [
            self.bench.finding(
                **labels,
                family=attack.family,
                adversary=kind.adversary,
                metric=result.metric,
                value=result.estimate.value,
                low=result.estimate.low,
                high=result.estimate.high,
                chance=result.chance,
                n=result.estimate.n,
                assumes=knowledge.described() + ((result.estimate.note,) if result.estimate.note else ()),
                seconds=seconds,
            ).row()
            for result in scores
        ]
        shown = pictures(evidence, truth, self.folder.path, slug(spec)) if self.defence == "none" else []
        return {
            "rows": rows,
            "roc": [labels | curve for curve in _roc(evidence, truth)],
            "gallery": [labels | picture for picture in shown],
        }

    def _truth(self, attack: Attack, seed: int) -> Truth:
        """What the auditor knows.

        Membership candidates are all members and non-members, in an order that tells nothing and is the same
        for every attack and defence.
        """
        holders = self.bench.split
        if attack.family == "membership":
            positions = np.concatenate([holders.members, holders.nonmembers])
            order = numpy_rng(self.bench.setting.seed, "candidates").permutation(len(positions))
            candidates, member = holders.pool[positions[order]], order < len(holders.members)
            if not len(holders.nonmembers):
                candidates = candidates[:0]
        else:
            candidates, member = holders.images("test"), np.zeros(len(holders.test), dtype=bool)
        counts = np.stack([holders.client(k).label_counts().numpy() for k in range(len(holders.clients))])
        return Truth(candidates, member, counts, self.grantor.model, torch_rng(seed, "blind guess"))


def slug(text: str) -> str:
    """`text` as a file name of its own: readable, and with a digest where characters had to go."""
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")
    return readable if readable == text else f"{readable}-{zlib.crc32(text.encode()):08x}"


def _roc(evidence: Evidence, truth: Truth) -> list[dict[str, Any]]:
    if not isinstance(evidence, MembershipScores):
        return []
    fpr, tpr = roc(evidence.scores, truth.member)
    members = int(truth.member.sum())
    return [{"fpr": fpr, "tpr": tpr, "members": members, "nonmembers": len(truth.member) - members}]

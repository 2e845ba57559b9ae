"""What is measured in each cell: attacks on rounds of fresh victims."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from glasshouse.access import BlindServerAccess
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.crafted.scale_mia import ScaleMIA
from glasshouse.auditing.gallery import save_png
from glasshouse.errors import CannotRun
from glasshouse.evidence.reconstruction import Reconstructions
from glasshouse.federation.channels.channel import RoundFailed
from glasshouse.findings import Finding
from glasshouse.learning.seeds import torch_rng
from glasshouse.studies.scale_mia.pictures import contact_sheet
from glasshouse.studies.scale_mia.rows import (
    bound_row,
    distribution_rows,
    missing_row,
    reconstruction_rows,
    vetting_row,
)
from glasshouse.studies.scale_mia.stage import ONE_STEP, Conditions, Crowd, Judged, Stage
from glasshouse.studies.scale_mia.targets import Prepared
from glasshouse.studies.study import Workplace
from glasshouse.vetting.vet import vet

PUBLISHED = "scale-mia"
PEELED = "scale-mia-peeled(rounds=1)"


@dataclass(frozen=True)
class Meeting:
    """How a cell meets its victims: who holds a batch, how many samples to see, and what is in the way."""

    group: Crowd
    samples: int
    most: int
    conditions: Conditions = ONE_STEP

    @property
    def rounds(self) -> int:
        """How many rounds see that many samples, at least one and at most `most`."""
        return max(1, min(self.most, -(-self.samples // self.group.batch)))


@dataclass(frozen=True)
class Extras:
    """What a cell shows beside its metrics: pictures, the spread of PSNRs, what a client notices."""

    pictures: bool = False
    distribution: bool = False
    vetting: bool = False


PLAIN = Extras()


def attacked(
    prepared: Prepared,
    meeting: Meeting,
    specs: Sequence[str],
    place: Workplace,
    printed: Mapping[str, Mapping[str, float]] | None = None,
    extras: Extras = PLAIN,
) -> list[Finding]:
    """All metrics of some attacks on the same victims; `printed` are the paper's, by attack."""
    stage = Stage(prepared, meeting.group, meeting.rounds, place.engine, place.seed, meeting.conditions)
    rows = [bound_row(stage)]
    for spec in specs:
        try:
            judged, offline, given = _run(stage, spec, place)
        except CannotRun as reason:
            rows.append(missing_row(stage, spec, str(reason)))
            continue
        own = (printed or {}).get(spec, {})
        rows += reconstruction_rows(stage, spec, judged, offline=offline, assumes=given, printed=own)
        if extras.distribution:
            rows += distribution_rows(stage, spec, judged)
        if extras.vetting:
            rows.append(_vetted(stage, spec))
        if extras.pictures:
            _save_sheets(stage, spec, judged[0], place)
    return rows


def _run(stage: Stage, spec: str, place: Workplace) -> tuple[list[Judged], float, tuple[str, ...]]:
    """What one attack makes of each round, its seconds of preparation, and what it was given, in words."""
    attack: Attack = ATTACKS.make(spec)
    prepared = stage.prepared
    knowledge = Knowledge(auxiliary=prepared.auxiliary)
    given = knowledge.described()
    if attack.changes_network:
        given += ("leave to change the network",)
    rng = torch_rng(place.seed, "attack", spec)
    accesses = list(stage.accesses(changes_network=attack.changes_network))
    judged: list[Judged] = []
    offline = 0.0
    if isinstance(attack, ScaleMIA):
        given += (prepared.described,)
        began = time.perf_counter()
        crafted = attack.craft(prepared.surrogate, accesses[0], prepared.auxiliary, rng)
        offline = prepared.seconds + time.perf_counter() - began
    with place.progress.task(f"{spec}, batches of {stage.group.batch}", len(accesses)) as task:
        for number, access in enumerate(accesses):
            try:
                if isinstance(attack, ScaleMIA):
                    evidence = attack.attack_rounds(crafted, access)
                else:
                    evidence = _reconstructed(attack, access, knowledge, rng)
                    offline += evidence.offline / len(accesses)
            except RoundFailed as failure:
                evidence = _nothing(stage, str(failure))
            judged.append(stage.judge(number, evidence))
            task.advance()
    return judged, offline, (*given, stage.channel)


def _reconstructed(
    attack: Attack, access: BlindServerAccess, knowledge: Knowledge, rng: torch.Generator
) -> Reconstructions:
    evidence = attack.run(access, knowledge, rng)
    assert isinstance(evidence, Reconstructions)
    return evidence


def _nothing(stage: Stage, reason: str) -> Reconstructions:
    shape = stage.prepared.auxiliary.shape
    return Reconstructions(torch.empty(0, *shape), tuple(range(stage.group.present)), 0.0, 0.0, reason)


def _vetted(stage: Stage, spec: str) -> Finding:
    """Whether a client that vets would have flagged the first model sent, beside the untouched network."""
    shape = stage.prepared.auxiliary.shape
    found = vet(stage.sent[0].model(), shape)
    honest = vet(stage.prepared.network, shape)
    reasons = tuple(str(sign) for sign in found.signs if sign.alarming)
    return vetting_row(stage, spec, found.crafted, honest.crafted, reasons)


def _save_sheets(stage: Stage, spec: str, first: Judged, place: Workplace) -> None:
    """The first round's originals and what was made of them, as two pictures."""
    name = spec.partition("(")[0]
    for part, images in zip(("originals", "rebuilt"), stage.pictures(0, first.evidence)):
        save_png(contact_sheet(images), place.folder / sheet_name(name, part))


def sheet_name(attack: str, part: str) -> str:
    """The file of one sheet of pictures in a cell's folder."""
    return f"{attack.partition('(')[0]}-{part}.png"

"""Images from updates: what every attack does that rebuilds them, whatever its mathematics."""

import time
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from glasshouse.access import AggregateAccess, Protocol, UpdateAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.inversion.updates import (
    AttackedUpdate,
    attacked_updates,
    check_plain_steps,
    conditions,
)
from glasshouse.errors import CannotRun, reason_of
from glasshouse.evidence.reconstruction import Rebuilt, Reconstructions
from glasshouse.options import check_whole


@dataclass(frozen=True, kw_only=True)
class UpdateInversion(Attack):
    """Rebuilds the images behind up to `updates` updates, or sums of updates.

    Half of them come from the first round that was seen, half from the last; in each round those of the
    clients with the fewest images, which mix the least.
    """

    name: ClassVar[str]
    family = "reconstruction"
    needs = (UpdateAccess, AggregateAccess)

    updates: int = 4

    def __post_init__(self) -> None:
        check_whole(self.name, "updates", self.updates, 1)

    def cannot(self, protocol: Protocol, samples: int) -> str | None:
        return reason_of(self.check_protocol, protocol, samples)

    def check_protocol(self, protocol: Protocol, samples: int) -> None:
        """Raise `CannotRun` where no update of `samples` images or more can be inverted."""
        check_plain_steps(protocol.recipe)

    def run(
        self, access: UpdateAccess | AggregateAccess, knowledge: Knowledge, rng: torch.Generator
    ) -> Reconstructions:
        began = time.perf_counter()
        updates = attacked_updates(access, self.updates)
        parts = [self._part(update, knowledge, rng) for update in updates]
        refusals = [part for part in parts if isinstance(part, CannotRun)]
        if len(refusals) == len(parts):
            raise refusals[0]
        rebuilt = tuple(part for part in parts if isinstance(part, Rebuilt))
        note = joined(
            [conditions(updates, given=knowledge.labels is not None), *(part.note for part in rebuilt)]
        )
        if refusals:
            note = joined([note, f"{len(refusals)} of {len(parts)} updates were not tried: {refusals[0]}"])
        return Reconstructions(rebuilt, 0.0, time.perf_counter() - began, note, self.remark)

    @property
    def remark(self) -> str | None:
        """What every score of its images shall say of how they were found; null where there is nothing."""
        return None

    @abstractmethod
    def rebuild(self, update: AttackedUpdate, knowledge: Knowledge, rng: torch.Generator) -> Rebuilt:
        """The images behind one update; raises `CannotRun` where the attack does not apply to it."""

    def _part(
        self, update: AttackedUpdate, knowledge: Knowledge, rng: torch.Generator
    ) -> Rebuilt | CannotRun:
        try:
            rebuilt = replace(self.rebuild(update, knowledge, rng), round=update.round)
            # What explains a gradient of mixed or changed images is these, and none of the clients' own.
            recipe = update.protocol.recipe
            return replace(rebuilt, proven=False) if recipe.mix_up or recipe.augment else rebuilt
        except CannotRun as refusal:
            return refusal


def joined(notes: Iterable[str | None]) -> str | None:
    """Different notes as one; null where there is none."""
    return "; ".join(dict.fromkeys(note for note in notes if note)) or None

"""The strongest inversion: first what proves its images, then the search that the time left pays for."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge, required
from glasshouse.attacks.inversion.adaptive import draws_of
from glasshouse.attacks.inversion.effort import affordable_steps
from glasshouse.attacks.inversion.explaining import Explanation
from glasshouse.attacks.inversion.inversion import UpdateInversion, joined
from glasshouse.attacks.inversion.label_guesses import SOURCES
from glasshouse.attacks.inversion.matching import GradientMatching
from glasshouse.attacks.inversion.spear import Spear, seconds_of_a_pass
from glasshouse.attacks.inversion.swift import SwiftInversion
from glasshouse.attacks.inversion.undoing import UNDONE, undone
from glasshouse.attacks.inversion.updates import AttackedUpdate
from glasshouse.errors import CannotRun
from glasshouse.evidence.reconstruction import Rebuilt, Snapshot
from glasshouse.measures.pictures import others
from glasshouse.options import check_choice, check_flag, check_number, check_whole

SOLVING = ("linear-leak", "spear", "r-gap", "april-analytic", "patch-leak")
"""The attacks that solve for images instead of searching, in the order in which they are tried."""

EXPLAINED = 1e-3
"""The cosine distance, of every tensor, up to which a gradient is the one that was seen."""

SEARCH = SwiftInversion
"""The search for what no attack solves for."""

SIDE = 32
"""The pixels of a side for which the search's weight on rough images was published."""

RESTARTS, CULLED = 4, 1 / 8
"""As many starts, of which the best goes on after this share of the steps."""

WORTH_CULLING = 400
"""Steps from which a search is long enough for several starts."""

LONGEST = 3600.0
"""Seconds after which any attack ends, whatever it was thought to take."""

SIMULATED = 16
"""As many local steps are simulated at most."""


@dataclass(frozen=True, kw_only=True)
class StrongestInversion(UpdateInversion):
    """Solves for images where a closed form proves them, and searches for the others.

    `seconds` are divided equally over the `updates`. They buy a number of steps by the size of the network
    and the batch, and not by the clock: the images do not depend on how fast the machine is. At most `most`
    images are searched for behind an update. An `adaptive` one knows the clients' defences: it undoes a
    transformation policy, also of images that were solved for, and searches as `swift-inversion` does.
    """

    name = "strongest-inversion"
    seconds: float = 30.0
    most: int = 8
    labels: str = "counts"
    adaptive: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.name, "seconds", self.seconds, 0, open_low=True)
        check_whole(self.name, "most", self.most, 1)
        check_choice(self.name, "labels", self.labels, SOURCES)
        check_flag(self.name, "adaptive", self.adaptive)

    @property
    def knows(self) -> tuple[str, ...]:
        """The labels and the defences, where the options ask for them."""
        asked = {"labels": self.labels == "given", "defence": self.adaptive}
        return tuple(name for name, wanted in asked.items() if wanted)

    def rebuild(self, update: AttackedUpdate, knowledge: Knowledge, rng: torch.Generator) -> Rebuilt:
        draws = draws_of(required(knowledge.defence), update.protocol.shape) if self.adaptive else ()
        solved = self._solved(update, knowledge, rng)
        if solved is not None and draws:
            originals, _ = undone(solved.x, draws)
            solved = replace(solved, x=originals, proven=False, note=joined([solved.note, UNDONE]))
        if solved is not None and len(solved.x) == update.samples:
            return solved
        try:
            searched = self._searched(self.search(update, len(draws)), update, knowledge, rng)
        except CannotRun:
            if solved is None:
                raise
            return solved
        return searched if solved is None else _completed(solved, searched, update.samples)

    def search(self, update: AttackedUpdate, draws: int = 0) -> GradientMatching:
        """The search that an equal share of the seconds pays for.

        Where a policy has several `draws` for a single image, they take the place of several starts.
        """
        protocol, count = update.protocol, min(self.most, update.samples)
        whole = count == update.samples and len(update.clients) == 1
        simulated = whole and 1 < update.steps <= SIMULATED
        evaluations = affordable_steps(
            protocol.architecture,
            protocol.shape,
            count * (protocol.recipe.epochs if simulated else 1),
            self._share,
            passes=update.steps if simulated else 1,
        )
        several = evaluations >= WORTH_CULLING
        restarts = RESTARTS if several else 1
        descents = restarts
        if draws and update.samples == 1 and not simulated:
            restarts, descents = 1, draws
        return SEARCH(
            most=self.most,
            labels=self.labels,
            steps=round(evaluations / (1 + (descents - 1) * CULLED)),
            restarts=restarts,
            culled=CULLED,
            adaptive=self.adaptive,
            patience=0.1,
            simulate=SIMULATED,
            # Neighbouring pixels differ the more the fewer there are of them.
            tv=SEARCH.tv * min(1.0, min(protocol.shape[1:]) / SIDE) ** 2,
        )

    def _solved(self, update: AttackedUpdate, knowledge: Knowledge, rng: torch.Generator) -> Rebuilt | None:
        """The images of the attack that proves all of them, or the most; null where none does."""
        best = None
        for name in SOLVING:
            try:
                rebuilt = self._solver(name, update).rebuild(update, knowledge, rng)
            except CannotRun:
                continue
            if not rebuilt.proven and not _explains(rebuilt, update):
                continue
            if len(rebuilt.x) > (0 if best is None else len(best.x)):
                best = replace(rebuilt, note=joined([_made_by(name, rebuilt.x, update), rebuilt.note]))
            if len(rebuilt.x) == update.samples:
                break
        return best

    def _solver(self, name: str, update: AttackedUpdate) -> UpdateInversion:
        """The attack of that name; the one that may take long, for as long as an update's share pays for."""
        attack: UpdateInversion = ATTACKS.make(name)
        if not isinstance(attack, Spear):
            return attack
        passes = round(self._share / seconds_of_a_pass(update))
        if not passes:
            raise CannotRun("a pass over the neurons takes longer than there is time for")
        return replace(attack, passes=passes, seconds=LONGEST)

    @property
    def _share(self) -> float:
        """The seconds for one update."""
        return self.seconds / self.updates

    def _searched(
        self, search: GradientMatching, update: AttackedUpdate, knowledge: Knowledge, rng: torch.Generator
    ) -> Rebuilt:
        rebuilt = search.rebuild(update, knowledge, rng)
        made = f"{_made_by(search.name, rebuilt.x, update)} in up to {search.steps} steps"
        return replace(rebuilt, note=joined([made, rebuilt.note]))


def _explains(rebuilt: Rebuilt, update: AttackedUpdate) -> bool:
    """Whether the gradient of one image, with whichever label, is the one that was seen."""
    if not len(rebuilt.x) == update.samples == update.steps == 1:
        return False
    explanation = Explanation(update, None, 1)
    labels = torch.arange(update.protocol.classes).split(1)
    return any(explanation.mismatch(rebuilt.x, label) <= EXPLAINED for label in labels)


def _made_by(name: str, x: Tensor, update: AttackedUpdate) -> str:
    """Which attack made which images."""
    whose = f"client {update.clients[0]}" if len(update.clients) == 1 else f"{len(update.clients)} clients"
    return f"round {update.round + 1}, {whose}: {len(x)} of {update.samples} images by {name}"


def _completed(solved: Rebuilt, searched: Rebuilt, samples: int) -> Rebuilt:
    """The images solved for, and of those searched for as many others as samples are left."""
    missing = others(solved.x, searched.x, samples - len(solved.x))

    def both(x: Tensor) -> Tensor:
        return torch.cat([solved.x, x[missing].to(solved.x.dtype)])

    def completed(snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, x=both(snapshot.x))

    return replace(
        searched,
        x=both(searched.x),
        snapshots=tuple(map(completed, searched.snapshots)),
        note=joined([solved.note, searched.note]),
    )

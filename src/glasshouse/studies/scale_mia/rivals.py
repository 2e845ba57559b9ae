"""The rows of Table 3: which attack meets which network, at which batch sizes, how often and for how long.

Searches take minutes where closed forms take milliseconds. Where a scale has no time for as many steps as an
attack was published with, the attack's spec names the fewer it took.
"""

from dataclasses import dataclass
from functools import partial

from glasshouse.studies.scale_mia import cells, printed
from glasshouse.studies.scale_mia.cells import CODED, Table3Cell
from glasshouse.studies.scale_mia.printed import SMALL_BATCHES
from glasshouse.studies.scale_mia.scenarios import RoundPlan, Scenario, Scenarios
from glasshouse.studies.study import Cell, CellResult, Workplace

BEYOND_CLASSES = 16
"""The batch size of the paper at which GradInversion lacks labels that all differ: CIFAR-10 has ten."""

OF_THE_UPDATE = "statistics='update'"
"""What GradInversion knows of batch norm: the network is untrained, so that its own statistics say nothing,
but clients report how they moved."""


@dataclass(frozen=True)
class Rival:
    """One attack at some batch sizes, each in `rounds` rounds with victims of their own.

    A `passive` one reads the update of one client, the others craft what they send. One in `closed` form
    takes no search.
    """

    spec: str
    scenario: Scenario
    rounds: int
    batches: tuple[int, ...] = SMALL_BATCHES
    passive: bool = False
    closed: bool = False

    @property
    def attack(self) -> str:
        """Its name, without options."""
        return self.spec.partition("(")[0]

    def cells(self, scenarios: Scenarios) -> list[Cell]:
        """A cell for each batch size; those of a search keep one core busy, and need no autoencoder."""
        prepared_by = scenarios if self.closed else None
        return [
            Cell(
                str(Table3Cell(self.attack, batch)),
                partial(_attacked, self, batch, prepared_by),
                single=not self.closed,
            )
            for batch in self.batches
        ]


def _attacked(rival: Rival, batch: int, scenarios: Scenarios | None, place: Workplace) -> CellResult:
    """A search runs in a process of its own, and prepares its scenario there."""
    schooled = rival.spec.startswith(cells.FAMILY)
    prepared = (scenarios or Scenarios()).prepared(rival.scenario, place, schooled=schooled)
    plan = RoundPlan(batch, rival.rounds * batch, rival.rounds, passive=rival.passive)
    known = printed.table_3(rival.scenario.network, rival.scenario.data, rival.attack, batch)
    return cells.attacked(
        prepared, plan, (rival.spec,), place, {rival.spec: known}, vetting=not rival.passive
    )


def laptop(resnet: Scenario, cnn: Scenario) -> tuple[Rival, ...]:
    """An hour on two cores for all of them; a step takes 0.13 s for one image and 0.65 s for sixteen."""
    searched = "inverting-gradients(steps=480)"
    grouped = f"gradinversion(steps=150,restarts=2,{OF_THE_UPDATE})"
    counted = f"gradinversion(steps=150,restarts=2,{OF_THE_UPDATE},labels='counts')"
    return (
        Rival(CODED, resnet, 8, closed=True),
        Rival("robbing-the-fed", resnet, 4, closed=True),
        Rival("dlg", cnn, 8, (1,), passive=True),
        Rival("idlg", cnn, 8, (1,), passive=True),
        Rival(searched, resnet, 8, (1,), passive=True),
        Rival(searched, resnet, 4, (2, 4), passive=True),
        Rival(searched, resnet, 2, (8,), passive=True),
        Rival(grouped, resnet, 8, (1,), passive=True),
        Rival(grouped, resnet, 4, (2, 4), passive=True),
        Rival(grouped, resnet, 2, (8,), passive=True),
        Rival(counted, resnet, 2, (BEYOND_CLASSES,), passive=True),
        Rival("fishing(steps=150)", resnet, 8),
        Rival("eluding(steps=150)", resnet, 10, (8, 16)),
        Rival("eluding(steps=75)", resnet, 10, (64,)),
    )


def paper(resnet: Scenario, cnn: Scenario) -> tuple[Rival, ...]:
    """Every search with as many steps as its authors gave it."""
    return (
        Rival(CODED, resnet, 5, closed=True),
        Rival("robbing-the-fed", resnet, 5, closed=True),
        Rival("dlg", cnn, 20, (1,), passive=True),
        Rival("idlg", cnn, 20, (1,), passive=True),
        Rival("inverting-gradients", resnet, 8, (1, 2, 4, 8), passive=True),
        Rival(f"gradinversion({OF_THE_UPDATE})", resnet, 8, (1, 2, 4, 8), passive=True),
        Rival(f"gradinversion({OF_THE_UPDATE},labels='counts')", resnet, 8, (BEYOND_CLASSES,), passive=True),
        Rival("fishing(steps=4800)", resnet, 8),
        Rival("eluding(steps=4800)", resnet, 10, (8, 16, 64)),
    )


def smoke(flat: Scenario, normed: Scenario) -> tuple[Rival, ...]:
    """A cell or two of each row; batch norm needs more than one image where a network leaves one pixel."""
    return (
        Rival(CODED, flat, 1, (1, 16), closed=True),
        Rival("robbing-the-fed", flat, 1, (1, 16), closed=True),
        Rival("dlg(steps=3)", flat, 2, (1,), passive=True),
        Rival("idlg(steps=3)", flat, 2, (1,), passive=True),
        Rival("inverting-gradients(steps=20)", flat, 2, (1, 4), passive=True),
        Rival("gradinversion(steps=3,restarts=2)", normed, 1, (4,), passive=True),
        Rival("fishing(steps=20)", flat, 1, (1, 16)),
        Rival("eluding(steps=20)", flat, 1, (16,)),
    )

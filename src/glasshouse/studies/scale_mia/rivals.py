"""The rows of Table 3: which attack meets which network, at which batch sizes, how often and for how long.

Searches take minutes where closed forms take milliseconds. Where a scale has no time for as many steps as an
attack was published with, the attack's spec names the fewer it took. The paper attacks a ResNet, which
Scale-MIA as published cannot: it takes a linear layer behind the second one. So the CNN is attacked too,
where all can run, and searches take few enough seconds to run in full.
"""

from dataclasses import dataclass
from functools import partial

from glasshouse.studies.scale_mia import cells, printed
from glasshouse.studies.scale_mia.addresses import Table3Cell
from glasshouse.studies.scale_mia.cells import CODED, HEADS, PUBLISHED
from glasshouse.studies.scale_mia.printed import SMALL_BATCHES, Printed
from glasshouse.studies.scale_mia.scenarios import SCENARIOS, RoundPlan, Scenario
from glasshouse.studies.study import Cell, CellResult, Workplace

BEYOND_CLASSES = 16
"""The batch size of the paper at which GradInversion lacks labels that all differ: CIFAR-10 has ten."""

OF_THE_UPDATE = "statistics='update'"
"""What GradInversion knows of batch norm: the network is untrained, so that its own statistics say nothing,
but clients report how they moved."""

ROBBING, SEARCHED, FISHING = "robbing-the-fed", "inverting-gradients", "fishing(steps=4800)"
"""Inverting Gradients takes 4,800 steps by default, and is also what Fishing ends in."""

MOST, SAMPLES = 16, 2048
"""Closed forms are fast: they meet so many samples, in so many rounds at most, but in eight at least."""


@dataclass(frozen=True)
class Rival:
    """One attack, or some on the same victims, at some batch sizes, in `rounds` rounds with victims each.

    A `passive` one reads the update of one client, the others craft what they send. One in `closed` form
    takes no search, and no more rounds than show `SAMPLES` victims.
    """

    specs: tuple[str, ...]
    scenario: Scenario
    rounds: int
    batches: tuple[int, ...] = SMALL_BATCHES
    passive: bool = False
    closed: bool = False

    @property
    def attack(self) -> str:
        """The first one's name, without options."""
        return self.specs[0].partition("(")[0]

    def cells(self) -> list[Cell]:
        """A cell for each batch size; those of a search need no autoencoder."""
        return [
            Cell(
                str(Table3Cell(self.scenario.network, self.attack, batch)),
                partial(_attacked, self, batch),
                single=True,
                printed=any(self.known(batch).values()),
            )
            for batch in self.batches
        ]

    def known(self, batch: int) -> dict[str, Printed]:
        """What the paper prints, by attack."""
        network, data = self.scenario.network, self.scenario.data
        return {spec: printed.table_3(network, data, spec, batch) for spec in self.specs}


def _attacked(rival: Rival, batch: int, place: Workplace) -> CellResult:
    schooled = any(spec.startswith(cells.FAMILY) for spec in rival.specs)
    prepared = SCENARIOS.prepared(rival.scenario, place, schooled=schooled)
    samples = min(SAMPLES, rival.rounds * batch) if rival.closed else rival.rounds * batch
    plan = RoundPlan(batch, samples, rival.rounds, passive=rival.passive, ideal=True)
    known = rival.known(batch)
    return cells.attacked(prepared, plan, rival.specs, place, known, vetting=not rival.passive)


def laptop(resnet: Scenario, cnn: Scenario) -> tuple[Rival, ...]:
    """Searches take all their steps on the CNN, and for one image on the ResNet; elsewhere a part of them."""
    grouped = f"gradinversion(steps=150,restarts=2,{OF_THE_UPDATE})"
    counted = f"gradinversion(steps=150,restarts=2,{OF_THE_UPDATE},labels='counts')"
    return (
        *_closed(resnet, cnn),
        Rival((SEARCHED,), resnet, 8, (1,), passive=True),  # what takes longest comes first
        Rival(("dlg",), cnn, 8, (1,), passive=True),
        Rival(("idlg",), cnn, 8, (1,), passive=True),
        Rival((SEARCHED,), cnn, 8, (1, 2), passive=True),
        Rival((SEARCHED,), cnn, 4, (4, 8), passive=True),
        Rival((SEARCHED,), cnn, 2, (16,), passive=True),
        Rival((grouped,), resnet, 8, (1,), passive=True),
        Rival((counted,), resnet, 2, (BEYOND_CLASSES,), passive=True),
        Rival((FISHING,), cnn, 8, (1, 64)),
        Rival(("fishing(steps=480)",), resnet, 8, (64,)),
    )


def paper(resnet: Scenario, cnn: Scenario) -> tuple[Rival, ...]:
    """Every search with as many steps as its authors gave it."""
    grouped, counted = (f"gradinversion({OF_THE_UPDATE}{more})" for more in ("", ",labels='counts'"))
    return (
        *_closed(resnet, cnn),
        Rival(("dlg",), cnn, 20, (1,), passive=True),
        Rival(("idlg",), cnn, 20, (1,), passive=True),
        *(Rival((SEARCHED,), network, 8, (1, 2, 4, 8, 16), passive=True) for network in (cnn, resnet)),
        Rival((grouped,), resnet, 8, (1, 2, 4, 8), passive=True),
        Rival((counted,), resnet, 8, (BEYOND_CLASSES,), passive=True),
        *(Rival((FISHING,), network, 8) for network in (cnn, resnet)),
        Rival(("eluding(steps=4800)",), resnet, 10, (8, 16, 64)),
    )


def smoke(flat: Scenario, deep: Scenario, normed: Scenario) -> tuple[Rival, ...]:
    """A cell or two of each row; batch norm needs more than one image where a network leaves one pixel."""
    return (
        Rival((PUBLISHED, CODED), flat, 1, (1, 16), closed=True),
        Rival(HEADS, deep, 1, (16,), closed=True),
        Rival((ROBBING,), flat, 1, (1, 16), closed=True),
        Rival(("dlg(steps=3)",), flat, 2, (1,), passive=True),
        Rival(("idlg(steps=3)",), flat, 2, (1,), passive=True),
        Rival(("inverting-gradients(steps=20)",), flat, 2, (1, 4), passive=True),
        Rival(("gradinversion(steps=3,restarts=2)",), normed, 1, (4,), passive=True),
        Rival(("fishing(steps=20)",), flat, 1, (1, 16)),
        Rival(("eluding(steps=20)",), flat, 1, (16,)),
    )


def _closed(resnet: Scenario, cnn: Scenario) -> tuple[Rival, ...]:
    return (
        Rival((PUBLISHED, CODED), resnet, MOST, closed=True),
        Rival((ROBBING,), resnet, MOST, closed=True),
        Rival(HEADS, cnn, MOST, closed=True),
        Rival((ROBBING,), cnn, MOST, closed=True),
    )

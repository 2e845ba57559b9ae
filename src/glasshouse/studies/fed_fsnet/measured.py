"""What the finished cells hold, by scenario and method: over seeds, and in pairs that share a seed."""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from glasshouse.exhibits import TrainingPoint
from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate, mean
from glasshouse.studies.address import Address
from glasshouse.studies.measured import Measured, apart, less

SCENARIO = "{data}/{model}/f-{fraction}"


@dataclass(frozen=True)
class FederationAddress(Address):
    """A federation in the tables (`table`, `ablation` or `extractor`), or the attacks on it (`leaks`)."""

    pattern: ClassVar[str] = f"{{kind}}/{SCENARIO}/{{method}}"
    kind: str
    data: str
    model: str
    fraction: float
    method: str


@dataclass(frozen=True)
class Scenario:
    """A data set, a network and the fraction of clients a round, for so many rounds."""

    data: str
    model: str
    fraction: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.data}, {self.model}, f = {self.fraction}, {self.rounds} rounds"

    @property
    def name(self) -> str:
        """The part that the names of its cells share."""
        return SCENARIO.format(**vars(self))

    def cell(self, kind: str, method: str) -> str:
        """The name of a method's cell of a kind."""
        return str(FederationAddress(kind, self.data, self.model, self.fraction, method))


Pair = tuple[Scenario, str]
"""A scenario and a method in it."""


@dataclass(frozen=True)
class Quantity:
    """A number of a federation: its name in tables, and where it lies in the findings.

    That of an attack, with the adversary whose access it had, is in the cells of the leaks. It is never above
    `most`, nor below zero.
    """

    name: str
    metric: str
    attack: str | None = None
    most: float = 1.0


GLOBAL = Quantity("Acc_global", "late-accuracy")
LOCAL = Quantity("Acc_local on all classes", "late-local-accuracy")
LOCAL_OWN = Quantity("Acc_local on own classes", "late-local-accuracy-own-classes")
GLOBAL_OWN = Quantity("global model on own classes", "late-global-accuracy-own-classes")
READINGS = (LOCAL, LOCAL_OWN, GLOBAL_OWN)
"""What the paper's Acc_local can mean: of the models that participants trained, or of their average."""
LAST = Quantity("Acc_global", "test-accuracy")
"""Acc_global after the last round alone."""
SPEED = Quantity("mean over all rounds", "mean-accuracy")
WOBBLE = Quantity("standard deviation", "wobble")
JUMP = Quantity("mean change from round to round", "jump")
DOWN = Quantity("to a client", "bytes-down", most=math.inf)
UP = Quantity("from a client", "bytes-up", most=math.inf)
SECONDS = Quantity("core-seconds a round", "seconds-per-round", most=math.inf)

TARGETS = tuple(percent / 100 for percent in range(30, 100, 5))
"""Accuracies of which it is noted how many rounds they took."""
ROUNDS_TO = {
    target: Quantity(f"rounds to {target:.2f}", f"rounds-to-{target:.2f}", most=math.inf)
    for target in TARGETS
}

MEMBERSHIP = Quantity("membership AUC (outsider)", "auc", "loss-threshold/outsider")
LABELS = Quantity("label overlap (curious server)", "label-overlap", "label-counts/curious server")
SUMMED = Quantity("label overlap of a sum (blind server)", "label-overlap", "label-counts/blind server")
REPORTED = Quantity(
    "label overlap from reports (curious server)", "label-overlap", "reported-labels/curious server"
)
MIMICKED = Quantity("membership AUC by distance to mimics (client)", "auc", "mimic-distance/client")
NEAREST = Quantity("mimics nearest to a member (client)", "nearest-member-share", "mimic-neighbours/client")
ROBUST = Quantity("PGD accuracy (owner)", "robust-accuracy", "pgd/owner")
LEAKS = (MEMBERSHIP, LABELS, SUMMED, REPORTED, MIMICKED, NEAREST, ROBUST)


class Federations(Measured):
    """Looks findings up by scenario, method and seed; attacks go by their names, without options.

    The seeds share most test images, which therefore do not average out over them. A difference between two
    methods of one seed, tested on the same images, is taken as if these were different ones: that makes its
    interval wider by more than those that seeds share could.
    """

    same_records = True

    def __init__(self, findings: Iterable[Finding], training: Iterable[TrainingPoint] = ()) -> None:
        rows = [_labelled(row) for row in findings]
        super().__init__(rows)
        self._chances = {(row.cell, row.attack, row.metric): row.chance for row in rows if row.chance}
        self._strategies = {row.cell: row.strategy for row in rows if row.strategy}
        rounds: dict[tuple[str, str, float], int] = {}
        for row in rows:
            address = FederationAddress.parse(row.cell)
            if address and row.metric == "rounds" and row.value is not None:
                key = address.data, address.model, address.fraction
                rounds[key] = max(rounds.get(key, 0), int(row.value))
        self._methods: dict[tuple[str, Scenario], list[str]] = {}
        for address in FederationAddress.matching(self.cells):
            key = address.data, address.model, address.fraction
            scenario = Scenario(*key, rounds.get(key, 0))
            self._methods.setdefault((address.kind, scenario), []).append(address.method)
        self._curves: dict[str, dict[int, list[float]]] = {}
        for point in training:
            if point.cell is not None and point.acc_global is not None:
                curve = self._curves.setdefault(point.cell, {})
                curve.setdefault(point.round, []).append(point.acc_global)

    def scenarios(self, kind: str = "table") -> list[Scenario]:
        """The scenarios that have finished cells of a kind, in order."""
        return [scenario for which, scenario in self._methods if which == kind]

    def methods(self, scenario: Scenario, kind: str = "table") -> list[str]:
        """The finished methods of a scenario, in order."""
        return self._methods.get((kind, scenario), [])

    def pairs(self, kind: str = "table") -> list[Pair]:
        """The finished methods of every scenario."""
        return [(where, method) for where in self.scenarios(kind) for method in self.methods(where, kind)]

    def has(self, pair: Pair) -> bool:
        """Whether a method of a scenario is finished."""
        return self.cell(pair) in self.cells

    def cell(self, pair: Pair, quantity: Quantity = GLOBAL) -> str:
        """The cell that a quantity of a method is in."""
        return self.key(pair, quantity)[0]

    def strategy(self, pair: Pair) -> str:
        """The strategy of a method with the options it ran with, as users type it."""
        return self._strategies.get(self.cell(pair), "")

    def at(self, pair: Pair, quantity: Quantity) -> dict[int, Estimate]:
        """The quantity of a method at each seed."""
        return self.seeds_of(*self.key(pair, quantity))

    def of(self, pair: Pair, quantity: Quantity) -> Estimate | None:
        """The quantity of a method over its seeds."""
        return self.over_seeds(*self.key(pair, quantity), bounds=(0.0, quantity.most))

    def gains(self, method: str, pair: Pair, quantity: Quantity) -> list[Estimate]:
        """By how much a method is above the one of a pair, at each seed that both have."""
        scenario, _ = pair
        return apart(self.at((scenario, method), quantity), self.at(pair, quantity))

    def over_chance(self, pair: Pair, quantity: Quantity) -> list[Estimate]:
        """By how much a quantity of a method is above a blind guess, at each seed."""
        chance = self._chances.get(self.key(pair, quantity))
        return [] if chance is None else less(self.at(pair, quantity).values(), chance)

    def best(self, scenario: Scenario, methods: Iterable[str], quantity: Quantity) -> list[str]:
        """Those of `methods` that have the quantity, the highest mean over the seeds first."""
        found = {method: self.of((scenario, method), quantity) for method in methods}
        means = {method: one.value for method, one in found.items() if one and one.value is not None}
        return sorted(means, key=lambda method: -means[method])

    def curve(self, pair: Pair) -> dict[int, Estimate]:
        """The accuracy of the global model over the seeds, by round, counted from 1."""
        scenario, method = pair
        points = self._curves.get(scenario.cell("table", method), {})
        return {number: mean(values, bounds=(0.0, 1.0)) for number, values in points.items()}

    def key(self, pair: Pair, quantity: Quantity) -> tuple[str, str | None, str]:
        """Where a quantity lies; a method is in the table or among the ablations."""
        scenario, method = pair
        kinds = ("leaks",) if quantity.attack else ("table", "ablation", "extractor")
        cells = [scenario.cell(kind, method) for kind in kinds]
        cell = next((cell for cell in cells if cell in self.cells), cells[-1])
        return cell, quantity.attack, quantity.metric


def _labelled(row: Finding) -> Finding:
    """The finding with the name of its attack and its adversary as its attack."""
    if row.attack is None:
        return row
    return dataclasses.replace(row, attack=f"{row.attack.partition('(')[0]}/{row.adversary}")

"""What the finished cells hold, by scenario and method: over seeds, and in pairs that share a seed."""

import dataclasses
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from glasshouse.exhibits import TrainingPoint
from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate, mean
from glasshouse.studies.address import Address
from glasshouse.studies.measured import Measured, collapsed, differences
from glasshouse.verdicts.claims import Unit

SCENARIO = "{data}/{model}/f-{fraction}"


@dataclass(frozen=True)
class FederationAddress(Address):
    """A federation in the tables (`table` or `ablation`), or the attacks on it (`leaks`)."""

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
LOCAL = Quantity("Acc_local", "late-local-accuracy")
BOTH = (GLOBAL, LOCAL)
LAST = {GLOBAL: Quantity("Acc_global", "test-accuracy"), LOCAL: Quantity("Acc_local", "local-accuracy")}
"""The same after the last round alone."""
SPEED = Quantity("mean over all rounds", "mean-accuracy")
WOBBLE = Quantity("standard deviation", "wobble")
JUMP = Quantity("mean change from round to round", "jump")
DOWN = Quantity("to a client", "bytes-down", most=math.inf)
UP = Quantity("from a client", "bytes-up", most=math.inf)
SECONDS = Quantity("core-seconds a round", "seconds-per-round", most=math.inf)

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
    """Looks findings up by scenario, method and seed; attacks go by their names, without options."""

    def __init__(self, findings: Iterable[Finding], training: Iterable[TrainingPoint] = ()) -> None:
        rows = [_labelled(row) for row in findings]
        super().__init__(rows)
        self.count = len({(row.cell, row.seed) for row in rows if row.metric == "test-accuracy"})
        self.collapsed = collapsed(rows)
        self._chances = {
            (row.cell, row.attack, row.metric, row.seed): row.chance for row in rows if row.chance is not None
        }
        rounds: dict[tuple[str, str, float], int] = {}
        for row in rows:
            address = FederationAddress.parse(row.cell)
            if address and row.metric == SPEED.metric and row.n:
                key = address.data, address.model, address.fraction
                rounds[key] = max(rounds.get(key, 0), row.n)
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

    def at(self, pair: Pair, quantity: Quantity) -> dict[int, float]:
        """The quantity of a method at each seed."""
        return self.by_seed(*self._key(pair, quantity))

    def of(self, pair: Pair, quantity: Quantity) -> Estimate | None:
        """The quantity of a method over its seeds."""
        return self.over_seeds(*self._key(pair, quantity), bounds=(0.0, quantity.most))

    def apart(self, method: str, others: Iterable[Pair], quantity: Quantity) -> dict[Unit, float]:
        """By how much a method is above the one of each pair, at each seed that both have."""
        gains: dict[Unit, float] = {}
        for scenario, other in others:
            apart = differences(*(self.at((scenario, name), quantity) for name in (method, other)))
            gains |= {(scenario.data, scenario.model, seed): gain for seed, gain in apart.items()}
        return gains

    def over_chance(self, pairs: Iterable[Pair], quantity: Quantity) -> dict[Unit, float]:
        """By how much a quantity is above a blind guess for each pair, at each seed."""
        gains = {}
        for scenario, method in pairs:
            key = self._key((scenario, method), quantity)
            for seed, value in self.by_seed(*key).items():
                if (*key, seed) in self._chances:
                    gains[scenario.data, scenario.model, seed] = value - self._chances[*key, seed]
        return gains

    def best(self, scenario: Scenario, methods: Iterable[str], quantity: Quantity) -> list[str]:
        """Those of `methods` that have the quantity, the highest mean over the seeds first."""
        by_seed = {method: self.at((scenario, method), quantity).values() for method in methods}
        means = {method: statistics.fmean(values) for method, values in by_seed.items() if values}
        return sorted(means, key=lambda method: -means[method])

    def curve(self, pair: Pair) -> dict[int, Estimate]:
        """The accuracy of the global model over the seeds, by round, counted from 1."""
        scenario, method = pair
        points = self._curves.get(scenario.cell("table", method), {})
        return {number: mean(values, bounds=(0.0, 1.0)) for number, values in points.items()}

    def _key(self, pair: Pair, quantity: Quantity) -> tuple[str, str | None, str]:
        """Where a quantity lies; a method is in the table or among the ablations."""
        scenario, method = pair
        kinds = ("leaks",) if quantity.attack else ("table", "ablation")
        cells = [scenario.cell(kind, method) for kind in kinds]
        cell = next((cell for cell in cells if cell in self.cells), cells[-1])
        return cell, quantity.attack, quantity.metric


def _labelled(row: Finding) -> Finding:
    """The finding with the name of its attack and its adversary as its attack."""
    if row.attack is None:
        return row
    return dataclasses.replace(row, attack=f"{row.attack.partition('(')[0]}/{row.adversary}")

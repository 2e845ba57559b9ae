"""What the finished cells hold, by setting and row: over seeds, and in pairs of rows that share a seed."""

import dataclasses
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate, mean
from glasshouse.studies import measured
from glasshouse.studies.fed_fsnet.cells import CURVE
from glasshouse.verdicts.claims import Unit


@dataclass(frozen=True)
class Setting:
    """A data set, a network and the fraction of devices a round, as the cells' names have it, and rounds."""

    data: str
    model: str
    fraction: str
    rounds: int

    def __str__(self) -> str:
        return f"{self.data}, {self.model}, f = {self.fraction}, {self.rounds} rounds"

    @property
    def head(self) -> str:
        """What the names of its cells have in common."""
        return f"{self.data}/{self.model}/f-{self.fraction}"

    def unit(self, seed: int) -> Unit:
        """Where a value of this setting belongs in a verdict."""
        return self.data, self.model, seed


@dataclass(frozen=True)
class Quantity:
    """A number of a federation: its name in tables, and where it lies in the findings.

    That of an attack is in the cells of the leaks; `adversary` says with whose access it ran. It is never
    above `most`, nor below zero.
    """

    name: str
    metric: str
    attack: str | None = None
    adversary: str = ""
    most: float = 1.0

    @property
    def label(self) -> str | None:
        """The attack and its adversary, as `Measured` keeps them apart."""
        return f"{self.attack}/{self.adversary}" if self.attack else None


GLOBAL = Quantity("Acc_global", "late-accuracy")
LOCAL = Quantity("Acc_local", "late-local-accuracy")
LAST = {GLOBAL: Quantity("Acc_global", "test-accuracy"), LOCAL: Quantity("Acc_local", "local-accuracy")}
"""The same after the last round alone."""
SPEED = Quantity("mean over all rounds", "mean-accuracy")
WOBBLE = Quantity("standard deviation", "wobble")
JUMP = Quantity("mean change from round to round", "jump")
DOWN = Quantity("to a device", "bytes-down", most=math.inf)
UP = Quantity("from a device", "bytes-up", most=math.inf)
SECONDS = Quantity("core-seconds a round", "seconds-per-round", most=math.inf)

MEMBERSHIP = Quantity("membership AUC (outsider)", "auc", "loss-threshold", "outsider")
LABELS = Quantity("label overlap (curious server)", "label-overlap", "label-counts", "curious server")
SUMMED = Quantity("label overlap of a sum (blind server)", "label-overlap", "label-counts", "blind server")
REPORTED = Quantity(
    "label overlap from reports (curious server)", "label-overlap", "reported-labels", "curious server"
)
MIMICKED = Quantity("membership AUC by distance to mimics (client)", "auc", "mimic-distance", "client")
NEAREST = Quantity(
    "mimics nearest to a member (client)", "nearest-member-share", "mimic-neighbours", "client"
)
ROBUST = Quantity("PGD accuracy (owner)", "robust-accuracy", "pgd", "owner")
LEAKS = (MEMBERSHIP, LABELS, SUMMED, REPORTED, MIMICKED, NEAREST, ROBUST)


class Measured(measured.Measured):
    """Looks findings up by setting, row and seed; attacks go by their names, without options."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        rows = [
            dataclasses.replace(row, attack=f"{row.attack.partition('(')[0]}/{row.adversary}")
            if row.attack
            else row
            for row in findings
        ]
        super().__init__(rows)
        self.federations = len({(row.cell, row.seed) for row in rows if row.metric == "test-accuracy"})
        self.unlearned = sorted({(row.cell, row.seed or 0) for row in rows if _unlearned(row)})
        self._rounds: dict[str, int] = {}
        for row in rows:
            if row.metric.startswith(CURVE):
                head = _head(row.cell)
                self._rounds[head] = max(self._rounds.get(head, 0), int(row.metric.removeprefix(CURVE)))
        self._chances = {
            (row.cell, row.attack, row.metric, row.seed): row.chance for row in rows if row.chance is not None
        }

    def settings(self, kind: str = "table") -> list[Setting]:
        """The settings that have finished cells of a kind, in order."""
        heads = dict.fromkeys(_head(cell) for cell in self.cells if cell.startswith(f"{kind}/"))
        made = []
        for head in heads:
            data, model, fraction = head.split("/")
            made.append(Setting(data, model, fraction.removeprefix("f-"), self._rounds.get(head, 0)))
        return made

    def rows(self, setting: Setting, kind: str = "table") -> list[str]:
        """The finished rows of a setting, in order."""
        return self.under(f"{kind}/{setting.head}")

    def at(self, setting: Setting, row: str, quantity: Quantity) -> dict[int, float]:
        """The quantity of a row at each seed."""
        return self.by_seed(self._cell(setting, row, quantity), quantity.label, quantity.metric)

    def over_seeds(self, setting: Setting, row: str, quantity: Quantity) -> Estimate | None:
        """The quantity of a row over its seeds."""
        values = list(self.at(setting, row, quantity).values())
        if len(values) > 1:
            return mean(values, bounds=(0.0, quantity.most))
        return self.estimate(*self._key(setting, row, quantity))

    def apart(self, setting: Setting, row: str, other: str, quantity: Quantity) -> dict[Unit, float]:
        """By how much a row is above another, at each seed that both have."""
        mine, yours = self.at(setting, row, quantity), self.at(setting, other, quantity)
        return {setting.unit(seed): mine[seed] - yours[seed] for seed in mine if seed in yours}

    def over_chance(self, setting: Setting, row: str, quantity: Quantity) -> dict[Unit, float]:
        """By how much a quantity is above a blind guess, at each seed."""
        key = self._key(setting, row, quantity)
        return {
            setting.unit(seed): value - self._chances[*key, seed]
            for seed, value in self.at(setting, row, quantity).items()
            if (*key, seed) in self._chances
        }

    def best(self, setting: Setting, rows: Iterable[str], quantity: Quantity) -> list[str]:
        """Those of `rows` that have the quantity, the highest mean over the seeds first."""
        found = {row: self.at(setting, row, quantity) for row in rows}
        known = {row: statistics.fmean(own.values()) for row, own in found.items() if own}
        return sorted(known, key=lambda row: -known[row])

    def curve(self, setting: Setting, row: str) -> dict[int, Estimate]:
        """The accuracy of the global model over the seeds, by round, counted from 1."""
        points = {number: Quantity("", f"{CURVE}{number}") for number in range(1, setting.rounds + 1)}
        found = {number: self.over_seeds(setting, row, point) for number, point in points.items()}
        return {number: own for number, own in found.items() if own is not None}

    def _key(self, setting: Setting, row: str, quantity: Quantity) -> tuple[str, str | None, str]:
        return self._cell(setting, row, quantity), quantity.label, quantity.metric

    def _cell(self, setting: Setting, row: str, quantity: Quantity) -> str:
        """The cell that a quantity of a row lies in; a row is in the table or among the ablations."""
        if quantity.attack:
            return f"leaks/{setting.head}/{row}"
        cell = f"table/{setting.head}/{row}"
        return cell if cell in self.cells else f"ablation/{setting.head}/{row}"


def _head(cell: str) -> str:
    """What the names of a setting's cells have in common."""
    return "/".join(cell.split("/")[1:4])


def _unlearned(row: Finding) -> bool:
    """Whether a model is no better than always saying the most frequent class, or its training diverged."""
    if row.metric != "test-accuracy":
        return False
    return row.value is None or (row.low is not None and row.chance is not None and row.low <= row.chance)

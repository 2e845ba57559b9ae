"""What the finished cells hold, as lines: a number at each batch size, seed by seed."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import ClassVar

import numpy as np

from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate
from glasshouse.measures.trends import explained_share, rank_correlation
from glasshouse.studies.address import Address
from glasshouse.studies.batch_robustness.cells import TIME, attack_name
from glasshouse.studies.batch_robustness.printed import BENCHMARK, EPS, SCHEDULES
from glasshouse.studies.measured import Measured, collapsed, sloped

COLOUR = "cifar"
"""How the names of data sets in colour begin."""
SPENT = 0.05
"""Accuracy below which an attack has left nothing to compare."""


@dataclass(frozen=True)
class CentralAddress(Address):
    """A model trained in one place, in the part `kind` of the study."""

    pattern: ClassVar[str] = "{kind}/{data}/{model}/{schedule}/{batch}"
    kind: str
    data: str
    model: str
    schedule: str
    batch: int


@dataclass(frozen=True)
class FederatedAddress(Address):
    """A model trained by FedAvg: `clients` with batches of `batch` each."""

    pattern: ClassVar[str] = "federated/{data}/{model}/{schedule}/{division}/{clients}x{batch}"
    data: str
    model: str
    schedule: str
    division: str
    clients: int
    batch: int

    @property
    def line(self) -> "Line":
        """The central models that it is compared with."""
        return Line("grid", self.data, self.model, self.schedule)

    @property
    def hands(self) -> str:
        """Clients and their batch, in short."""
        return f"{self.clients}x{self.batch}"


@dataclass(frozen=True)
class Line:
    """A line of the figures: the central models that differ in nothing but the batch size."""

    kind: str
    data: str
    model: str
    schedule: str

    @property
    def words(self) -> str:
        """The schedule as the paper calls it."""
        return SCHEDULES[self.schedule].words

    def at(self, batch: int) -> CentralAddress:
        """The model with this batch size."""
        return CentralAddress(self.kind, self.data, self.model, self.schedule, batch)


ModelAddress = CentralAddress | FederatedAddress


@dataclass(frozen=True)
class Quantity:
    """A number of a model: how the tables call it, where it lies in the findings, and its scale.

    `attack` and `limit` (0 for the smaller eps, 1 for the paper's) where it is an accuracy under attack. What
    is `logarithmic` is compared in doublings. A change within `margin` with each doubling leaves it flat, and
    is neither a rise nor a fall.
    """

    name: str
    metric: str
    attack: str | None = None
    limit: int = 1
    logarithmic: bool = False
    margin: float = 0.005

    def spec(self, data: str) -> str | None:
        """The attack as the findings of a data set call it."""
        return attack_name(self.attack, self.eps(data)) if self.attack else None

    def eps(self, data: str) -> float:
        """The limit of the attack."""
        return EPS[3 if data.startswith(COLOUR) else 1][self.limit]


CLEAN = Quantity("test accuracy", "test-accuracy")
FGSM, PGD = (Quantity(f"{name} accuracy", "robust-accuracy", name.lower()) for name in ("FGSM", "PGD"))
WEAK_FGSM, WEAK_PGD = (
    Quantity(f"{name} accuracy, smaller eps", "robust-accuracy", name.lower(), 0) for name in ("FGSM", "PGD")
)
TOP = Quantity("top eigenvalue", "top-eigenvalue", logarithmic=True, margin=0.1)
INPUT = Quantity("top eigenvalue in pixels", "input-eigenvalue", logarithmic=True, margin=0.1)
ROBUST = (FGSM, PGD, WEAK_FGSM, WEAK_PGD)
QUANTITIES = (CLEAN, *ROBUST, TOP, INPUT)


class Models(Measured):
    """Looks findings up by line, batch size and seed.

    Models that have learned nothing are left out and named in `collapsed`: one that always says the same
    class keeps that share of right answers under any attack, and would pass for robust. Every seed is
    measured on the same images.
    """

    same_records = True

    def __init__(self, findings: Iterable[Finding]) -> None:
        rows = list(findings)
        self.count = len({(row.cell, row.seed) for row in rows})
        self.collapsed = collapsed(rows)
        self._run = {row.cell: set[int]() for row in rows}
        for row in rows:
            self._run[row.cell].add(row.seed or 0)
        super().__init__(row for row in rows if (row.cell, row.seed or 0) not in set(self.collapsed))
        self.federated = FederatedAddress.matching(self.cells)
        self._batches: dict[Line, list[int]] = {}
        for at in CentralAddress.matching(self.cells):
            self._batches.setdefault(Line(at.kind, at.data, at.model, at.schedule), []).append(at.batch)

    def lines(self, *kinds: str) -> list[Line]:
        """The lines that have finished cells, in order."""
        return [line for line in self._batches if line.kind in kinds]

    def networks(self, kind: str = "grid") -> list[tuple[str, str]]:
        """Data and network of the finished lines of a kind."""
        return list(dict.fromkeys((line.data, line.model) for line in self.lines(kind)))

    def beside_federations(self) -> list[Line]:
        """The lines of central models that federations are compared with."""
        return list(dict.fromkeys(address.line for address in self.federated))

    def of_network(self, data: str, model: str) -> list[str]:
        """The cells of a network in the grid."""
        lines = [line for line in self.lines("grid") if (line.data, line.model) == (data, model)]
        return [str(line.at(batch)) for line in lines for batch in self.batches(line)]

    def batches(self, line: Line) -> list[int]:
        """The finished batch sizes of a line, rising."""
        return sorted(self._batches.get(line, ()))

    def lost(self, *lines: Line) -> str:
        """Which models of these lines learned nothing, so that no trend and no largest batch is to be had."""
        places = Counter(CentralAddress.parse(cell) for cell, _ in self.collapsed)
        return "; ".join(
            f"{count} of {len(self._run[str(at)])} models with {SCHEDULES[at.schedule].words} and batch "
            f"{at.batch} learned nothing"
            for at, count in places.items()
            if at is not None and Line(at.kind, at.data, at.model, at.schedule) in lines
        )

    def at(self, address: ModelAddress, quantity: Quantity) -> dict[int, float]:
        """The quantity at each seed, in doublings where it is logarithmic."""
        seeds = self.seeds_at(address, quantity)
        return {seed: estimate.value for seed, estimate in seeds.items() if estimate.value is not None}

    def seeds_at(self, address: ModelAddress, quantity: Quantity) -> dict[int, Estimate]:
        """The same with the interval over images."""
        seeds = self.seeds_of(str(address), quantity.spec(address.data), quantity.metric)
        if not quantity.logarithmic:
            return seeds
        return {
            seed: _doublings(one) for seed, one in seeds.items() if one.value is not None and one.value > 0
        }

    def training(self, address: ModelAddress) -> tuple[int, float]:
        """On how many images a model was trained, and for how many epochs."""
        images, steps = (self.measure(str(address), None, name) for name in ("train-accuracy", TIME))
        if images is None or steps is None or not images.n or not steps.n:
            return 0, 0.0
        seeds = len(steps.values)
        return images.n // seeds, steps.n * address.batch / images.n

    def of(self, address: ModelAddress, quantity: Quantity) -> Estimate | None:
        """The quantity over its seeds, on its own scale; one seed has the interval of its images."""
        bounds = (-math.inf, math.inf) if quantity.logarithmic else (0.0, 1.0)
        return self.over_seeds(str(address), quantity.spec(address.data), quantity.metric, bounds)

    def spent(self, line: Line, quantity: Quantity) -> bool:
        """Whether an attack leaves so little at every batch size that nothing can be compared."""
        left = [self.at(line.at(batch), quantity).values() for batch in self.batches(line)]
        return quantity.attack is not None and all(fmean(values) < SPENT for values in left if values)

    def slopes(self, line: Line, quantity: Quantity) -> list[Estimate]:
        """The change with each doubling of the batch size, for each seed that has all of at least 3 sizes."""
        batches = self.batches(line)
        points = {math.log2(batch): self.seeds_at(line.at(batch), quantity) for batch in batches}
        return sloped(points) if len(points) > 2 else []

    def correlation(self, line: Line, quantity: Quantity, other: Quantity | None = None) -> Estimate:
        """The rank correlation with the batch size, or with another quantity, over all sizes and seeds."""
        pairs = []
        for batch in self.batches(line):
            mine = self.at(line.at(batch), quantity)
            yours = self.at(line.at(batch), other) if other else dict.fromkeys(mine, math.log2(batch))
            pairs += [(yours[seed], mine[seed]) for seed in mine if seed in yours]
        return rank_correlation([x for x, _ in pairs], [y for _, y in pairs])


def _doublings(estimate: Estimate) -> Estimate:
    """The logarithm to base 2; without an interval where one reaches zero."""
    assert estimate.value is not None
    value = math.log2(estimate.value)
    if estimate.low is None or estimate.high is None or estimate.low <= 0:
        return Estimate(value, None, None, estimate.n)
    return Estimate(value, math.log2(estimate.low), math.log2(estimate.high), estimate.n)


FEWEST = 10
"""Models below which a network says nothing: a cubic has four coefficients."""


@dataclass(frozen=True)
class Points:
    """The models of one network and seed, each array of shape (models,); time and batch in doublings.

    SGD with momentum m moves, to first order, like gradient descent for the time lr / (1 - m) a step. Models
    differ in this training time and in their batch size: a cubic in the logarithm of either, which is free to
    rise and fall, explains a share of the variance of y.
    """

    time: np.ndarray
    batch: np.ndarray
    y: np.ndarray

    def of_time(self) -> float:
        """The share of the variance of y that a cubic in the time explains."""
        return explained_share(self.time, self.y)

    def of_batch(self) -> float:
        """The share that a cubic in the batch size explains."""
        return explained_share(self.batch, self.y)

    def gain_of_time(self) -> float:
        """How much more of y the time explains than the batch size."""
        return self.of_time() - self.of_batch()


def explained(
    models: Models, quantity: Quantity, says: Callable[[Points], float | None]
) -> dict[tuple[str, str], list[Estimate]]:
    """`says` of each network, seed by seed, where enough models differ in time and batch."""
    found: dict[tuple[str, str], list[Estimate]] = {}
    for network, seed in product(models.networks(), models.seeds):
        points = _gathered(models, network, quantity, seed)
        value = says(points) if points is not None else None
        if points is not None and value is not None:
            found.setdefault(network, []).append(Estimate(value, None, None, len(points.y)))
    return found


def _gathered(models: Models, network: tuple[str, str], quantity: Quantity, seed: int) -> Points | None:
    """The models of a network but the benchmark, whose momentum always comes with a falling rate."""
    rows = set()  # LR and LR/BS are the same where the batch is 64
    for line in models.lines("grid"):
        if (line.data, line.model) != network or line.schedule == BENCHMARK.name:
            continue
        for batch in models.batches(line):
            time = models.by_seed(str(line.at(batch)), None, TIME).get(seed)
            value = models.at(line.at(batch), quantity).get(seed)
            if time is not None and value is not None:
                rows.add((round(math.log2(time), 9), math.log2(batch), value))
    if len(rows) < FEWEST:
        return None
    table = np.array(sorted(rows))
    if any(np.ptp(table[:, column]) == 0 for column in (0, 1, 2)):
        return None
    return Points(*table.T)

"""What is varied at each scale: data, networks, schedules, batch sizes and clients."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.studies.batch_robustness.cells import central_cell, federated_cell
from glasshouse.studies.batch_robustness.claims import verdicts
from glasshouse.studies.batch_robustness.layout import charts, tables
from glasshouse.studies.batch_robustness.measured import CentralAddress, FederatedAddress, Models
from glasshouse.studies.batch_robustness.printed import (
    ADVERSARIAL,
    ALL,
    FIXED,
    MAIN,
    MOMENTUM,
    SCALED,
    Schedule,
)
from glasshouse.studies.batch_robustness.training import Learner
from glasshouse.studies.study import Cell, Presentation, Study
from glasshouse.verdicts.claims import Verdict

PARTITIONS = {"iid": "iid", "shards": "shards(per_client=2)"}


@dataclass(frozen=True)
class Sweep:
    """A network under several schedules and batch sizes; `kind` is its part of the study."""

    kind: str
    learner: Learner
    schedules: tuple[Schedule, ...]
    batches: tuple[int, ...]

    def cells(self) -> list[Cell]:
        """A cell for each model."""
        learner = self.learner
        return [
            Cell(
                str(CentralAddress(self.kind, learner.data, learner.model, schedule.name, batch)),
                partial(central_cell, learner, schedule, batch),
                single=True,
            )
            for schedule in self.schedules
            for batch in self.batches
        ]


@dataclass(frozen=True)
class FederatedSweep:
    """A network trained by FedAvg, by so many `clients` with batches of `batch` each."""

    learner: Learner
    schedules: tuple[Schedule, ...]
    clients: tuple[int, ...]
    batch: int

    def cells(self) -> list[Cell]:
        """A cell for each model."""
        learner, batch = self.learner, self.batch
        return [
            Cell(
                str(FederatedAddress(learner.data, learner.model, schedule.name, division, clients, batch)),
                partial(federated_cell, learner, schedule, partition, clients, batch),
                single=True,
            )
            for schedule in self.schedules
            for division, partition in PARTITIONS.items()
            for clients in self.clients
        ]


def _doubling(first: int, last: int) -> tuple[int, ...]:
    return tuple(first * 2**k for k in range((last // first).bit_length()))


DIGITS = Learner("digits", "stdcnn", train=512, epochs=8, test=600, attacked=200, curved=256, probed=50)
MNIST = Learner("mnist", "stdcnn", train=2048, epochs=24, test=2000, attacked=400, curved=512, probed=100)
FASHION = replace(MNIST, data="fashion-mnist")
LONGER = replace(FASHION, epochs=96)
DENSE = replace(MNIST, model="m1", epochs=10, curved=256, precision="bfloat16")
COLOUR = replace(DENSE, data="cifar10", model="c1", epochs=5, attacked=250, probed=40)
WHOLE = Learner("mnist", "m1", train=55000, epochs=100, test=10000, attacked=10000, curved=5000, probed=1000)
WHOLE_CNN, WHOLE_FASHION = replace(WHOLE, model="stdcnn"), replace(WHOLE, data="fashion-mnist")
WHOLE_COLOUR = replace(WHOLE, data="cifar10", model="c1", train=40000)

LAPTOP = _doubling(32, 1024)
PAPER = _doubling(16, 8192)
SWEEPS: dict[str, tuple[Sweep | FederatedSweep, ...]] = {
    "smoke": (
        Sweep("grid", DIGITS, (*MAIN, MOMENTUM[-1]), (16, 64, 256)),
        Sweep("adversarial", DIGITS, (ADVERSARIAL,), (16, 256)),
        FederatedSweep(DIGITS, (FIXED,), (4, 16), 16),
    ),
    "laptop": (
        Sweep("grid", MNIST, ALL, LAPTOP),
        Sweep("grid", FASHION, MAIN, LAPTOP),
        Sweep("grid", DENSE, ALL, LAPTOP),
        Sweep("grid", replace(DENSE, data="fashion-mnist"), MAIN, LAPTOP),
        Sweep("grid", COLOUR, ALL, LAPTOP),
        Sweep("adversarial", MNIST, (ADVERSARIAL,), (32, 128, 512)),
        Sweep("longer", LONGER, (FIXED, SCALED), (32, 256, 1024)),
        FederatedSweep(FASHION, (FIXED, SCALED), (2, 8, 32), 32),
    ),
    "paper": (
        Sweep("grid", WHOLE, ALL, PAPER),
        Sweep("grid", WHOLE_CNN, ALL, PAPER),
        Sweep("grid", WHOLE_FASHION, MAIN, PAPER),
        Sweep("grid", replace(WHOLE_FASHION, model="stdcnn"), MAIN, PAPER),
        Sweep("grid", WHOLE_COLOUR, ALL, PAPER),
        Sweep("grid", replace(WHOLE_COLOUR, model="resnet18"), ALL, PAPER),
        Sweep("adversarial", WHOLE_CNN, (ADVERSARIAL,), PAPER),
        FederatedSweep(replace(WHOLE_FASHION, model="stdcnn"), (FIXED, SCALED), (2, 8, 32, 128), 64),
    ),
}


class BatchRobustnessStudy(Study):
    """Do batch size, learning rate and momentum decide how robust a model is, and does federation cost it?"""

    name = "batch-robustness"
    title = "Robustness and curvature against batch size, in one place and in many"

    def cells(self, scale: str) -> list[Cell]:
        return [cell for sweep in SWEEPS[scale] for cell in sweep.cells()]

    def conclude(self, findings: Sequence[Finding]) -> list[Verdict]:
        return verdicts(Models(findings))

    def present(self, findings: Sequence[Finding], exhibits: Exhibits) -> Presentation:
        measured = Models(findings)
        return Presentation(tuple(tables(measured)), tuple(charts(measured)))

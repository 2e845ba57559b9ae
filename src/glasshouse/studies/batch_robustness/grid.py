"""What is varied at each scale: data, networks, schedules, batch sizes and clients."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from glasshouse.access import ModelAccess
from glasshouse.attacks import ATTACKS
from glasshouse.exhibits import Exhibits
from glasshouse.findings import Finding
from glasshouse.studies.batch_robustness.cells import at_eps, central_cell, federated_cell
from glasshouse.studies.batch_robustness.claims import verdicts
from glasshouse.studies.batch_robustness.figures import charts
from glasshouse.studies.batch_robustness.layout import tables
from glasshouse.studies.batch_robustness.measured import CentralAddress, FederatedAddress, Models
from glasshouse.studies.batch_robustness.printed import (
    ADVERSARIAL,
    ALL,
    EPS,
    FIXED,
    HEAVY,
    MAIN,
    MOMENTUM,
    SCALED,
    SCALED_HEAVY,
    Schedule,
)
from glasshouse.studies.batch_robustness.training import Learner
from glasshouse.studies.study import Cell, Presentation, Study
from glasshouse.verdicts.claims import Verdict

PARTITIONS = {"iid": "iid", "shards": "shards(per_client=2)"}


def _central(
    kind: str, learner: Learner, schedules: tuple[Schedule, ...], batches: tuple[int, ...]
) -> list[Cell]:
    """A network under several schedules and batch sizes; `kind` is its part of the study."""
    return [
        Cell(
            str(CentralAddress(kind, learner.data, learner.model, schedule.name, batch)),
            partial(central_cell, learner, schedule, batch),
            single=True,
        )
        for schedule in schedules
        for batch in batches
    ]


def _federated(
    learner: Learner, schedules: tuple[Schedule, ...], clients: tuple[int, ...], batch: int
) -> list[Cell]:
    """A network trained by FedAvg, by so many `clients` with batches of `batch` each."""
    return [
        Cell(
            str(FederatedAddress(learner.data, learner.model, schedule.name, division, count, batch)),
            partial(federated_cell, learner, schedule, partition, count, batch),
            single=True,
        )
        for schedule in schedules
        for division, partition in PARTITIONS.items()
        for count in clients
    ]


def _doubling(first: int, last: int) -> tuple[int, ...]:
    return tuple(first * 2**k for k in range((last // first).bit_length()))


DIGITS = Learner("digits", "stdcnn", train=512, epochs=8, test=600, attacked=200, curved=256, probed=50)
MNIST = Learner("mnist", "stdcnn", train=2048, epochs=24, test=2000, attacked=400, curved=512, probed=100)
FASHION = replace(MNIST, data="fashion-mnist")
# Exactly as long as the paper's: what its claims are judged by. The rest of `laptop` is context.
FULL = Learner(
    "mnist",
    "stdcnn",
    55000,
    100,
    test=10000,
    attacked=2000,
    curved=2048,
    probed=200,
    precision="bfloat16",
)
COUNTEREXAMPLE = replace(FULL, data="fashion-mnist")
DENSE = replace(MNIST, model="m1", epochs=10, curved=256, precision="bfloat16")
COLOUR = replace(DENSE, data="cifar10", model="c1", epochs=5, attacked=250, probed=40)
WHOLE = Learner("mnist", "m1", train=55000, epochs=100, test=10000, attacked=10000, curved=5000, probed=1000)
WHOLE_CNN, WHOLE_FASHION = replace(WHOLE, model="stdcnn"), replace(WHOLE, data="fashion-mnist")
WHOLE_COLOUR = replace(WHOLE, data="cifar10", model="c1", train=40000)

LONG = (64, 512, 2048)
LAPTOP = _doubling(32, 1024)
FEWER = (32, 128, 512)
PAPER = _doubling(16, 8192)
CELLS = {
    "smoke": [
        *_central("grid", DIGITS, (*MAIN, HEAVY), (16, 64, 256)),
        *_central("adversarial", DIGITS, (ADVERSARIAL,), (16, 256)),
        *_federated(DIGITS, (FIXED,), (4, 16), 16),
    ],
    "laptop": [
        *_central("full", COUNTEREXAMPLE, (FIXED, SCALED), LONG),
        *_central("full", FULL, (FIXED, SCALED), LONG),
        *_central("full", FULL, (*MOMENTUM, SCALED_HEAVY), (512,)),
        *_central("control", replace(FULL, precision="float32"), (FIXED,), (512,)),
        *_central("grid", MNIST, ALL, LAPTOP),
        *_central("grid", FASHION, MAIN, LAPTOP),
        *_central("grid", DENSE, ALL, FEWER),
        *_central("grid", COLOUR, ALL, FEWER),
        *_central("adversarial", MNIST, (ADVERSARIAL,), FEWER),
        *_federated(FASHION, (FIXED, SCALED), (2, 8, 32), 32),
    ],
    "paper": [
        *_central("grid", WHOLE, ALL, PAPER),
        *_central("grid", WHOLE_CNN, ALL, PAPER),
        *_central("grid", WHOLE_FASHION, MAIN, PAPER),
        *_central("grid", replace(WHOLE_FASHION, model="stdcnn"), MAIN, PAPER),
        *_central("grid", WHOLE_COLOUR, ALL, PAPER),
        *_central("grid", replace(WHOLE_COLOUR, model="resnet18"), ALL, PAPER),
        *_central("adversarial", WHOLE_CNN, (ADVERSARIAL,), PAPER),
        *_federated(replace(WHOLE_FASHION, model="stdcnn"), (FIXED, SCALED), (2, 8, 32, 128), 64),
    ],
}


class BatchRobustnessStudy(Study):
    """Do batch size, learning rate and momentum decide how robust a model is, and does federation cost it?"""

    name = "batch-robustness"
    title = "Robustness and curvature against batch size, in one place and in many"

    takes = "evasion"
    by = ModelAccess

    def check_attack(self, spec: str) -> None:
        """It has to take the limits: `eps`, a tuple."""
        ATTACKS.make(at_eps(spec, EPS[1]))

    def cells(self, scale: str) -> list[Cell]:
        return list(CELLS[scale])

    def seeds(self, scale: str) -> int:
        """Two at `laptop`: its lines in full take hours with them, and have thousands of images."""
        return 2 if scale == "laptop" else super().seeds(scale)

    def conclude(self, findings: Sequence[Finding]) -> list[Verdict]:
        return verdicts(Models(findings))

    def present(self, findings: Sequence[Finding], exhibits: Exhibits) -> Presentation:
        measured = Models(findings)
        return Presentation(tuple(tables(measured)), tuple(charts(measured)))

"""What the paper prints: schedules of learning rate and momentum, the attacks' limits, and its figures."""

from dataclasses import dataclass
from typing import Literal

from glasshouse.learning.recipe import Recipe

LR = 0.01
RATIO = LR / 64
"""The learning rate for each image of a batch where their ratio is kept."""
EPS = {1: (0.05, 0.3), 3: (0.005, 0.02)}
"""The attacks' limits for grey and for colour images; the larger one is the paper's."""


@dataclass(frozen=True)
class Schedule:
    """One line of the figures: a learning rate, fixed or in proportion to the batch, and a momentum.

    With `adversarial` above 0 each batch is moved by up to so much, against the model, before it is learned.
    """

    name: str
    words: str
    scaled: bool = False
    momentum: float = 0.0
    annealing: Literal["constant", "halving"] = "constant"
    adversarial: float = 0.0

    def lr(self, batch: int) -> float:
        """The learning rate for batches of this size."""
        return RATIO * batch if self.scaled else LR

    def recipe(self, batch: int, epochs: int, precision: Literal["float32", "bfloat16"]) -> Recipe:
        """How a model is trained."""
        return Recipe(
            epochs=epochs,
            batch_size=batch,
            lr=self.lr(batch),
            momentum=self.momentum,
            schedule=self.annealing,
            precision=precision,
        )


FIXED = Schedule("lr", "LR")
SCALED = Schedule("lr-bs", "LR/BS", scaled=True)
BENCHMARK = Schedule("benchmark", "Benchmark", momentum=0.9, annealing="halving")
MOMENTUM = tuple(Schedule(f"lr-m{m}", f"LR, m = {m}", momentum=m) for m in (0.2, 0.5, 0.9))
HEAVY = MOMENTUM[-1]
SCALED_HEAVY = Schedule("lr-bs-m0.9", "LR/BS, m = 0.9", scaled=True, momentum=0.9)
ADVERSARIAL = Schedule("adversarial", "adversarial, m = 0.9", momentum=0.9, adversarial=0.1)

MAIN = (FIXED, SCALED, BENCHMARK)
ALL = (*MAIN, *MOMENTUM, SCALED_HEAVY)
SCHEDULES = {schedule.name: schedule for schedule in (*ALL, ADVERSARIAL)}

NETWORKS = {"m1": "M1", "stdcnn": "StdCNN", "c1": "C1", "resnet18": "ResNet18"}
GROUPS = {
    "main": ("by schedule", MAIN),
    "momentum": ("LR, by momentum", (FIXED, *MOMENTUM)),
    "ratio": ("LR/BS, by momentum", (SCALED, SCALED_HEAVY)),
}
"""Which lines a figure compares, and how its title says so."""
FIGURES = {
    ("mnist", "m1", "main"): (1, 2, 3),
    ("mnist", "stdcnn", "main"): (1, 2, 3),
    ("fashion-mnist", "m1", "main"): (4, 4, 5),
    ("cifar10", "c1", "main"): (6, 7, 8),
    ("cifar10", "resnet18", "main"): (6, 7, 8),
    ("fashion-mnist", "stdcnn", "main"): (9, 9, 10),
    ("mnist", "m1", "momentum"): (11, 12, 13),
    ("mnist", "stdcnn", "momentum"): (11, 12, 13),
    ("cifar10", "c1", "momentum"): (14, 15, 16),
    ("cifar10", "resnet18", "momentum"): (14, 15, 16),
    ("mnist", "m1", "ratio"): (17, 18, 19),
    ("mnist", "stdcnn", "ratio"): (17, 18, 19),
    ("cifar10", "c1", "ratio"): (20, 21, 22),
    ("cifar10", "resnet18", "ratio"): (20, 21, 22),
}
"""The numbers of the paper's figures with FGSM, PGD and the top eigenvalue."""


def network_words(model: str) -> str:
    """A network as the paper calls it."""
    return NETWORKS.get(model, model)

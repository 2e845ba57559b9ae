"""The paper's ways to set learning rate and momentum, as functions of the batch size."""

from dataclasses import dataclass
from typing import Literal

from glasshouse.learning.recipe import Recipe

LR = 0.01
TIME = "training-time"
"""The metric that says how far a training went."""
RATIO = LR / 64
"""The learning rate for each image of a batch where their ratio is kept."""


@dataclass(frozen=True)
class Setting:
    """One line of the figures: a learning rate, fixed or in proportion to the batch, and a momentum.

    With `adversarial` above 0 each batch is moved by up to so much, against the model, before it is learned.
    """

    name: str
    scaled: bool = False
    momentum: float = 0.0
    schedule: Literal["constant", "halving"] = "constant"
    adversarial: float = 0.0

    def lr(self, batch: int) -> float:
        """The learning rate for batches of this size."""
        return RATIO * batch if self.scaled else LR

    def recipe(self, batch: int, epochs: int, precision: Literal["float32", "bfloat16"]) -> Recipe:
        """How a model is trained in this setting."""
        return Recipe(
            epochs=epochs,
            batch_size=batch,
            lr=self.lr(batch),
            momentum=self.momentum,
            schedule=self.schedule,
            precision=precision,
        )


def training_time(recipe: Recipe, images: int) -> float:
    """How far a run over so many images goes: the sum of its learning rates, over 1 - momentum."""
    return recipe.summed_rate(images) / (1 - recipe.momentum)


FIXED = Setting("lr")
SCALED = Setting("lr-bs", scaled=True)
BENCHMARK = Setting("benchmark", momentum=0.9, schedule="halving")
MOMENTA = (0.2, 0.5, 0.9)
FIXED_MOMENTUM = tuple(Setting(f"lr-m{momentum}", momentum=momentum) for momentum in MOMENTA)
SCALED_MOMENTUM = Setting("lr-bs-m0.9", scaled=True, momentum=0.9)
ADVERSARIAL = Setting("adversarial", momentum=0.9, adversarial=0.1)

MAIN = (FIXED, SCALED, BENCHMARK)
ALL = (*MAIN, *FIXED_MOMENTUM, SCALED_MOMENTUM)
BY_NAME = {setting.name: setting for setting in (*ALL, ADVERSARIAL)}
WORDS = {
    "lr": "LR",
    "lr-bs": "LR/BS",
    "benchmark": "Benchmark",
    **{f"lr-m{momentum}": f"LR, m = {momentum}" for momentum in MOMENTA},
    "lr-bs-m0.9": "LR/BS, m = 0.9",
    "adversarial": "adversarial, m = 0.9",
}

"""What was measured, image by image, and the attacker by whom a defence is judged."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count

import numpy as np

from glasshouse.measures.estimate import Estimate, mean
from glasshouse.studies.ats.cells import (
    ACCURACY,
    ORIGINAL,
    TRANSFORMED,
    VISIBLE,
    ArmCell,
    after_epoch,
    of_image,
    training_of,
)
from glasshouse.studies.ats.printed import NONE, RANDOM, undefended_accuracy
from glasshouse.studies.ats.victims import knows_defence
from glasshouse.studies.measured import Measured
from glasshouse.verdicts.measure import Measure

STRONGER = "swift-inversion"
"""A search of ours with a larger weight on smooth images, which finds more in fewer steps."""

FAR_ENOUGH = 5
"""A model was trained far enough to be attacked if its accuracy is this many times that of a blind guess."""

LEARNED = 0.95
"""What a defence costs shows once training has come to rest: on a model that has this share of the accuracy
which the papers print. Before, whatever makes images harder only makes training slower."""

ByImage = Mapping[int, float]
Row = tuple[str, str]
"""A data set and a network."""


@dataclass(frozen=True)
class Exposure:
    """By image, the PSNR of an attack to what it seeks, and that of the mean training image, in dB."""

    attack: str
    metric: str
    psnr: ByImage
    blind: ByImage

    @property
    def excess(self) -> dict[int, float]:
        """How far the attack is above the blind guess."""
        return {image: psnr - self.blind[image] for image, psnr in self.psnr.items()}


def rows_of(measured: Measured, group: str) -> dict[Row, list[str]]:
    """The data sets and networks of a group, and the arms that are done of each."""
    rows: dict[Row, list[str]] = {}
    for cell in ArmCell.matching(measured.cells):
        if cell.group == group:
            rows.setdefault((cell.data, cell.model), []).append(cell.arm)
    return rows


def selected(arms: Iterable[str]) -> list[str]:
    """The arms whose policies a search chose."""
    return [arm for arm in arms if arm not in (NONE, RANDOM)]


def by_image(measured: Measured, cell: str, attack: str, metric: str) -> dict[int, float]:
    """A metric of each image."""
    values: dict[int, float] = {}
    for number in count():
        value = measured.value(cell, attack, of_image(metric, number))
        if value is None:
            return values
        values[number] = value
    raise AssertionError("images are finite")


def forms(measured: Measured, cell: str, name: str | None = None) -> list[str]:
    """The attacks of a cell with the options they ran with: those called `name`, or all."""
    specs = measured.attacks(cell, TRANSFORMED)
    return [spec for spec in specs if name is None or spec.partition("(")[0] == name]


def exposed_to(measured: Measured, cell: str, attack: str) -> Exposure:
    """What one attack reached: who knows the defence seeks the original, who does not what became of it.

    Of that only the pixels count that come from the original.
    """
    metric = ORIGINAL if knows_defence(attack) else VISIBLE
    psnr = by_image(measured, cell, attack, metric)
    blind = {
        number: float(row.chance or 0.0)
        for number in psnr
        if (row := measured.measure(cell, attack, of_image(metric, number))) is not None
    }
    return Exposure(attack, metric, psnr, blind)


def exposure(measured: Measured, cell: str, name: str | None = None) -> Exposure | None:
    """Of the attacks called `name`, or of all, the worst for the defender: most above the blind guess."""
    found = [exposed_to(measured, cell, spec) for spec in forms(measured, cell, name)]
    return max(found, key=lambda one: float(np.mean(list(one.excess.values()))), default=None)


def far_enough(measured: Measured, group: str, data: str, model: str) -> bool:
    """Whether the undefended model was trained far enough to say something about defences."""
    training = training_of(ArmCell(group, data, model, NONE))
    reached = measured.measure(str(training), None, ACCURACY)
    return reached is not None and accurate(reached)


def accurate(reached: Measure) -> bool:
    """Whether a test accuracy is surely that of a model which was trained far enough."""
    if reached.low is None or reached.chance is None:
        return False
    return reached.low >= FAR_ENOUGH * reached.chance


def learned_enough(measured: Measured, training: ArmCell) -> bool:
    """Whether a model is accurate enough to show what something costs."""
    reached, known = measured.value(str(training), None, ACCURACY), undefended_accuracy(training.data)
    return reached is not None and known is not None and reached >= LEARNED * known


def less(mine: ByImage, others: ByImage) -> dict[int, float]:
    """By how much some values are above others, image by image."""
    return {image: value - others[image] for image, value in mine.items() if image in others}


def estimated(values: Iterable[float]) -> Estimate | None:
    """The mean and its t interval; none of fewer than 2 values."""
    numbers = list(values)
    return mean(numbers) if len(numbers) > 1 else None


def course(measured: Measured, cell: str, metric: str = ACCURACY) -> list[float]:
    """A metric of a training after each epoch."""
    values: list[float] = []
    while (value := measured.value(cell, None, after_epoch(metric, len(values) + 1))) is not None:
        values.append(value)
    return values

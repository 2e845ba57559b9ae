"""The paper's claims against what was measured, part by part: a quantity on a line, or on a pair of lines.

Models of one data set, network and seed share their images and first weights, and all seeds share the images
that they are measured on. A claim is asked of the data sets whose figures the paper makes it about. Lines
that did not train as the paper's did are barred: 24 epochs over 2,048 images compare trained with untrained
models as soon as the batch is large. So are lines on which a model learned nothing.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import inf

from glasshouse.measures.estimate import Estimate
from glasshouse.studies.batch_robustness.measured import (
    CLEAN,
    FGSM,
    ROBUST,
    SPENT,
    TOP,
    WEAK_FGSM,
    CentralAddress,
    Line,
    Models,
    Quantity,
)
from glasshouse.studies.batch_robustness.own_claims import own_claims
from glasshouse.studies.batch_robustness.printed import HEAVY, SCALED_HEAVY, SCHEDULES, network_words
from glasshouse.studies.measured import apart, sloped
from glasshouse.verdicts.claims import Claim, Part, Region, Verdict, settle

FULL_IMAGES, FULL_EPOCHS = 40_000, 100
"""The fewest training images that the paper has, and its epochs."""
MILD = 0.02
"""A change of accuracy that section 4.2 would not call significant."""
COUNTEREXAMPLE = ("fashion-mnist", "stdcnn")
USUAL = ("mnist", "cifar10")
"""The data sets of Figures 1 to 3, 6 to 8 and 11 to 22; what is said of momentum is said of them."""
EVERY = (*USUAL, "fashion-mnist")
KINDS = ("full", "grid")
TOO_SHORT = (
    f"not trained far enough: the paper trains on {FULL_IMAGES:,} images or more for {FULL_EPOCHS} epochs"
)
NOTHING_LEFT = f"the attack leaves under {SPENT:.0%} at every batch size: nothing to compare"

Regions = Callable[[Quantity], tuple[Region, Region | None]]
"""Where a claim about a quantity is true, and where it is false."""


def verdicts(models: Models) -> list[Verdict]:
    """A verdict on each claim of the paper, then on what the study asks of its own accord."""
    return settle([*paper_claims(models), *own_claims(models)])


def paper_claims(models: Models) -> Iterator[Claim]:
    """In the order of the paper's sections."""
    trend = partial(_trends, models)
    yield Claim(
        "1. At fixed settings a larger batch costs test accuracy and FGSM accuracy",
        trend(("lr", "benchmark"), (CLEAN, FGSM, WEAK_FGSM), _falls, USUAL),
        "section 2, Figures 1 and 6",
    )
    yield Claim(
        "2. At fixed settings a larger batch leaves a higher curvature",
        trend(("lr", "benchmark"), (TOP,), _rises, USUAL),
        "section 2, Figures 3 and 8",
        why={
            "refuted": "The top eigenvalue rises early in training and falls later. At a fixed rate a larger "
            "batch takes fewer steps: it depends on where each run stands on that curve."
        },
    )
    yield Claim(
        "3. StdCNN on Fashion-MNIST at a fixed rate: robustness and curvature rise together with the batch",
        [
            part
            for part in trend(("lr",), (*ROBUST, TOP), _rises)
            if part.where.startswith(_words(*COUNTEREXAMPLE))
        ],
        "section 2.1, Figures 9 and 10",
    )
    yield Claim(
        "4. With the rate in proportion to the batch, accuracy, robustness and curvature hardly vary with it",
        trend(("lr-bs",), (CLEAN, *ROBUST, TOP), _flat),
        "section 3, Figures 1 to 10",
    )
    yield Claim(
        "5. With the rate in proportion to the batch, robustness does not degrade with it",
        trend(("lr-bs",), ROBUST, _not_falling),
        "abstract and section 1",
    )
    yield Claim(
        "6. At the largest batch, a rate in proportion to it ends in a flatter minimum than a fixed rate",
        list(_compared(models, {"lr": "lr-bs"}, (TOP,), _lowers, largest=True)),
        "section 1",
    )
    yield Claim(
        "7. Momentum lowers the curvature, with either rule for the rate",
        list(_compared(models, {"lr": HEAVY.name, "lr-bs": SCALED_HEAVY.name}, (TOP,), _lowers, USUAL)),
        "section 4, Figures 13, 16, 19 and 22",
    )
    yield Claim(
        "8. At a fixed rate accuracy and robustness grow with the momentum: 0, 0.2, 0.5, 0.9",
        list(_ordered(models, (CLEAN, *ROBUST), _rises)),
        "section 4.1, Figures 11, 12, 14 and 15",
    )
    yield Claim(
        "9. At a fixed rate curvature falls with the momentum: 0, 0.2, 0.5, 0.9",
        list(_ordered(models, (TOP,), _falls)),
        "section 4.1, Figures 13 and 16",
    )
    yield Claim(
        "10. With the rate in proportion to the batch, momentum plays no significant role",
        list(_compared(models, {"lr-bs": SCALED_HEAVY.name}, (CLEAN, *ROBUST), _insignificant, USUAL)),
        "section 4.2, Figures 17, 18, 20 and 21",
    )


def _rises(quantity: Quantity) -> tuple[Region, Region | None]:
    return (0.0, inf), (-inf, quantity.margin)


def _falls(quantity: Quantity) -> tuple[Region, Region | None]:
    return (-inf, 0.0), (-quantity.margin, inf)


def _flat(quantity: Quantity) -> tuple[Region, Region | None]:
    return (-quantity.margin, quantity.margin), None


def _not_falling(quantity: Quantity) -> tuple[Region, Region | None]:
    return (-quantity.margin, inf), None


def _lowers(quantity: Quantity) -> tuple[Region, Region | None]:
    return (-inf, 0.0), (-quantity.margin, inf)


def _insignificant(_: Quantity) -> tuple[Region, Region | None]:
    return (-MILD, MILD), None


def _trends(
    models: Models,
    schedules: Sequence[str],
    quantities: Iterable[Quantity],
    regions: Regions,
    data: Sequence[str] = EVERY,
) -> list[Part]:
    """How quantities change along the batch sizes of each line."""
    parts = []
    for line, quantity in product(_lines(models, schedules, data), quantities):
        what = f"change of {_unit(quantity)} with each doubling of the batch"
        addresses = [line.at(batch) for batch in models.batches(line)]
        barred = TOO_SHORT if not _as_printed(models, addresses) else models.lost(line)
        if not barred and models.spent(line, quantity):
            barred = NOTHING_LEFT
        parts.append(_part(line, what, models.slopes(line, quantity), addresses, regions(quantity), barred))
    return parts


def _compared(
    models: Models,
    pairs: dict[str, str],
    quantities: Iterable[Quantity],
    regions: Regions,
    data: Sequence[str] = EVERY,
    *,
    largest: bool = False,
) -> Iterator[Part]:
    """The second schedule of each pair minus the first, at each batch size that both have, or the largest."""
    for line, quantity in product(_lines(models, pairs, data), quantities):
        other = replace(line, schedule=pairs[line.schedule])
        both = [batch for batch in models.batches(line) if batch in models.batches(other)]
        for batch in both[-1:] if largest else both:
            addresses = [other.at(batch), line.at(batch)]
            after, before = (models.seeds_at(address, quantity) for address in addresses)
            what = f"{_unit(quantity)} at batch {batch}, {SCHEDULES[other.schedule].words} minus {line.words}"
            barred = TOO_SHORT if not _as_printed(models, addresses) else ""
            barred = barred or (models.lost(line, other) if largest else "")
            if not barred and models.spent(line, quantity) and models.spent(other, quantity):
                barred = NOTHING_LEFT
            yield _part(line, what, apart(after, before), addresses, regions(quantity), barred)


def _ordered(models: Models, quantities: Iterable[Quantity], regions: Regions) -> Iterator[Part]:
    """How quantities change along the momenta: their slope over the doublings of 1 / (1 - m)."""
    momenta = {
        name: one.momentum for name, one in SCHEDULES.items() if name == "lr" or name.startswith("lr-m")
    }
    for line, quantity in product(_lines(models, ["lr"], USUAL), quantities):
        for batch in models.batches(line):
            addresses = {m: replace(line, schedule=name).at(batch) for name, m in momenta.items()}
            points = {
                -math.log2(1 - m): models.seeds_at(address, quantity) for m, address in addresses.items()
            }
            if not all(points.values()):
                continue
            what = f"change of {_unit(quantity)} at batch {batch} with each doubling of 1 / (1 - m)"
            barred = "" if _as_printed(models, addresses.values()) else TOO_SHORT
            yield _part(line, what, sloped(points), addresses.values(), regions(quantity), barred)


def _part(
    line: Line,
    what: str,
    seeds: Sequence[Estimate],
    addresses: Iterable[CentralAddress],
    regions: tuple[Region, Region | None],
    barred: str,
) -> Part:
    holds, refuted = regions
    where = f"{_words(line.data, line.model)}, {line.words}"
    cells = [str(address) for address in addresses]
    return Part(where, what, seeds, cells, holds, refuted, barred, same_records=True, form="+.4f")


def _lines(models: Models, schedules: Iterable[str], data: Sequence[str]) -> list[Line]:
    """The lines of these schedules on these data sets; those in full first."""
    lines = [line for kind in KINDS for line in models.lines(kind)]
    return [line for line in lines if line.schedule in schedules and line.data in data]


def _as_printed(models: Models, addresses: Iterable[CentralAddress]) -> bool:
    """Whether models were trained on as many images, for as many epochs, as the paper's."""
    return all(
        images >= FULL_IMAGES and epochs >= FULL_EPOCHS for images, epochs in map(models.training, addresses)
    )


def _unit(quantity: Quantity) -> str:
    return f"the {quantity.name}, in doublings," if quantity.logarithmic else quantity.name


def _words(data: str, model: str) -> str:
    return f"{data}, {network_words(model)}"

"""What one cell, or a few of a network and data set, say to a claim.

A part is barred where the attack cannot run, or where the autoencoder alone loses images: who finds the
latent then still has nothing to show, and a low rate says nothing of the attack.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from glasshouse.measures.estimate import Estimate, combined
from glasshouse.studies.measured import Measured, apart, less, sloped
from glasshouse.studies.scale_mia.addresses import AutoencoderCell, Table4Cell
from glasshouse.studies.scale_mia.autoencoders import DECODABLE, DECODED
from glasshouse.studies.scale_mia.cells import ENOUGH, PUBLISHED, RATE
from glasshouse.studies.scale_mia.layout import named
from glasshouse.verdicts.claims import ABOVE, Part, Region
from glasshouse.verdicts.metrics import NOT_RUN
from glasshouse.verdicts.seeds import UNBOUNDED

FAR = 0.95
"""An autoencoder is trained far enough where it brings this share of images that it does not know to 18 dB.

What is missing is missing from every recovery rate, and half of the distance that counts as hardly any.
"""
FULL = 0.9
"""Where the nearest auxiliary image passes for so many samples, no rate can be much above it."""
CANNOT = "cannot run: the second linear layer is the last, and equal rows there pass no gradient"

SHARE = (0.0, 1.0)
DATA = "cifar10"
"""The data set of Tables 3 and 5 to 8."""

BySeed = Mapping[int, Estimate]


def seeds_of(measured: Measured, cell: str, attack: str | None, metric: str = RATE) -> BySeed:
    """What was measured at each seed."""
    return measured.seeds_of(cell, attack, metric)


def above_guess(measured: Measured, cell: str, attack: str) -> list[Estimate]:
    """The recovery rate minus that of the oracle: the nearest auxiliary image, shown without any attack."""
    rate = measured.measure(cell, attack, RATE)
    return less(seeds_of(measured, cell, attack).values(), (rate and rate.chance) or 0.0)


def no_room(measured: Measured, cell: str, attack: str) -> str:
    """Why no rate can be above the oracle's; nothing where one can."""
    rate = measured.measure(cell, attack, RATE)
    chance = (rate and rate.chance) or 0.0
    return f"no room: the nearest auxiliary image passes for {chance:.2f} of all" if chance >= FULL else ""


def part(
    measured: Measured,
    where: str,
    what: str,
    seeds: Sequence[Estimate],
    cells: Sequence[str],
    attack: str = PUBLISHED,
    *,
    holds: Region = ABOVE,
    refuted: Region | None = None,
    barred: str = "",
    bounds: Region = UNBOUNDED,
    form: str = "+.3f",
    unit: str = "",
) -> Part:
    """A part; barred for a reason of its own, or because the attack cannot run in its cells."""
    refused = any(measured.measure(cell, attack, NOT_RUN) is not None for cell in cells)
    return Part(
        where,
        what,
        seeds,
        cells,
        holds=holds,
        refuted=refuted,
        barred=CANNOT if refused else barred,
        groups=_rounds(measured, cells, attack),
        bounds=bounds,
        form=form,
        unit=unit,
    )


def _rounds(measured: Measured, cells: Sequence[str], attack: str) -> int | None:
    """The fewest rounds that a rate's interval is over in these cells; null where it is over samples."""
    rounds = []
    for cell in cells:
        rate, batch = measured.measure(cell, attack, RATE), cell.rpartition("/")[2]
        if rate is not None and rate.n and batch.isdigit():
            rounds.append(rate.n // int(batch))
    return min((count for count in rounds if count >= ENOUGH), default=None)


def untrained(measured: Measured, network: str, data: str, granted: str = "all") -> str:
    """Why nothing can be said of an attack that has this autoencoder; nothing where something can."""
    share = measured.value(str(AutoencoderCell(network, data, granted)), None, DECODABLE)
    if share is None:
        return "the autoencoder's own cell, by which it is seen how far training went, is not done"
    if share >= FAR:
        return ""
    return (
        f"not trained far enough: the autoencoder alone brings {share:.2f} of images that it does not know "
        f"to 18 dB, below {FAR}"
    )


def decoded_psnr(measured: Measured, network: str, data: str) -> float | None:
    """How sharp what an autoencoder makes of images is that it does not know, in dB."""
    return measured.value(str(AutoencoderCell(network, data, "all")), None, DECODED)


def untrained_on_one(measured: Measured, network: str, granted: str = "all") -> str:
    """The same where the data set goes without saying: CIFAR-10, or that of the smallest scale."""
    trained = AutoencoderCell.matching(measured.cells)
    data = [cell.data for cell in trained if (cell.network, cell.granted) == (network, granted)]
    return untrained(measured, network, DATA if DATA in data or not data else data[0], granted)


def row_part(
    measured: Measured,
    cell: Table4Cell,
    what: str,
    seeds: Sequence[Estimate],
    attack: str = PUBLISHED,
    *,
    holds: Region = ABOVE,
    refuted: Region | None = None,
    barred: str = "",
    bounds: Region = UNBOUNDED,
    form: str = "+.3f",
    unit: str = "",
) -> Part:
    """A part that rests on one cell of Table 4, and on its autoencoder."""
    return part(
        measured,
        f"{place(cell.network, cell.data)}, {cell.batch}",
        what,
        seeds,
        [str(cell)],
        attack,
        holds=holds,
        refuted=refuted,
        barred=untrained(measured, cell.network, cell.data) or barred,
        bounds=bounds,
        form=form,
        unit=unit,
    )


def place(network: str, data: str) -> str:
    """A network with its neurons, and its data set."""
    return f"{named(network)}, {data}"


def by_doubling(
    measured: Measured, by_batch: Mapping[int, str], attack: str, metric: str = RATE
) -> list[Estimate]:
    """The change with each doubling of the batch size, at each seed that has all of three or more sizes."""
    points = {
        float(np.log2(batch)): seeds
        for batch, cell in by_batch.items()
        if (seeds := seeds_of(measured, cell, attack, metric))
    }
    return sloped(points) if len(points) > 2 else []


def mean_difference(
    measured: Measured, pairs: Sequence[tuple[str, str]], attack: str, metric: str = RATE
) -> list[Estimate]:
    """How much higher the first cell of a pair is than the second, on average over pairs; by seed."""
    differences = [apart(*(seeds_of(measured, cell, attack, metric) for cell in pair)) for pair in pairs]
    whole = [seeds for seeds in differences if seeds]
    if not whole or len({len(seeds) for seeds in whole}) > 1:
        return []
    return [combined(over, [1 / len(over)] * len(over)) for over in zip(*whole)]

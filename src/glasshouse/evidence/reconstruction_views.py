"""Rebuilt images as the page shows them: pictures beside their originals, and how near they came by step."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from glasshouse.evidence.evidence import ImagePair
from glasshouse.evidence.reconstruction_scores import Samples
from glasshouse.exhibits import LARGEST, CoursePoint
from glasshouse.measures.pictures import (
    GREY,
    RECOVERED,
    Match,
    match,
    mean_guess,
    oracle_guess,
    paired_psnr,
)

if TYPE_CHECKING:
    from glasshouse.evidence.reconstruction import Rebuilt, Snapshot

Tracked = Sequence[tuple["Sequence[Snapshot]", Tensor]]
"""The snapshots of each update that has any, and the originals behind it, shape (N, C, H, W)."""


@dataclass(frozen=True, eq=False)
class _Stage:
    """How far an attack on one update had come: the `psnr` of each sample, shape (N,)."""

    step: int
    seconds: float
    objective: float
    psnr: np.ndarray


def course(tracked: Tracked, auxiliary: Tensor) -> tuple[CoursePoint, ...]:
    """The mean PSNR over all samples of all updates at each step, from the first that all have reached.

    At a step of which an update has no snapshot its latest one stands: an attack that stopped early has
    what it stopped with.
    """
    if not tracked:
        return ()
    ways = [_stages(snapshots, originals) for snapshots, originals in tracked]
    oracle, blind = (
        np.concatenate([paired_psnr(x, guess(x, auxiliary)) for _, x in tracked])
        for guess in (oracle_guess, mean_guess)
    )
    begun = max(way[0].step for way in ways)
    steps = sorted({stage.step for way in ways for stage in way if stage.step >= begun})
    points = []
    for step in steps:
        stages = [max((at for at in way if at.step <= step), key=lambda at: at.step) for way in ways]
        points.append(
            CoursePoint(
                step=step,
                seconds=float(np.mean([at.seconds for at in stages])),
                psnr=float(np.concatenate([at.psnr for at in stages]).mean()),
                objective=_drawable(float(np.mean([at.objective for at in stages]))),
                chance=float(oracle.mean()),
                mean_image=float(blind.mean()),
                updates=len(tracked),
                n=len(oracle),
            )
        )
    return tuple(points)


def _stages(snapshots: "Sequence[Snapshot]", originals: Tensor) -> list[_Stage]:
    """The snapshots of one update, scored, by rising step; of several at one step the last."""
    by_step = {
        at.step: _Stage(
            at.step,
            at.seconds,
            at.objective,
            match(originals, at.x.double().nan_to_num(GREY).clamp(0, 1)).psnr,
        )
        for at in snapshots
    }
    return [by_step[step] for step in sorted(by_step)]


def _drawable(number: float) -> float | None:
    return number if math.isfinite(number) and abs(number) <= LARGEST else None


def shown(parts: "Sequence[Rebuilt]", held: Sequence[Samples], matched: Match) -> Iterator[ImagePair]:
    """The best, those around the median and the worst, of all samples; of several updates it says which."""
    originals = Samples.joined(held).x
    of_part = np.repeat(np.arange(len(parts)), [len(samples) for samples in held])
    for place, rank in ranked(matched.psnr).items():
        success = matched.psnr[place] >= RECOVERED
        note = f"recovered: {RECOVERED:g} dB or more" if success else f"not recovered: below {RECOVERED:g} dB"
        if not matched.returned[place]:
            note = "nothing was returned for it; grey stands in"
        source = _source(parts[of_part[place]]) if len(parts) > 1 else ()
        caption = ", ".join([f"{matched.psnr[place]:.1f} dB", rank, *source])
        yield ImagePair(str(place), originals[place], matched.guess[place], caption, note)


def _source(part: "Rebuilt") -> Iterator[str]:
    """Which update a part comes from: rounds count from 1 and clients from 0, as everywhere on the page."""
    if part.round is not None:
        yield f"round {part.round + 1}"
    yield f"client {part.clients[0]}" if len(part.clients) == 1 else f"sum of {len(part.clients)} clients"


def ranked(psnr: np.ndarray) -> dict[int, str]:
    """The samples to show, best first, each with its rank: up to three best, three median and three worst.

    >>> ranked(np.array([10.0, 40.0, 20.0, 30.0]))
    {1: 'best', 3: 'median', 0: 'worst'}
    """
    order = np.argsort(-psnr, kind="stable").tolist()
    each = max(1, min(3, len(order) // 3))
    middle = (len(order) - each) // 2
    groups = {"best": order[:each], "worst": order[-each:], "median": order[middle : middle + each]}
    chosen: dict[int, str] = {}
    for rank, positions in groups.items():
        chosen = dict.fromkeys(positions, rank) | chosen
    return {position: chosen[position] for position in order if position in chosen}

"""Training images rebuilt."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from glasshouse.errors import CannotRun
from glasshouse.evidence.evidence import Evidence, ImagePair, Judgement, Score, check_clients
from glasshouse.evidence.truth import Question
from glasshouse.evidence.words import Family, Metric
from glasshouse.measures.estimate import Estimate, mean, proportion
from glasshouse.measures.pictures import (
    CAP,
    NEAR_EXACT,
    RECOVERED,
    Match,
    blind_guess,
    match,
    paired_psnr,
    paired_ssim,
)

METRICS = {
    "recovery-rate": Metric(
        "recovery rate",
        "rebuilds {value} training images closely enough to count (18 dB or more)",
        "the most similar image it had before would do for {chance}",
    ),
    "near-exact-rate": Metric(
        "near-exact rate",
        "rebuilds {value} training images almost exactly (30 dB or more)",
        "the most similar image it had before would do for {chance}",
    ),
    "psnr": Metric(
        "PSNR",
        "comes as near to the training images as a mean signal-to-noise ratio of {raw}",
        "the most similar images it had before reach {chance}",
        span=None,
        unit="dB",
    ),
    "ssim": Metric(
        "SSIM",
        "returns images with a mean structural similarity of {raw} to the training images",
        "the most similar images it had before reach {chance}",
        span=None,
        detail=True,
    ),
    "psnr-of-recovered": Metric(
        "PSNR of recovered", "rebuilds those with {raw}", leaks="none", span=None, unit="dB"
    ),
    "psnr-of-returned": Metric("PSNR of returned", "returns {raw}", leaks="none", span=None, unit="dB"),
    "offline-seconds": Metric(
        "preparation", "prepares the attack in {raw}", leaks="none", span=None, unit="s"
    ),
    "online-seconds": Metric(
        "reconstruction", "rebuilds the images in {raw}", leaks="none", span=None, unit="s"
    ),
}

FAMILIES = {
    "reconstruction": Family(
        "Reconstruction", "Can the server rebuild training images?", "recovery-rate", turns_round=False
    ),
}


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The images, shape (K, C, H, W), that an attack had after `step` steps and `seconds`, at `objective`."""

    step: int
    seconds: float
    objective: float
    x: Tensor


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """Images, shape (K, C, H, W) in [0, 1], believed to be among the training data of `clients`.

    There are at most as many as these clients hold together. An attack that reads the images' labels returns
    them, shape (K,); one that improves its images step by step, how far it had come at a few of the steps,
    and the `objective` that it reached. `round` is that of the update they come from.
    """

    x: Tensor
    clients: tuple[int, ...]
    labels: Tensor | None = None
    round: int | None = None
    objective: float | None = None
    snapshots: tuple[Snapshot, ...] = ()
    note: str | None = None


@dataclass(frozen=True, eq=False)
class Reconstructions(Evidence):
    """What was rebuilt, in one part for each update, or sum of updates, that was attacked.

    `offline` are the seconds that went into preparing the attack, once for all rounds; `online` those from
    the updates to the images. `note` says what it took beyond a round with one model, and what kept it from
    more.
    """

    parts: tuple[Rebuilt, ...]
    offline: float
    online: float
    note: str | None = None

    about = "clients"
    metrics = METRICS
    families = FAMILIES

    @property
    def x(self) -> Tensor:
        """The images of all parts, shape (K, C, H, W)."""
        return torch.cat([part.x for part in self.parts])

    def judge(self, question: Question) -> Judgement:
        """Every sample counts, once for each part: where no image was returned for it, grey is judged.

        The blind guess shows, for each sample, the auxiliary image that is nearest to it.
        """
        originals, matched = _matched(self.parts, question)
        blind = blind_guess(originals, question.auxiliary.x)
        blind_psnr, n = paired_psnr(originals, blind), len(originals)
        recovered, exact = matched.psnr >= RECOVERED, matched.psnr >= NEAR_EXACT
        rate = replace(proportion(int(recovered.sum()), n), note=self.note)
        exact_rate = proportion(int(exact.sum()), n)
        likeness, blind_likeness = (paired_ssim(originals, images) for images in (matched.guess, blind))
        scores = (
            Score("recovery-rate", rate, float((blind_psnr >= RECOVERED).mean())),
            Score("near-exact-rate", exact_rate, float((blind_psnr >= NEAR_EXACT).mean())),
            Score("psnr", mean(matched.psnr.tolist(), bounds=(0.0, CAP)), float(blind_psnr.mean())),
            Score("psnr-of-recovered", self._psnr_of_recovered(matched.psnr[recovered])),
            Score("ssim", mean(likeness.tolist(), bounds=(-1.0, 1.0)), float(blind_likeness.mean())),
            Score("offline-seconds", Estimate(float(self.offline), None, None, n)),
            Score("online-seconds", Estimate(float(self.online), None, None, n)),
        )
        shown = question.detailed and any(len(part.x) for part in self.parts)
        return Judgement(scores, pictures=tuple(_shown(originals, matched)) if shown else ())

    @classmethod
    def of_failed_round(cls, reason: str, shape: tuple[int, int, int], clients: int) -> "Reconstructions":
        """No image of anybody."""
        return cls((Rebuilt(torch.empty(0, *shape), tuple(range(clients))),), 0.0, 0.0, reason)

    def _psnr_of_recovered(self, psnr: np.ndarray) -> Estimate:
        """No chance stands beside it: these samples were chosen by the attack's success on them."""
        if len(psnr):
            return mean(psnr.tolist(), bounds=(0.0, CAP))
        reason = f"no image reached {RECOVERED:g} dB"
        return Estimate(None, None, None, 0, f"{reason} ({self.note})" if self.note else reason)


def _matched(parts: Sequence[Rebuilt], question: Question) -> tuple[Tensor, Match]:
    """The samples of each part's clients, one part's after the other's, and what was made of each."""
    if not isinstance(parts, tuple | list) or not parts:
        raise CannotRun("the attack returned no part, not even one without images")
    originals, matches = [], []
    for part in parts:
        if question.truth.clients:
            check_clients(part.clients, len(question.truth.clients))
        originals.append(question.truth.held_by(part.clients).x)
        _check(part.x, originals[-1])
        matches.append(match(originals[-1], part.x))
    joined = Match(
        torch.cat([matched.guess for matched in matches]),
        np.concatenate([matched.psnr for matched in matches]),
        np.concatenate([matched.returned for matched in matches]),
    )
    return torch.cat(originals), joined


def _check(x: Tensor, originals: Tensor) -> None:
    """Refuse what is no image, and more images than samples: one could return thousands and hope."""
    if len(x) > len(originals):
        raise CannotRun(f"the attack returned {len(x)} images for {len(originals)} samples")
    if x.shape[1:] != originals.shape[1:] or not ((x >= 0) & (x <= 1)).all():
        raise CannotRun("the attack returned something other than images of the samples' shape in [0, 1]")


def _shown(originals: Tensor, matched: Match) -> Iterator[ImagePair]:
    """The best, those around the median and the worst, of all samples."""
    for place, rank in ranked(matched.psnr).items():
        success = matched.psnr[place] >= RECOVERED
        note = f"recovered: {RECOVERED:g} dB or more" if success else f"not recovered: below {RECOVERED:g} dB"
        if not matched.returned[place]:
            note = "nothing was returned for it; grey stands in"
        caption = f"{matched.psnr[place]:.1f} dB, {rank}"
        yield ImagePair(str(place), originals[place], matched.guess[place], caption, note)


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

"""The scores of rebuilt images, beside those of an oracle and of blind guesses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from glasshouse.data.images import Images
from glasshouse.evidence.evidence import Score
from glasshouse.measures.estimate import (
    Estimate,
    clustered_mean,
    clustered_proportion,
    proportion,
    weighed_proportion,
    worth,
)
from glasshouse.measures.labels import whole_counts
from glasshouse.measures.pictures import (
    CAP,
    NEAR_EXACT,
    RECOVERED,
    Match,
    mean_guess,
    oracle_guess,
    paired_psnr,
    paired_ssim,
    single_guess,
)

NO_AUXILIARY = "there are no auxiliary images to guess from: grey stands in"

GUESSES = {"mean-image": mean_guess, "single-guess": single_guess}
"""The blind guesses, and how each is made."""


@dataclass(frozen=True, eq=False)
class Samples:
    """The samples that images are judged against, and the `place` of each in the pool, shape (N,).

    A sample behind several attacked updates is there once for each, and intervals take these as one.
    """

    images: Images
    place: np.ndarray

    def __len__(self) -> int:
        return len(self.place)

    @property
    def x(self) -> Tensor:
        """The originals, shape (N, C, H, W)."""
        return self.images.x

    @property
    def different(self) -> bool:
        """Whether no sample is there twice."""
        return len(np.unique(self.place)) == len(self)

    @classmethod
    def joined(cls, parts: Sequence["Samples"]) -> "Samples":
        """Those of all parts, one part's after the other's."""
        x, y = (torch.cat([getattr(part.images, key) for part in parts]) for key in ("x", "y"))
        return cls(replace(parts[0].images, x=x, y=y), np.concatenate([part.place for part in parts]))


def image_scores(
    samples: Samples, matched: Match, auxiliary: Tensor, note: str | None, remark: str | None = None
) -> Iterator[Score]:
    """How near the images come; chance is what the oracle reaches.

    The `note` stands with the first, the `remark`, which is a part of it, with each of the others.
    """
    oracle = oracle_guess(samples.x, auxiliary)
    chance = paired_psnr(samples.x, oracle)
    rate = _noted(_share(matched.psnr >= RECOVERED, samples), note, None if len(auxiliary) else NO_AUXILIARY)
    yield Score("recovery-rate", rate, float((chance >= RECOVERED).mean()))
    exact = _share(matched.psnr >= NEAR_EXACT, samples)
    yield Score("near-exact-rate", _noted(exact, remark), float((chance >= NEAR_EXACT).mean()))
    mean, highest = _mean_psnr(matched.psnr, samples.place), _highest(matched.psnr, samples)
    yield Score("psnr", _noted(mean, remark), float(chance.mean()))
    yield Score("most-exposed-psnr", _noted(highest, remark), float(chance.max()))
    yield Score("psnr-of-recovered", _psnr_of_recovered(matched.psnr, samples.place, note, remark))
    likeness, of_oracle = (paired_ssim(samples.x, images) for images in (matched.guess, oracle))
    similar = clustered_mean(likeness.tolist(), samples.place, bounds=(-1.0, 1.0))
    yield Score("ssim", _noted(similar, remark), float(of_oracle.mean()))


def guess_scores(samples: Samples, auxiliary: Tensor) -> Iterator[Score]:
    """What is reached by those who show the same image for every sample and know none of them."""
    note = None if len(auxiliary) else NO_AUXILIARY
    for name, guess in GUESSES.items():
        psnr = paired_psnr(samples.x, guess(samples.x, auxiliary))
        rate, mean = _share(psnr >= RECOVERED, samples), _mean_psnr(psnr, samples.place)
        yield Score(f"{name}-recovery-rate", replace(rate, note=note))
        yield Score(f"{name}-psnr", replace(mean, note=note))


def label_score(named: Sequence[tuple[Tensor, Samples]], auxiliary: Images) -> Iterator[Score]:
    """The share of the samples whose labels were named, part by part, in whatever order.

    Of n_c samples of class c for which k_c labels were named, min(n_c, k_c) are right. The blind guess names
    the classes as often as they occur among the auxiliary images: for one sample the most frequent.
    """
    if not named:
        return
    right = guessed = 0
    for labels, samples in named:
        held = samples.images.label_counts().numpy()
        counts = torch.bincount(labels, minlength=len(held)).numpy()
        guess = whole_counts(auxiliary.label_counts().numpy(), len(samples))
        right += int(np.minimum(counts, held).sum())
        guessed += int(np.minimum(guess, held).sum())
    whole = Samples.joined([samples for _, samples in named])
    n = len(whole)
    share = proportion(right, n) if whole.different else weighed_proportion(right / n, worth(whole.place))
    yield Score("label-accuracy", share, guessed / n)


def _share(hits: np.ndarray, samples: Samples) -> Estimate:
    if samples.different:
        return proportion(int(hits.sum()), len(hits))
    return clustered_proportion(hits, samples.place)


def _mean_psnr(psnr: np.ndarray, place: np.ndarray) -> Estimate:
    return clustered_mean(psnr.tolist(), place, bounds=(0.0, CAP))


def _highest(psnr: np.ndarray, samples: Samples) -> Estimate:
    n = len(np.unique(samples.place))
    return Estimate(float(psnr.max()), None, None, n, "the maximum of more images would be higher")


def _psnr_of_recovered(psnr: np.ndarray, place: np.ndarray, note: str | None, remark: str | None) -> Estimate:
    """No chance stands beside it: these samples were chosen by the attack's success on them."""
    recovered = psnr >= RECOVERED
    if recovered.any():
        return _noted(_mean_psnr(psnr[recovered], place[recovered]), remark)
    reason = f"no image reached {RECOVERED:g} dB"
    return Estimate(None, None, None, 0, f"{reason} ({note})" if note else reason)


def _noted(estimate: Estimate, *words: str | None) -> Estimate:
    """The estimate with these words before its own note."""
    return replace(estimate, note="; ".join(filter(None, (*words, estimate.note))) or None)

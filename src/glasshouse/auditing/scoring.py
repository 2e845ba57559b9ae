"""Scoring evidence against the truth, which only the auditor knows."""

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
import torch

from glasshouse.attacks.labels.head import whole_counts
from glasshouse.auditing.robustness import noisy_accuracy
from glasshouse.auditing.truth import Truth
from glasshouse.errors import CannotRun
from glasshouse.evidence.evasion import AdversarialExamples
from glasshouse.evidence.labels import LabelCounts
from glasshouse.evidence.membership import MembershipScores
from glasshouse.evidence.nearness import Nearness
from glasshouse.evidence.reconstruction import Reconstructions
from glasshouse.evidence.source import Sources
from glasshouse.learning.ball import lengths
from glasshouse.learning.evaluate import predict
from glasshouse.learning.seeds import numpy_from
from glasshouse.measures.epsilon import epsilon_lower_bound
from glasshouse.measures.estimate import Estimate, clustered_proportion, mean, proportion
from glasshouse.measures.membership import advantage, auc, balanced_accuracy, chance_at_fpr, tpr_at_fpr
from glasshouse.measures.pictures import (
    CAP,
    NEAR_EXACT,
    RECOVERED,
    blind_guess,
    match,
    paired_psnr,
    paired_ssim,
)


@dataclass(frozen=True)
class Score:
    """One metric with the score of a blind guess."""

    metric: str
    estimate: Estimate
    chance: float | None


@singledispatch
def score(evidence: Any, truth: Truth) -> list[Score]:
    """How good the evidence is, in one or more metrics."""
    raise TypeError(f"no way to score {type(evidence).__name__}")


@score.register
def _(evidence: MembershipScores, truth: Truth) -> list[Score]:
    if not np.isfinite(evidence.scores).all():
        raise CannotRun("the model's answers are not finite numbers")
    scores, decisions, member = evidence.scores, evidence.decisions, truth.member
    outside = int((~member).sum())
    made = [
        Score("auc", auc(scores, member), 0.5),
        Score("balanced-accuracy", balanced_accuracy(decisions, member), 0.5),
        Score("advantage", advantage(decisions, member), 0.0),
    ]
    for fpr, shown in ((0.01, "1%"), (0.001, "0.1%"), (0.0001, "0.01%")):
        found = tpr_at_fpr(scores, member, fpr)
        made.append(Score(f"tpr-at-{shown}-fpr", found, chance_at_fpr(outside, fpr)))
    if truth.batches is None:
        made.append(Score("epsilon", _epsilon(scores, truth), 0.0))
    return made


@score.register
def _(evidence: Sources, truth: Truth) -> list[Score]:
    """Only members have a source; the blind guess always names the client that holds most of them."""
    own = truth.holder[truth.member]
    right = evidence.clients[truth.member] == own
    return [
        Score("source-accuracy", proportion(int(right.sum()), len(own)), np.bincount(own).max() / len(own))
    ]


@score.register
def _(evidence: LabelCounts, truth: Truth) -> list[Score]:
    """The blind guess gives every class the same count."""
    held = [truth.client_counts[list(counted.clients)].sum(0) for counted in evidence.counted]
    right = [(counted.counts, own) for counted, own in zip(evidence.counted, held)]
    overlaps = [overlap(counts, own) for counts, own in right]
    guesses = [whole_counts(np.ones(len(own)), int(own.sum())) for own in held]
    shares = [overlap(guess, own) for guess, own in zip(guesses, held)]
    exact = sum(bool((counts == own).all()) for counts, own in right)
    lucky = [bool((guess == own).all()) for guess, own in zip(guesses, held)]
    return [
        Score("label-overlap", mean(overlaps, bounds=(0.0, 1.0)), float(np.mean(shares))),
        Score("exact-counts", proportion(exact, len(right)), float(np.mean(lucky))),
    ]


@score.register
def _(evidence: Nearness, truth: Truth) -> list[Score]:
    """Among as many members as non-members, so that either is nearest to a sample that tells nothing.

    Samples with the same nearest record are one observation: it is a member or not for all of them.
    """
    rng = numpy_from(truth.rng)
    sides = [np.flatnonzero(truth.member), np.flatnonzero(~truth.member)]
    each = min(len(side) for side in sides)
    among = np.sort(np.concatenate([rng.permutation(side)[:each] for side in sides]))
    nearest = among[evidence.distances[:, among].argmin(1)]
    share = clustered_proportion(truth.member[nearest], nearest)
    told = f"{len(nearest)} samples, nearest to {len(np.unique(nearest))} different records of {len(among)}"
    return [Score("nearest-member-share", replace(share, note=told), 0.5)]


@score.register
def _(evidence: AdversarialExamples, truth: Truth) -> list[Score]:
    """At the largest limit; the blind guess is noise of the same size. Signs of masking stand beside it."""
    _check_bounds(evidence, truth.candidates.x)
    clean, attacked = (predict(truth.model, x) for x in (truth.candidates.x, evidence.x[-1]))
    if clean.isnan().any() or attacked.isnan().any():
        raise CannotRun("the model's answers are not finite numbers")
    right, left = (logits.argmax(1) == truth.candidates.y for logits in (clean, attacked))
    robust = replace(_share(left), note="; ".join(evidence.signs) or None)
    chance = noisy_accuracy(truth, evidence.eps[-1], evidence.norm)
    made = [
        Score("robust-accuracy", robust, chance),
        Score("clean-accuracy", _share(right), None),
    ]
    if evidence.hidden is not None:
        made.append(Score("masked-share", _share(evidence.hidden), 0.0))
    return made


@score.register
def _(evidence: Reconstructions, truth: Truth) -> list[Score]:
    """Every sample counts: where no image was returned for it, a uniform grey one is judged.

    The blind guess shows, for each sample, the auxiliary image that is nearest to it.
    """
    assert truth.split is not None
    originals = truth.held_by(evidence.clients).x
    _check_reconstructions(evidence, originals)
    made = match(originals, evidence.x)
    blind = blind_guess(originals, truth.split.images("auxiliary").x)
    guessed, n = paired_psnr(originals, blind), len(originals)
    recovered, exact = made.psnr >= RECOVERED, made.psnr >= NEAR_EXACT
    rate = proportion(int(recovered.sum()), n)
    likeness, blind_likeness = (paired_ssim(originals, images) for images in (made.guess, blind))
    return [
        Score("recovery-rate", replace(rate, note=evidence.note), float((guessed >= RECOVERED).mean())),
        Score("near-exact-rate", proportion(int(exact.sum()), n), float((guessed >= NEAR_EXACT).mean())),
        Score("psnr", mean(made.psnr.tolist(), bounds=(0.0, CAP)), float(guessed.mean())),
        Score("psnr-of-recovered", _psnr_of_recovered(made.psnr[recovered], evidence.note), None),
        Score("ssim", mean(likeness.tolist(), bounds=(-1.0, 1.0)), float(blind_likeness.mean())),
        Score("offline-seconds", Estimate(evidence.offline, None, None, n), None),
        Score("online-seconds", Estimate(evidence.online, None, None, n), None),
    ]


def _check_reconstructions(evidence: Reconstructions, originals: torch.Tensor) -> None:
    """Refuse what is no image, and more images than samples: one could return thousands and hope."""
    if len(evidence.x) > len(originals):
        raise CannotRun(f"the attack returned {len(evidence.x)} images for {len(originals)} samples")
    if evidence.x.shape[1:] != originals.shape[1:] or not ((evidence.x >= 0) & (evidence.x <= 1)).all():
        raise CannotRun("the attack returned something other than images of the samples' shape in [0, 1]")


def _psnr_of_recovered(psnr: np.ndarray, note: str | None) -> Estimate:
    """No chance stands beside it: these samples were chosen by the attack's success on them."""
    if len(psnr):
        return mean(psnr.tolist(), bounds=(0.0, CAP))
    reason = f"not estimable: no image reached {RECOVERED:g} dB"
    return Estimate(None, None, None, 0, f"{reason} ({note})" if note else reason)


def _check_bounds(evidence: AdversarialExamples, x: torch.Tensor) -> None:
    """Refuse examples that no image could be, or that move further than they say."""
    if evidence.x.shape != (len(evidence.eps), *x.shape) or not ((evidence.x >= 0) & (evidence.x <= 1)).all():
        raise CannotRun("the attack returned something other than images of the same shape in [0, 1]")
    for moved, eps in zip(evidence.x - x, evidence.eps):
        one = evidence.norm == "linf"
        furthest = (moved.abs() if one else lengths(moved)).max().item()
        if furthest > eps + 1e-6 * max(eps, 1):
            what = "a pixel" if one else "an image"
            raise CannotRun(f"the attack moved {what} by {furthest:g}, more than its eps = {eps:g}")


def overlap(counts: np.ndarray, held: np.ndarray) -> float:
    """The share of the labels counted right: 1 minus half the L1 distance over their number."""
    return float(1 - np.abs(counts - held).sum() / (2 * held.sum()))


def _epsilon(scores: np.ndarray, truth: Truth) -> Estimate:
    if truth.by_user:
        reason = "not estimable: whole users were drawn as members, not single records"
        return Estimate(None, None, None, len(scores), reason)
    return epsilon_lower_bound(scores, truth.member, numpy_from(truth.rng))


def _share(right: torch.Tensor) -> Estimate:
    return proportion(int(right.sum()), len(right))

"""Membership with few shadow models: variances between LiRA's and RMIA's, after BaVarIA (Brännvall 2026).

A variance for each record, as in LiRA, is a poor estimate from few models; one for all, as RMIA implies, is
wrong for most records. A normal-inverse-gamma prior lies between. The log-odds phi of record i are

    phi | mu_i, s_i^2 ~ N(mu_i, s_i^2),  s_i^2 ~ nu v / chi^2(nu),  mu_i | s_i^2 ~ N(m, s_i^2 / kappa),

and what another model says of it is predicted by a Student t of nu + n degrees of freedom, from n models. The
score is the log-ratio of two such predictions, with the record in training and without it. Nothing is tuned:
nu, v, m and kappa are what the variances and means of all records suggest. Priors by moments, and what the
offline form does for models that saw a record, are choices made here.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from scipy.special import digamma, polygamma

from glasshouse.access import AggregateAccess, QueryAccess, UpdateAccess
from glasshouse.attacks.attack import Knowledge, required
from glasshouse.attacks.membership.readings import as_outsider
from glasshouse.attacks.membership.shadowed import ShadowAttack
from glasshouse.attacks.membership.signals import (
    asked,
    check_enough,
    masked_mean,
    others,
    threshold_from_shadows,
)
from glasshouse.errors import CannotRun
from glasshouse.evidence.membership import MembershipScores
from glasshouse.federation.shadows import Answers, log_odds

ALIKE = 1e4
"""From this many degrees of freedom on all records have one variance."""

SLOPE = 0.1
"""How far from 1 the slope of `Learned` is thought to lie, before anything is known."""

LEAST = 1e-12


@dataclass(frozen=True, kw_only=True)
class BaVarIA(ShadowAttack):
    """Weighs how a model answers that saw a record against one that did not, with variances that are shrunk.

    What training on a record does to its log-odds is learned on auxiliary images, which some shadow models
    saw and others did not. A server asks the last global model that it saw.
    """

    family = "membership"
    needs = (QueryAccess, UpdateAccess, AggregateAccess)
    knows = ("candidates", "shadows")

    def run(
        self, access: QueryAccess | UpdateAccess | AggregateAccess, knowledge: Knowledge, rng: torch.Generator
    ) -> MembershipScores:
        candidates, shadows = required(knowledge.candidates), required(knowledge.shadows)
        known = shadows.auxiliary
        every = np.arange(len(shadows))
        threshold = threshold_from_shadows(
            known, lambda k: offline_scores(known.log_odds[k], known, known, others(k, len(known)))
        )
        observed = log_odds(asked(as_outsider(access), candidates), candidates.y)
        scores = offline_scores(observed, shadows.candidates, known, every)
        return MembershipScores(scores, scores >= threshold)


@dataclass(frozen=True, kw_only=True)
class OnlineBaVarIA(ShadowAttack):
    """As `bavaria`, with shadow models of which half were trained on each record in question."""

    family = "membership"
    needs = (QueryAccess,)
    knows = ("candidates", "online_shadows")

    def run(self, access: QueryAccess, knowledge: Knowledge, rng: torch.Generator) -> MembershipScores:
        candidates, shadows = required(knowledge.candidates), required(knowledge.online_shadows)
        check_enough(len(shadows))  # two with each record, two without
        observed = log_odds(asked(access, candidates), candidates.y)
        scores = online_scores(observed, shadows.candidates.log_odds, shadows.candidates.inside)
        return MembershipScores(scores, scores > 0)


@dataclass(frozen=True)
class Prior:
    """What is expected of a record before any model was asked: `freedom` is nu and `weight` is kappa."""

    freedom: float
    variance: float
    mean: float
    weight: float


@dataclass(frozen=True, eq=False)
class Predicted:
    """A Student t for each record, shape (N,): degrees of freedom, place and scale."""

    freedom: np.ndarray
    place: np.ndarray
    scale: np.ndarray

    def log_density(self, values: np.ndarray) -> np.ndarray:
        """The logarithm of its density at `values`, shape (N,)."""
        density: np.ndarray = stats.t.logpdf(values, self.freedom, self.place, self.scale)
        return density


@dataclass(frozen=True)
class Learned:
    """What training does: the place moves to `shift` + `slope` place, the variance by `stretch`."""

    shift: float
    slope: float
    stretch: float

    def applied(self, outside: Predicted) -> Predicted:
        """The prediction for a model that was trained on the record."""
        place = self.shift + self.slope * outside.place
        return Predicted(outside.freedom, place, outside.scale * np.sqrt(self.stretch))


def offline_scores(observed: np.ndarray, asked_of: Answers, known: Answers, models: np.ndarray) -> np.ndarray:
    """The log-ratio for each record of `asked_of`, shape (N,), from shadow `models` of which none saw it.

    Of records that models did see, only the answers of the others count. NaN where there is none. `known` are
    the answers that teach what a model does to records that it saw.
    """
    phi, outside = known.log_odds[models], ~known.inside[models]
    own, unseen = asked_of.log_odds[models], ~asked_of.inside[models]
    prior = fitted(np.hstack([phi, own]), np.hstack([outside, unseen]))
    learned = learn(phi, ~outside, predicted(phi, outside, prior))
    without = predicted(own, unseen, prior)
    return log_ratio(observed, learned.applied(without), without)


def online_scores(observed: np.ndarray, phi: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The log-ratio for each record, shape (N,), from models inside and outside; `phi` has shape (k, N).

    How far training moves a record is shrunk too, towards the mean over all records; with the move taken out,
    all models say the same of it.
    """
    gained = masked_mean(phi, inside) - masked_mean(phi, ~inside)
    seen, unseen = (_pooled(phi, mask) for mask in (inside, ~inside))
    error = seen / inside.sum(0) + unseen / (~inside).sum(0)
    between = max(float(np.nanvar(gained) - np.nanmean(error)), 0.0)
    usual = float(np.nanmean(gained))
    gain = usual + between / (between + error) * (gained - usual)
    level, every = phi - gain * inside, np.ones_like(inside)
    without = predicted(level, every, fitted(level, every))
    scale = without.scale * np.sqrt(seen / unseen)
    return log_ratio(observed, Predicted(without.freedom, without.place + gain, scale), without)


def _pooled(phi: np.ndarray, mask: np.ndarray) -> float:
    """The variance over the models in the mask, one for all records."""
    squares = (np.where(mask, phi - masked_mean(phi, mask), 0.0) ** 2).sum()
    return max(float(squares / max(1, (mask.sum(0) - 1).clip(0).sum())), LEAST)


def log_ratio(observed: np.ndarray, inside: Predicted, outside: Predicted) -> np.ndarray:
    """The logarithm of how much more likely `observed`, shape (N,), is with the record than without."""
    return np.asarray(inside.log_density(observed) - outside.log_density(observed))


def fitted(phi: np.ndarray, mask: np.ndarray) -> Prior:
    """The prior that the means and variances of all records suggest, over the models in the mask (k, N).

    For variances of d degrees of freedom each, log s_i^2 has the variance trigamma(d/2) + trigamma(nu/2).
    """
    count = mask.sum(0)
    several = count > 1
    if not several.any():
        raise CannotRun("no record has two shadow models that can be compared; set audit.shadows higher")
    mean = masked_mean(phi, mask)[several]
    squares = (np.where(mask[:, several], phi[:, several] - mean, 0.0) ** 2).sum(0)
    free = count[several] - 1
    pooled = max(float(squares.sum() / free.sum()), LEAST)
    logs = np.log(np.maximum(squares / free, LEAST * pooled)) - digamma(free / 2) + np.log(free / 2)
    excess = float(np.var(logs) - polygamma(1, free / 2).mean())
    freedom = min(2 * inverse_trigamma(excess), ALIKE) if excess > 0 else ALIKE
    variance = float(np.exp(logs.mean() + digamma(freedom / 2) - np.log(freedom / 2)))
    between = max(float(mean.var() - (pooled / count[several]).mean()), LEAST)
    return Prior(freedom, variance, float(mean.mean()), variance / between)


def predicted(phi: np.ndarray, mask: np.ndarray, prior: Prior) -> Predicted:
    """What a further model would say of each record, given those in the mask; NaN where there is none."""
    count = mask.sum(0)
    mean = masked_mean(phi, mask)
    squares = (np.where(mask, phi - mean, 0.0) ** 2).sum(0)
    weight = prior.weight + count
    place = (prior.weight * prior.mean + count * mean) / weight
    freedom = prior.freedom + count
    drawn = prior.weight * count / weight * (mean - prior.mean) ** 2
    variance = (prior.freedom * prior.variance + squares + drawn) / freedom
    return Predicted(freedom, place, np.sqrt(variance * (1 + 1 / weight)))


def learn(phi: np.ndarray, inside: np.ndarray, outside: Predicted) -> Learned:
    """What models say of records that they saw, given what is predicted for others: least squares."""
    seen = inside & np.isfinite(outside.place)
    if seen.sum() < 3:
        raise CannotRun("no shadow model saw a record that others did not; set audit.shadows higher")
    place, scale = (np.broadcast_to(value, phi.shape)[seen] for value in (outside.place, outside.scale))
    # Where all records are alike nothing tells the slope; it is then 1, give or take SLOPE.
    middle = float(place.mean())
    design = np.stack([np.append(1 / scale, 0.0), np.append((place - middle) / scale, 1 / SLOPE)], 1)
    gained = np.append((phi[seen] - place) / scale, 0.0)
    (gain, steeper), *_ = np.linalg.lstsq(design, gained, rcond=None)
    left = (gained - design @ (gain, steeper))[:-1]
    # The median of squared deviations bears outliers; that of a t tells how large the scale is.
    usual = stats.t.ppf(0.75, float(np.median(outside.freedom[np.isfinite(outside.place)])))
    stretch = (float(np.median(np.abs(left))) / usual) ** 2
    return Learned(float(gain - steeper * middle), float(1 + steeper), max(stretch, LEAST))


def inverse_trigamma(value: float) -> float:
    """The x > 0 with trigamma(x) = `value`, by Newton's method on its reciprocal, which is nearly linear.

    >>> round(inverse_trigamma(float(polygamma(1, 2.5))), 9)
    2.5
    """
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-12 * x:
            break
    return x

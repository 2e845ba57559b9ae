"""Where to draw the line, learned on shadow models: each in turn plays a target whose members are known."""

from collections.abc import Callable

import numpy as np
from sklearn.metrics import roc_curve

from glasshouse.errors import CannotRun
from glasshouse.federation.shadows import Answers

FEWEST = 4


def best_threshold(scores: np.ndarray, member: np.ndarray) -> float:
    """The threshold with the highest balanced accuracy: members are those with a score of at least it."""
    fpr, tpr, thresholds = roc_curve(member, scores)
    inner = slice(1, None)  # the first threshold accuses nobody
    return float(thresholds[inner][np.argmax((tpr - fpr)[inner])])


def threshold_from_shadows(answers: Answers, score: Callable[[int], np.ndarray]) -> float:
    """The best threshold over all shadows, of which `score(k)` scores all records as if k were the target.

    Scores of records that k cannot be asked about fairly are NaN.
    """
    if len(answers) < FEWEST:
        raise CannotRun(f"{len(answers)} shadow models; set audit.shadows to {FEWEST} or more")
    every = [_known(score(k), answers.inside[k]) for k in range(len(answers))]
    return best_threshold(np.concatenate([s for s, _ in every]), np.concatenate([m for _, m in every]))


def others(k: int, count: int) -> np.ndarray:
    """The numbers of all shadows but `k`."""
    return np.delete(np.arange(count), k)


def _known(scores: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    known = np.isfinite(scores)
    return scores[known], inside[known]


def masked_mean(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The mean over the first axis of the values in the mask; NaN where there is none."""
    count = mask.sum(0)
    total = np.where(mask, values, 0.0).sum(0)
    return np.asarray(np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0))

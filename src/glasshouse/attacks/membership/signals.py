"""What models' answers say of membership, and where to draw the line, which shadow models teach.

For that each shadow model in turn plays a target whose members are known.
"""

from collections.abc import Callable

import numpy as np
from sklearn.metrics import roc_curve
from torch import Tensor

from glasshouse.access import QueryAccess
from glasshouse.data.images import Images
from glasshouse.errors import CannotRun
from glasshouse.federation.shadows import Answers

TINY = 1e-300
FEWEST = 4


def asked(access: QueryAccess, images: Images) -> np.ndarray:
    """The target's log-probabilities for the images, double of shape (N, classes)."""
    probabilities: Tensor = access.probabilities(images.x)
    log_probabilities: np.ndarray = probabilities.double().clamp_min(TINY).log().numpy()
    if not np.isfinite(log_probabilities).all():
        raise CannotRun("the model's answers are not finite numbers")
    return log_probabilities


def losses(log_probabilities: np.ndarray, y: Tensor) -> np.ndarray:
    """The cross-entropy of each record, shape (N,)."""
    return np.asarray(-log_probabilities[np.arange(len(y)), y.numpy()])


def best_threshold(scores: np.ndarray, member: np.ndarray) -> float:
    """The threshold with the highest balanced accuracy: members are those with a score of at least it."""
    fpr, tpr, thresholds = roc_curve(member, scores)
    inner = slice(1, None)  # the first threshold accuses nobody
    return float(thresholds[inner][np.argmax((tpr - fpr)[inner])])


def threshold_from_shadows(answers: Answers, score: Callable[[int], np.ndarray]) -> float:
    """The best threshold over all shadows, of which `score(k)` scores all records as if k were the target.

    Scores of records that k cannot be asked about fairly are NaN.
    """
    check_enough(len(answers))
    scores = np.stack([score(k) for k in range(len(answers))])
    known = np.isfinite(scores)
    return best_threshold(scores[known], answers.inside[known])


def check_enough(shadows: int, fewest: int = FEWEST) -> None:
    """Raise `CannotRun` where so many shadow models are too few."""
    if shadows < fewest:
        raise CannotRun(f"{shadows} shadow models; set audit.shadows to {fewest} or more")


def others(k: int, count: int) -> np.ndarray:
    """The numbers of all shadows but `k`."""
    return np.delete(np.arange(count), k)


def masked_mean(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The mean over the first axis of the values in the mask; NaN where there is none."""
    count = mask.sum(0)
    total = np.where(mask, values, 0.0).sum(0)
    return np.asarray(np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0))

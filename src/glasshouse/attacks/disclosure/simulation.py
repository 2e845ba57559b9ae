"""Clients that an adversary simulates with its own images, to see what they would report to the server."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from glasshouse.access import Protocol
from glasshouse.data.images import Images
from glasshouse.federation.strategies.strategy import Tensors
from glasshouse.learning.layout import write_vector
from glasshouse.measures.labels import whole_counts

MOST_PAIRS = 500
"""Where classes make more pairs than this, clients of two classes are left out."""

SHRINKAGE = 0.1
"""The share of the reports' spread that is taken for independent: many numbers, few clients to learn from."""


@dataclass(frozen=True, eq=False)
class Simulated:
    """What clients with H mixtures of classes, shares of shape (H, classes), report in d numbers.

    `means`, (H, d), are over several clients of each mixture; `spread`, (d, d), is the covariance within a
    mixture, and `doubt`, (H,), what it must be multiplied by for what the adversary does not know: its means
    come from few clients, and these from few images.
    """

    shares: np.ndarray
    means: np.ndarray
    spread: np.ndarray
    doubt: np.ndarray

    def weights(self, report: np.ndarray) -> np.ndarray:
        """How likely each mixture is after a report, shape (d,), which is normal around the mixture's mean.

        Before it, the mixture of all classes, the last, is as likely as all others together.
        """
        apart = report - self.means
        fit = np.einsum("hd,hd->h", apart @ np.linalg.pinv(self.spread, hermitian=True), apart)
        likelihood = -(fit / self.doubt + len(report) * np.log(self.doubt)) / 2
        likelihood[-1] += np.log(max(1, len(self.shares) - 1))
        weights: np.ndarray = softmax(likelihood)
        return weights


def mixtures(counts: np.ndarray) -> np.ndarray:
    """The mixtures to try, (H, classes): each class alone, all pairs of classes, and all as in `counts`.

    Only classes of which `counts`, (classes,), has any.
    """
    known = np.flatnonzero(counts)
    pairs = list(combinations(known, 2))
    groups = [[one] for one in known] + [list(pair) for pair in (pairs if len(pairs) <= MOST_PAIRS else [])]
    shares = np.zeros((len(groups) + 1, len(counts)))
    for row, group in zip(shares, groups):
        row[group] = 1 / len(group)
    shares[-1] = counts / counts.sum()
    return shares


def simulate(
    protocol: Protocol,
    sent: Sequence[Tensor],
    images: Images,
    size: int,
    clients: int,
    rng: np.random.Generator,
) -> Simulated:
    """What `clients` clients of each mixture, with `size` of these images, report of the models `sent`.

    Images are drawn with replacement, so that small sets make clients of any size.
    """
    by_class = [np.flatnonzero(images.y.numpy() == label) for label in range(images.classes)]
    shares = mixtures(np.array([len(positions) for positions in by_class]))
    counts = [whole_counts(row, size) for row in shares for _ in range(clients)]
    holds = [
        np.concatenate([rng.choice(positions, number) for positions, number in zip(by_class, row) if number])
        for row in counts
    ]
    columns = []
    for vector in sent:
        reported = reports_of(protocol, vector, (images[held] for held in holds))
        columns.append(np.stack([as_numbers(report) for report in reported]))
    reports = np.concatenate(columns, axis=1).reshape(len(shares), clients, -1)
    means = reports.mean(1)
    within = (reports - means[:, None]).reshape(len(counts), -1)
    covariance = within.T @ within / (len(counts) - len(shares))
    spread = (1 - SHRINKAGE) * covariance + SHRINKAGE * np.diag(np.diag(covariance))
    behind = np.array([sum(len(by_class[label]) for label in np.flatnonzero(row)) for row in shares])
    return Simulated(shares, means, spread, 1 + 1 / clients + size / behind)


@torch.no_grad()
def reports_of(protocol: Protocol, sent: Tensor, clients: Iterable[Images]) -> list[Tensors]:
    """What clients with these images would report, had they received the model `sent`, shape (P,)."""
    module = deepcopy(protocol.architecture).eval()
    write_vector(module, sent)
    return [protocol.strategy.report(module, images) for images in clients]


def as_numbers(report: Tensors) -> np.ndarray:
    """All numbers of a report in a row, by name."""
    return np.concatenate([report[name].double().flatten().numpy() for name in sorted(report)])

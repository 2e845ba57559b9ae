"""Label counts from what clients report beside their updates, by doing the same with images of one's own."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from glasshouse.access import Protocol, ReportAccess
from glasshouse.attacks.attack import Attack, Knowledge, required
from glasshouse.data.images import Images
from glasshouse.errors import CannotRun
from glasshouse.evidence.labels import CountedLabels, LabelCounts
from glasshouse.federation.strategies.strategy import Tensors
from glasshouse.learning.layout import write_vector
from glasshouse.learning.seeds import numpy_from
from glasshouse.measures.labels import whole_counts
from glasshouse.options import check_whole

REPORTS = 2
"""As many different reports of a client are read: later ones add little, and each must be simulated."""

MOST_PAIRS = 500
"""Where classes make more pairs than this, clients of two classes are left out."""

SHRINKAGE = 0.1
"""The share of the reports' spread that is taken for independent: many numbers, few clients to learn from."""


@dataclass(frozen=True, eq=False)
class FirstReports:
    """What a client of `size` samples reported in its first rounds, and the positions of these rounds."""

    size: int
    rounds: tuple[int, ...]
    reports: tuple[Tensors, ...]


@dataclass(frozen=True, kw_only=True)
class ReportedLabels(Attack):
    """Counts the labels of a client from what it reports to the server beside its updates.

    Counts that are reported are read. For anything else it simulates clients with auxiliary images, `clients`
    of each class, of each pair of classes and of all classes, has them report the same, and averages these
    mixtures by how well they explain the report. Clients that hold several classes in unequal shares are none
    of these, and the answer about them may be worse than a blind guess.
    """

    clients: int = 4
    family = "labels"
    needs = (ReportAccess,)
    knows = ("auxiliary",)

    def __post_init__(self) -> None:
        check_whole("reported-labels", "clients", self.clients, 2)

    def run(self, access: ReportAccess, knowledge: Knowledge, rng: torch.Generator) -> LabelCounts:
        auxiliary, draws = required(knowledge.auxiliary), numpy_from(rng)
        by_client, name = first_reports(access), counting(access, auxiliary)
        if name is not None:
            counts = {client: first.reports[0][name].numpy() for client, first in by_client.items()}
        else:
            counts = self._guessed(access, auxiliary, by_client, draws)
        return LabelCounts(tuple(CountedLabels((client,), labels) for client, labels in counts.items()))

    def _guessed(
        self,
        access: ReportAccess,
        auxiliary: Images,
        by_client: dict[int, FirstReports],
        rng: np.random.Generator,
    ) -> dict[int, np.ndarray]:
        """The counts of each client; clients of one size that reported in the same rounds are alike."""
        simulated: dict[tuple[int, tuple[int, ...]], Simulated] = {}
        counts = {}
        for client, first in by_client.items():
            key = (first.size, first.rounds)
            if key not in simulated:
                sent = [access.rounds[position].sent for position in first.rounds]
                simulated[key] = simulate(access.protocol, sent, auxiliary, first.size, self.clients, rng)
            report = np.concatenate([as_numbers(report) for report in first.reports])
            if not (np.isfinite(report).all() and np.isfinite(simulated[key].means).all()):
                raise CannotRun("what clients report are not finite numbers")
            shares = simulated[key].weights(report) @ simulated[key].shares
            counts[client] = whole_counts(shares, first.size)
        return counts


def first_reports(access: ReportAccess) -> dict[int, FirstReports]:
    """The first reports of each client that differ from each other, by client."""
    by_client: dict[int, FirstReports] = {}
    for position, seen in enumerate(access.rounds):
        for client, report in seen.reports.items():
            first = by_client.get(client, FirstReports(seen.sizes[client], (), ()))
            same = any(np.array_equal(as_numbers(report), as_numbers(known)) for known in first.reports)
            if not same and len(first.reports) < REPORTS:
                rounds, reports = (*first.rounds, position), (*first.reports, report)
                by_client[client] = FirstReports(first.size, rounds, reports)
    return by_client


def counting(access: ReportAccess, images: Images) -> str | None:
    """The name under which clients report their label counts, if they do: tried with `images`."""
    parts = [images, images[: len(images) // 2]]
    reports = reports_of(access.protocol, access.rounds[0].sent, parts)
    for name in reports[0]:
        counts = [part.label_counts().double() for part in parts]
        if all(torch.equal(report[name].double(), count) for report, count in zip(reports, counts)):
            return name
    return None


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
    groups = [[label] for label in known] + [list(pair) for pair in pairs if len(pairs) <= MOST_PAIRS]
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

"""Label counts from what clients report beside their updates, by doing the same with images of one's own."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glasshouse.access import ReportAccess
from glasshouse.attacks.attack import Attack, Knowledge, required
from glasshouse.attacks.disclosure.simulation import Simulated, as_numbers, reports_of, simulate
from glasshouse.data.images import Images
from glasshouse.errors import CannotRun
from glasshouse.evidence.labels import CountedLabels, LabelCounts
from glasshouse.learning.seeds import numpy_from
from glasshouse.measures.labels import whole_counts
from glasshouse.options import check_whole

REPORTS = 2
"""As many different reports of a client are read: later ones add little, and each must be simulated."""


@dataclass(frozen=True, eq=False)
class FirstReports:
    """What a client of `size` samples reported in its first rounds, and the positions of these rounds."""

    size: int
    rounds: tuple[int, ...]
    reports: tuple[dict[str, Tensor], ...]


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
        by_client = first_reports(access)
        name = counting(access, auxiliary)
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
            same = any(np.array_equal(as_numbers(report), as_numbers(one)) for one in first.reports)
            if not same and len(first.reports) < REPORTS:
                rounds, reports = (*first.rounds, position), (*first.reports, dict(report))
                by_client[client] = FirstReports(first.size, rounds, reports)
    return by_client


def counting(access: ReportAccess, images: Images) -> str | None:
    """The name under which clients report their label counts, if they do: tried with `images`."""
    parts = [images, images[: len(images) // 2]]
    reports = reports_of(access.protocol, access.rounds[0].sent, parts)
    for name in reports[0]:
        pairs = [
            (report[name].double(), part.label_counts().double()) for report, part in zip(reports, parts)
        ]
        if all(torch.equal(reported, counts) for reported, counts in pairs):
            return name
    return None

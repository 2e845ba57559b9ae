"""Label counts from what clients tell beside their updates, by doing as they do with images of one's own."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glasshouse.access import ReportAccess
from glasshouse.attacks.attack import Attack, Knowledge
from glasshouse.attacks.disclosure.devices import Simulated, simulate, spelled, tell
from glasshouse.attacks.membership.signals import required
from glasshouse.data.images import Images
from glasshouse.errors import CannotRun
from glasshouse.evidence.labels import CountedLabels, LabelCounts
from glasshouse.learning.seeds import numpy_from
from glasshouse.measures.labels import whole_counts
from glasshouse.options import check_whole

REPORTS = 2
"""As many different reports of a client are read: later ones tell little more, and each must be simulated."""


@dataclass(frozen=True, eq=False)
class Told:
    """What a client of `size` samples told in its first rounds: positions in the rounds, and the reports."""

    size: int
    rounds: tuple[int, ...]
    reports: tuple[dict[str, Tensor], ...]


@dataclass(frozen=True, kw_only=True)
class ReportedLabels(Attack):
    """Counts the labels of a client from what it tells the server beside its updates.

    Counts that are told are read. For anything else it makes up devices from auxiliary images, `devices` of
    each class, of each pair of classes and of all classes, has them tell the same, and averages these
    mixtures by how well they explain the report. Clients that hold several classes in unequal shares are none
    of these, and the answer about them may be worse than a blind guess.
    """

    devices: int = 4
    family = "labels"
    needs = (ReportAccess,)
    knows = ("auxiliary",)

    def __post_init__(self) -> None:
        check_whole("reported-labels", "devices", self.devices, 2)

    def run(self, access: ReportAccess, knowledge: Knowledge, rng: torch.Generator) -> LabelCounts:
        auxiliary, draws = required(knowledge.auxiliary), numpy_from(rng)
        clients = heard(access)
        name = counting(access, auxiliary)
        if name is not None:
            counts = {client: told.reports[0][name].numpy() for client, told in clients.items()}
        else:
            counts = self._guessed(access, auxiliary, clients, draws)
        return LabelCounts(tuple(CountedLabels((client,), own) for client, own in counts.items()))

    def _guessed(
        self, access: ReportAccess, auxiliary: Images, clients: dict[int, Told], rng: np.random.Generator
    ) -> dict[int, np.ndarray]:
        """The counts of each client; clients of one size that were heard in the same rounds are alike."""
        made: dict[tuple[int, tuple[int, ...]], Simulated] = {}
        counts = {}
        for client, told in clients.items():
            key = (told.size, told.rounds)
            if key not in made:
                sent = [access.rounds[position].sent for position in told.rounds]
                made[key] = simulate(access.protocol, sent, auxiliary, told.size, self.devices, rng)
            report = np.concatenate([spelled(own) for own in told.reports])
            if not (np.isfinite(report).all() and np.isfinite(made[key].means).all()):
                raise CannotRun("what clients tell are not finite numbers")
            shares = made[key].weights(report) @ made[key].shares
            counts[client] = whole_counts(shares, told.size)
        return counts


def heard(access: ReportAccess) -> dict[int, Told]:
    """The first reports of each client that differ from each other, by client."""
    found: dict[int, Told] = {}
    for position, seen in enumerate(access.rounds):
        for client, report in seen.reports.items():
            known = found.get(client, Told(seen.sizes[client], (), ()))
            same = any(np.array_equal(spelled(report), spelled(earlier)) for earlier in known.reports)
            if not same and len(known.reports) < REPORTS:
                found[client] = Told(known.size, (*known.rounds, position), (*known.reports, dict(report)))
    return found


def counting(access: ReportAccess, images: Images) -> str | None:
    """The name under which clients tell their label counts, if they do: found by telling of `images`."""
    parts = [images, images[: len(images) // 2]]
    reports = tell(access.protocol, access.rounds[0].sent, parts)
    for name in reports[0]:
        pairs = [
            (report[name].double(), part.label_counts().double()) for report, part in zip(reports, parts)
        ]
        if all(torch.equal(told, counts) for told, counts in pairs):
            return name
    return None

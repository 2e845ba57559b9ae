"""How many images of each class clients hold."""

from dataclasses import dataclass

import numpy as np

from glasshouse.errors import CannotRun
from glasshouse.evidence.evidence import Evidence, Judgement, Score, check_clients, check_numbers
from glasshouse.evidence.truth import Question
from glasshouse.evidence.words import Family, Metric
from glasshouse.measures.estimate import mean, proportion
from glasshouse.measures.labels import overlap, whole_counts

METRICS = {
    "label-overlap": Metric(
        "label overlap",
        "counts {value} of the clients' labels right",
        "guessing all classes equally often would get {chance}",
    ),
    "exact-counts": Metric(
        "exact counts",
        "knows exactly how many images of every class a client holds, for {value} clients",
        "a blind guess would know it for {chance}",
    ),
}

FAMILIES = {
    "labels": Family("Labels", "Which classes do the clients hold, and how many of each?", "label-overlap"),
}


@dataclass(frozen=True, eq=False)
class CountedLabels:
    """How many training samples of each class some clients hold together, shape (classes,)."""

    clients: tuple[int, ...]
    counts: np.ndarray


@dataclass(frozen=True, eq=False)
class LabelCounts(Evidence):
    """Label counts, one for each client or group of clients."""

    counted: tuple[CountedLabels, ...]

    about = "clients"
    metrics = METRICS
    families = FAMILIES

    def judge(self, question: Question) -> Judgement:
        """The blind guess gives every class the same count."""
        if not self.counted:
            raise CannotRun("the attack counted nobody's labels")
        clients, classes = question.truth.label_counts.shape
        for counted in self.counted:
            check_clients(counted.clients, clients)
            check_numbers("label counts", counted.counts, classes)
        counts = [counted.counts for counted in self.counted]
        held = [question.truth.label_counts[list(counted.clients)].sum(0) for counted in self.counted]
        guesses = [whole_counts(np.ones(len(true)), int(true.sum())) for true in held]
        shares, blind_shares = (list(map(overlap, answers, held)) for answers in (counts, guesses))
        exact, blind_exact = (list(map(np.array_equal, answers, held)) for answers in (counts, guesses))
        return Judgement(
            (
                Score("label-overlap", mean(shares, bounds=(0.0, 1.0)), float(np.mean(blind_shares))),
                Score("exact-counts", proportion(sum(exact), len(exact)), float(np.mean(blind_exact))),
            )
        )

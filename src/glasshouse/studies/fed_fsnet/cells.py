"""What is measured of each federation: how well its models do, what travels, what it takes, what leaks."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from scipy import stats

from glasshouse.attacks import ATTACKS
from glasshouse.auditing.examine import examine
from glasshouse.data.split import Split
from glasshouse.evidence.truth import Truth
from glasshouse.exhibits import Exhibits, TrainingPoint
from glasshouse.federation.federation import Diverged
from glasshouse.findings import Finding
from glasshouse.learning.seeds import derive, numpy_rng
from glasshouse.measures.estimate import Estimate, mean, weighed_proportion
from glasshouse.studies.fed_fsnet.measured import ROUNDS_TO, TARGETS
from glasshouse.studies.fed_fsnet.printed import printed
from glasshouse.studies.fed_fsnet.training import Benchmark, Method, TrainedFederation, train
from glasshouse.studies.study import CellResult, Workplace

LATE = 5
"""So many of the last rounds make up a late accuracy."""
ON_OWN = "-own-classes"
"""How the names of accuracies end that are on the classes which each participant holds."""
STEADY = 20
"""Over so many of the last rounds, but no more than half, a curve should have settled."""
ATTACKED = ("loss-threshold", "label-counts", "reported-labels", "mimic-distance", "mimic-neighbours")
EPS = {1: 0.1, 3: 0.02}
"""How far PGD may move a pixel of grey and of colour images."""


def table_cell(benchmark: Benchmark, method: Method, watched: bool, place: Workplace) -> CellResult:
    """How well the models of one federation do, and what it takes."""
    try:
        trained = train(benchmark, method, place, watched=watched)
    except Diverged as error:
        return CellResult([_diverged(benchmark, method, "test-accuracy", error)])
    findings = _utility(benchmark, trained, printed(benchmark.data, method.name, benchmark.fraction)[0])
    curve = [
        TrainingPoint(
            strategy=trained.case.subject.strategy or "",
            round=row.number + 1,
            acc_global=row.acc_global,
            acc_local=row.acc_local,
            down=row.down,
            up=row.up,
        )
        for row in trained.history.rounds
    ]
    return CellResult(findings, Exhibits(training=tuple(curve)))


def leak_cell(benchmark: Benchmark, method: Method, place: Workplace) -> list[Finding]:
    """Every attack on one federation, which is trained first where it is not yet there."""
    try:
        trained = train(benchmark, method, place, watched=True)
    except Diverged as error:
        return [_diverged(benchmark, method, "not-applicable", error)]
    split, (positions, holder) = trained.split, candidates(trained, place.seed)
    test = numpy_rng(place.seed, "attacked").permutation(split.test)[: benchmark.moved]
    truth = Truth(split.pool, split.clients, split.pool[positions], holder, split.pool[test])
    case = replace(trained.case, truth=truth)
    findings = []
    for spec in (*ATTACKED, f"pgd(eps={EPS[split.pool.shape[0]]}, steps=20)"):
        for adversary in ATTACKS.make(spec).needs:
            seed = derive(place.seed, "attack", spec, adversary.adversary)
            findings += examine(case, spec, adversary, seed=seed, detailed=False).findings()
    return findings


def _diverged(benchmark: Benchmark, method: Method, metric: str, error: Diverged) -> Finding:
    nothing = Estimate(None, None, None, 0, f"the training diverged: {error}")
    return benchmark.subject(method).finding("utility", metric, nothing)


def _utility(benchmark: Benchmark, trained: TrainedFederation, paper: float | None) -> list[Finding]:
    """Accuracy after the last round, over the last few and over all; how steady it is; and costs a round.

    A mean over rounds, or over clients, has the interval of a share of the images that all of them are tested
    on: right where the same images stand or fall in all of them, and too wide otherwise. The classes of a
    participant are as many images as its own data are worth in classes (Kish). What the paper's Acc_local was
    measured on is not said, so its number is printed beside none of the three that it can mean. Costs are
    bytes to and from a client, and core-seconds of all clients and the server. A target counts as reached in
    the round in which the mean over the last few rounds is there.
    """
    rounds, curve = trained.history.rounds, trained.acc_global
    late = curve[-min(STEADY, len(curve) // 2) :]
    test = trained.split.images("test").label_counts()
    n, few = int(test.sum()), benchmark.local_test
    utility = partial(trained.case.subject.finding, "utility")
    accuracy = partial(utility, chance=test.max().item() / n)
    held = _classes_of_a_client(trained.split)
    findings = [
        accuracy("test-accuracy", weighed_proportion(curve[-1], n), printed=paper),
        accuracy("late-accuracy", _over_rounds(curve[-LATE:], n)),
    ]
    for metric, values, tested, made in (
        ("local-accuracy", trained.acc_local, few, accuracy),
        (f"local-accuracy{ON_OWN}", trained.acc_local_own, few * held, utility),
        (f"global-accuracy{ON_OWN}", trained.acc_global_own, n * held, utility),
    ):
        findings.append(made(metric, weighed_proportion(values[-1], tested)))
        findings.append(made(f"late-{metric}", _over_rounds(values[-LATE:], tested)))
    findings += [
        utility("rounds", _spreadless(len(rounds), len(rounds))),
        utility("mean-accuracy", _over_rounds(curve, n)),
        utility("wobble", _deviation(late)),
        utility("jump", mean([abs(after - before) for before, after in pairwise(late)], bounds=(0.0, 1.0))),
        *(utility(ROUNDS_TO[target].metric, took) for target, took in _rounds_to_targets(curve)),
        utility("bytes-down", _mean([row.down for row in rounds])),
        utility("bytes-up", _mean([row.up for row in rounds])),
    ]
    if trained.seconds is not None:
        findings.append(utility("seconds-per-round", _spreadless(trained.seconds, len(rounds))))
    return findings


def _rounds_to_targets(curve: Sequence[float]) -> Iterator[tuple[float, Estimate]]:
    """After how many rounds each target was reached, of those that were."""
    smooth = [statistics.fmean(curve[max(0, last - LATE) : last]) for last in range(1, len(curve) + 1)]
    for target in TARGETS:
        took = next((number for number, value in enumerate(smooth, start=1) if value >= target), None)
        if took is not None:
            yield target, _spreadless(took, len(curve))


def _over_rounds(values: Sequence[float], tested: float) -> Estimate:
    """The mean over rounds of accuracies on so many images, the same in every round."""
    return weighed_proportion(statistics.fmean(values), tested)


def _classes_of_a_client(split: Split) -> float:
    """The share of all classes that a client's data are worth, on average (Kish)."""
    counts = [torch.bincount(split.pool.y[torch.from_numpy(client)]).double() for client in split.clients]
    worth = [float(count.sum() ** 2 / count.square().sum()) for count in counts]
    return statistics.fmean(worth) / split.pool.classes


def _mean(values: Sequence[float]) -> Estimate:
    return _spreadless(statistics.fmean(values), len(values))


def _deviation(values: Sequence[float]) -> Estimate:
    """The standard deviation over rounds, with its interval as if these were independent and normal."""
    freedom = len(values) - 1
    deviation = statistics.stdev(values)
    low, high = (deviation * math.sqrt(freedom / stats.chi2.ppf(tail, freedom)) for tail in (0.975, 0.025))
    return Estimate(deviation, low, high, len(values))


def _spreadless(value: float, n: int) -> Estimate:
    """A number whose spread only other seeds show."""
    return Estimate(value, None, None, n)


def candidates(trained: TrainedFederation, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of clients that took part and non-members, as many of each class, in one random order.

    With each comes the number of the client that holds it, or -1. Were classes unequal among them, a model
    that only knows which classes its clients hold would seem to know its members.
    """
    split, rng = trained.split, numpy_rng(seed, "suspects")
    took_part = sorted({client for row in trained.history.rounds for client in row.clients})
    inside = np.concatenate([split.clients[client] for client in took_part])
    holder_of = np.concatenate([np.full(len(split.clients[client]), client) for client in took_part])
    y = split.pool.y.numpy()
    positions, holders = [], []
    for label in range(split.pool.classes):
        members = rng.permutation(np.flatnonzero(y[inside] == label))
        others = rng.permutation(split.nonmembers[y[split.nonmembers] == label])
        fewer = min(len(members), len(others))
        positions += [inside[members[:fewer]], others[:fewer]]
        holders += [holder_of[members[:fewer]], np.full(fewer, -1)]
    order = rng.permutation(sum(map(len, positions)))
    return np.concatenate(positions)[order], np.concatenate(holders)[order]

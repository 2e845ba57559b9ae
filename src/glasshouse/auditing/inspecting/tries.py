"""Rebuilding the images behind one update: closed forms, then a search from several starts.

Without the truth one thing can still be checked: whether the images, passed through the network, give the
gradient that was seen. The mismatch of two gradients is 1 minus their cosine; 0 means that the images explain
the update fully.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.access import UpdateAccess
from glasshouse.attacks.inversion.distances import cosine
from glasshouse.attacks.inversion.target import Matcher
from glasshouse.attacks.inversion.targets import make_target
from glasshouse.attacks.inversion.updates import AttackedUpdate, training_network
from glasshouse.attacks.labels.head import last_linear
from glasshouse.auditing.case import Case
from glasshouse.auditing.examine import Examination, examine
from glasshouse.errors import CannotRun
from glasshouse.evidence.reconstruction import Rebuilt, Reconstructions
from glasshouse.learning.engine import Engine
from glasshouse.learning.seeds import derive, torch_rng
from glasshouse.learning.shared import Shared
from glasshouse.progress import Progress

CLOSED_FORMS = ("linear-leak", "r-gap", "april-analytic", "patch-leak")
"""The attacks that compute images, where they apply."""

RESTARTS = 4
"""As many searches begin, each from another start."""

EXPLAINED = 1e-5
"""Up to this mismatch images explain an update but for its rounding."""

SIMULATED = 16
"""As many local steps are simulated to see what images explain."""


@dataclass(frozen=True, eq=False)
class Try:
    """One attack's attempt; `mismatch` is null where the images are too few to explain the update."""

    examination: Examination
    samples: int
    rebuilt: Rebuilt | None = None
    mismatch: float | None = None

    @property
    def spec(self) -> str:
        """The attack."""
        return self.examination.spec

    @property
    def complete(self) -> bool:
        """Whether there is an image for every sample, and they explain the update."""
        all_there = self.rebuilt is not None and len(self.rebuilt.x) == self.samples
        return all_there and self.mismatch is not None and self.mismatch <= EXPLAINED


@dataclass(frozen=True, eq=False)
class _Job:
    case: Shared
    spec: str
    seed: int


def closed_forms(case: Case, engine: Engine, progress: Progress) -> list[Try]:
    """What each closed form makes of the update, or why it does not apply."""
    seed = case.subject.seed or 0
    return _all_tried(case, [(spec, seed) for spec in CLOSED_FORMS], engine, progress, "closed forms")


def searches(case: Case, labels: str, seconds: float, engine: Engine, progress: Progress) -> list[Try]:
    """What a search finds from each of several starts, all of them together in about so many seconds."""
    each = seconds * min(engine.workers, RESTARTS) / RESTARTS
    spec = f"inverting-gradients(labels='{labels}',seconds={each:g})"
    seeds = [derive(case.subject.seed or 0, "restart", number) for number in range(RESTARTS)]
    return _all_tried(case, [(spec, seed) for seed in seeds], engine, progress, "searches")


def best(tries: Sequence[Try]) -> Try | None:
    """The one whose images explain the update best; without any, one with some images."""
    explained = [one for one in tries if one.mismatch is not None]
    if explained:
        return min(explained, key=lambda one: one.mismatch if one.mismatch is not None else 1.0)
    return next((one for one in tries if one.rebuilt is not None and len(one.rebuilt.x)), None)


def _all_tried(
    case: Case, wanted: Sequence[tuple[str, int]], engine: Engine, progress: Progress, label: str
) -> list[Try]:
    shared = engine.share(case)
    jobs = [_Job(shared, spec, seed) for spec, seed in wanted]
    tried = list(progress.track(engine.map_local(_tried, jobs), label, len(jobs)))
    shared.remove()
    return tried


def _tried(job: _Job) -> Try:
    case: Case = job.case.get()
    examination = examine(case, job.spec, UpdateAccess, seed=job.seed)
    if not isinstance(examination.evidence, Reconstructions):
        return Try(examination, case.sizes[0])
    rebuilt = examination.evidence.parts[0]
    return Try(examination, case.sizes[0], rebuilt, _mismatch(case, rebuilt))


def _mismatch(case: Case, rebuilt: Rebuilt) -> float | None:
    """How far the gradient of the rebuilt images is from the one seen; null where they are not all there."""
    update = attacked(case)
    x = rebuilt.x.float()
    labels = rebuilt.labels
    if labels is None and len(x) == update.samples:
        labels = _labels(update, x)
    if labels is None or len(labels) != len(x) or not len(x):
        return None
    target, _ = make_target(update, labels, len(x), SIMULATED, torch_rng(0))
    matcher = Matcher(target)
    gradient = matcher(x.expand(target.copies, *x.shape), labels)
    ours, seen = ([part.detach().double() for part in parts] for parts in (gradient, matcher.seen))
    return max(0.0, float(cosine(ours, seen, [1.0] * len(ours))))


def attacked(case: Case) -> AttackedUpdate:
    """The update of a case of one round and one client."""
    (seen,) = case.rounds
    return AttackedUpdate(case.protocol, 0, seen.sent, seen.delivery.mean, (0,), case.sizes)


def _labels(update: AttackedUpdate, x: Tensor) -> Tensor | None:
    """The labels of images that are believed to be all of those behind an update, shape (N,).

    The head's weight gradient is  G = (P - Y)^T H / N  with the images' features H, shape (N, d), and
    predictions P: where the features are independent, Y = P - N (G H^+)^T. Null where they are not.
    """
    protocol = update.protocol
    features: list[Tensor] = []
    network = training_network(protocol, update.sent)
    try:
        head = last_linear(protocol)
    except CannotRun:
        return None
    watch = network.get_submodule(head.weight.rpartition(".")[0]).register_forward_hook(
        lambda _, given, __: features.append(given[0])
    )
    with torch.no_grad():
        P = network(x).double().softmax(1)
    watch.remove()
    H = features[0].double()
    G = protocol.layout.named(update.gradient())[head.weight].double()
    if len(H) > H.shape[1]:
        return None
    Y: Tensor = P - len(x) * (G @ torch.linalg.pinv(H)).T
    return Y.argmax(1)

"""Rebuilding the images behind one update: closed forms, then searches from several starts.

Without the truth one thing can still be checked: whether the images, passed through the network, give the
gradient that was seen. Their mismatch is 1 minus the cosine of the two gradients, in the tensor where it is
largest: all tensors together would speak of the last layers alone, whose gradients are often the largest by
far and hardly depend on the images. Tensors that hold nothing but rounding are left out. At 0 the images
explain the update fully; noise is the yardstick.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glasshouse.access import UpdateAccess
from glasshouse.attacks.inversion.effort import affordable_steps
from glasshouse.attacks.inversion.explaining import Explanation
from glasshouse.attacks.inversion.updates import AttackedUpdate, training_network
from glasshouse.attacks.labels.head import last_linear
from glasshouse.auditing.case import Case
from glasshouse.auditing.examine import Examination, examine
from glasshouse.errors import CannotRun
from glasshouse.evidence.reconstruction import Rebuilt, Reconstructions
from glasshouse.learning.engine import Engine
from glasshouse.learning.seeds import derive
from glasshouse.learning.shared import Shared
from glasshouse.progress import Progress

CLOSED_FORMS = ("linear-leak", "spear", "r-gap", "april-analytic", "patch-leak")
"""The attacks that compute images, where they apply."""

SEARCHES = (
    "dlg(most={most},labels='{labels}',seconds={seconds:g})",
    "swift-inversion(most={most},labels='{labels}',steps={steps},restarts=1,seconds={seconds:g})",
)
"""The searches: the first is best through smooth networks, the second through others."""

MOST = 8
"""As many images are searched for at most."""

STARTS = 2
"""As many starts each search has."""

EXPLAINED = 1e-4
"""Up to this mismatch images explain an update but for its rounding: an error of about a hundredth."""

SIMULATED = 16
"""As many local steps are simulated to see what images explain."""


@dataclass(frozen=True, eq=False)
class Try:
    """One attack's attempt; `mismatch` is null where the images are too few to explain the update.

    `of_noise` is the mismatch that noise has with the same labels.
    """

    examination: Examination
    samples: int
    rebuilt: Rebuilt | None = None
    mismatch: float | None = None
    of_noise: float | None = None

    @property
    def spec(self) -> str:
        """The attack."""
        return self.examination.spec

    @property
    def computed(self) -> bool:
        """Whether it is a closed form's."""
        return self.spec.partition("(")[0] in CLOSED_FORMS

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


def closed_forms(case: Case, seconds: float, progress: Progress) -> list[Try]:
    """What each closed form makes of the update, or why it does not apply; here, as most answer at once."""
    here, seed = Shared.inline(case), case.subject.seed or 0
    specs = [f"spear(seconds={seconds:g})" if name == "spear" else name for name in CLOSED_FORMS]
    jobs = [_Job(here, spec, seed) for spec in specs]
    return list(progress.track(map(_tried, jobs), "closed forms", len(jobs)))


def searches(case: Case, labels: str, seconds: float, engine: Engine, progress: Progress) -> list[Try]:
    """What each search finds from each of its starts, all of them together in about so many seconds.

    The clock ends a search; its schedule is that of the steps which the seconds usually pay for.
    """
    count, protocol = STARTS * len(SEARCHES), case.protocol
    each = seconds * min(engine.workers, count) / count
    steps = affordable_steps(protocol.architecture, protocol.shape, min(MOST, *case.sizes), each)
    told = {"most": MOST, "labels": labels, "steps": steps, "seconds": each}
    specs = [spec.format(**told) for spec in SEARCHES]
    seeds = [derive(case.subject.seed or 0, "start", number) for number in range(STARTS)]
    shared = engine.share(case)
    jobs = [_Job(shared, spec, seed) for seed in seeds for spec in specs]
    tried = list(progress.track(engine.map_local(_tried, jobs), "searches", len(jobs)))
    shared.remove()
    return tried


def best(tries: Sequence[Try]) -> Try | None:
    """The one whose images explain the update best; without any, one with some images."""
    explained = [one for one in tries if one.mismatch is not None]
    if explained:
        return min(explained, key=lambda one: one.mismatch if one.mismatch is not None else 1.0)
    return next((one for one in tries if one.rebuilt is not None and len(one.rebuilt.x)), None)


def _tried(job: _Job) -> Try:
    case: Case = job.case.get()
    examination = examine(case, job.spec, UpdateAccess, seed=job.seed)
    if not isinstance(examination.evidence, Reconstructions):
        return Try(examination, case.sizes[0])
    rebuilt, update = examination.evidence.parts[0], attacked(case)
    if rebuilt.labels is None and len(rebuilt.x) == update.samples:
        rebuilt = replace(rebuilt, labels=_labels(update, rebuilt.x))
    return Try(examination, update.samples, rebuilt, *_mismatches(update, rebuilt))


def _mismatches(update: AttackedUpdate, rebuilt: Rebuilt) -> tuple[float | None, float | None]:
    """How far the gradients of the rebuilt images, and of noise, are from the one seen."""
    x, labels = rebuilt.x.float(), rebuilt.labels
    if labels is None or len(labels) != len(x) or not len(x):
        return None, None
    explanation = Explanation(update, labels, len(x), simulate=SIMULATED)
    return explanation.mismatch(x, labels), explanation.mismatch_of_noise(labels)


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

"""Rebuilding the images behind one update: closed forms, then searches from several starts.

Without the truth one thing can still be checked: whether the images, passed through the network, give the
gradient that was seen. Their mismatch is 1 minus the cosine of the two gradients, in the tensor where it is
largest: all tensors together would speak of the last layers alone, whose gradients are often the largest by
far and hardly depend on the images. Tensors that hold nothing but rounding are left out. At 0 the images
explain the update fully; noise is the yardstick.
"""

import math
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

PARTLY = 0.25
"""Up to this share of the mismatch of noise images explain most of an update."""

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
    def images(self) -> int:
        """How many images it returns."""
        return 0 if self.rebuilt is None else len(self.rebuilt.x)

    @property
    def complete(self) -> bool:
        """Whether there is an image for every sample, and they explain the update."""
        return self.images == self.samples and self.mismatch is not None and self.mismatch <= EXPLAINED

    @property
    def proven(self) -> bool:
        """Whether each of its images is proven to be one of those behind the update, all of them or some."""
        return self.rebuilt is not None and self.rebuilt.proven and self.images > 0

    @property
    def likely(self) -> bool:
        """Whether its images explain most of the update."""
        return self.mismatch is not None and self.mismatch <= PARTLY * (self.of_noise or 0.0)

    @property
    def conviction(self) -> tuple[int, float]:
        """How much speaks for its images to somebody who does not know the truth: the more, the higher."""
        unchecked = self.computed and self.images > 0 and self.mismatch is None
        signs = (self.complete, self.proven, self.likely, unchecked, self.images > 0)
        strongest = next((len(signs) - place for place, holds in enumerate(signs) if holds), 0)
        return strongest, -math.inf if self.mismatch is None else -self.mismatch

    @property
    def success(self) -> tuple[float, float] | None:
        """The share of the samples that it recovers, and its mean PSNR; null where nobody knows the truth."""
        value = {score.metric: score.estimate.value or 0.0 for score in self.examination.scores}
        return (value["recovery-rate"], value["psnr"]) if "psnr" in value else None


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
    """The one that got furthest, by the truth where it is known; null where none returns an image.

    Between the starts of one attack the truth does not choose: whoever attacks does not have it.
    """
    by_attack: dict[str, list[Try]] = {}
    for one in tries:
        by_attack.setdefault(one.spec, []).append(one)
    chosen = [one for one in map(most_convincing, by_attack.values()) if one.images]
    if all(one.success is not None for one in chosen):
        return max(chosen, key=lambda one: one.success or (0.0, 0.0), default=None)
    return most_convincing(chosen)


def most_convincing(tries: Sequence[Try]) -> Try:
    """The one that somebody would choose who does not know the truth."""
    return max(tries, key=lambda one: one.conviction)


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

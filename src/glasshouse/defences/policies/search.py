"""The search for a policy (ATS, Gao et al. 2021): draw many, drop those that cost accuracy, rank by privacy.

Of policies drawn at random each different one is scored once. Those that S_acc rejects are dropped first, as
it is the cheaper score; the rest is halved successively on S_pri: all are scored on a few images, the better
third on more of them, and so on. All policies see the same images and the same noise, so that comparisons are
paired.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from torch import nn

from glasshouse.data.dataset import Dataset
from glasshouse.defences.policies.accuracy_score import AccuracyScore, accuracy_score
from glasshouse.defences.policies.candidates import draw_policies
from glasshouse.defences.policies.material import Material, prepare
from glasshouse.defences.policies.policy import Policy, parse_policy
from glasshouse.defences.policies.privacy_score import Precision, image_scores
from glasshouse.errors import BadInput
from glasshouse.learning.engine import Engine
from glasshouse.learning.seeds import derive, torch_rng
from glasshouse.learning.shared import Shared
from glasshouse.measures.estimate import Estimate, mean
from glasshouse.progress import Progress
from glasshouse.runfolder import RunFolder

RUNGS = (9, 3, 1)
"""The share of the images, one in so many, on which policies are scored at each stage of the search."""

FEWEST = 8
"""Images on which a policy is scored at least."""

UNTRANSFORMED = parse_policy("28")
"""A policy that changes nothing."""

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a search looks at: `candidates` policies, of which `keep` are ranked on `images` images."""

    candidates: int = 1500
    keep: int = 10
    images: int = 100
    seed: int = 0
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        for name, least in (("candidates", 2), ("keep", 2), ("images", 2)):
            value = getattr(self, name)
            if value < least:
                raise BadInput(f"{name} = {value} is out of range; it must be at least {least}")
        if self.keep > self.candidates:
            raise BadInput(f"keep = {self.keep} is more than the {self.candidates} candidates; lower it")


@dataclass(frozen=True)
class Ranked:
    """A policy with its scores: S_pri with its interval over images, and S_acc."""

    policy: str
    privacy: Estimate
    accuracy: AccuracyScore


@dataclass(frozen=True)
class Outcome:
    """What a search found: policies, the best first, and the hybrid of the best two.

    `untransformed` are the scores of images as they are. Of `distinct` policies that were drawn so many
    `passed` the `threshold` on S_acc: the scaled one, or that of images as they are where these do not.
    """

    hybrid: Ranked
    ranked: tuple[Ranked, ...]
    untransformed: Ranked
    distinct: int
    passed: int
    threshold: float


def search(
    dataset: Dataset, model: nn.Module, plan: Plan, folder: RunFolder, engine: Engine, progress: Progress
) -> Outcome:
    """Find policies for an untrained `model` and the data that it will be trained on.

    What was scored is kept in `folder`: a search that was stopped goes on with the same numbers.
    """
    policies = draw_policies(plan.candidates, dataset.train.shape, torch_rng(plan.seed, "candidates"))
    material = engine.share(prepare(dataset, model, plan.images, plan.seed, folder, progress))
    stage = _Stage(plan, folder, engine, progress, material)
    accuracy = stage.accuracies([UNTRANSFORMED, *policies])
    # A network that tells even images as they are too little apart must not reject every policy.
    threshold = min(accuracy[UNTRANSFORMED].threshold, accuracy[UNTRANSFORMED].value)
    passing = [policy for policy in policies if accuracy[policy].value >= threshold]
    going_on = passing
    if len(passing) < plan.keep:
        going_on = sorted(policies, key=lambda policy: -accuracy[policy].value)[: plan.keep]
        progress.say(
            f"only {len(passing)} of {len(policies)} policies reach S_acc {threshold:.1f}; the best "
            f"{len(going_on)} by S_acc go on"
        )
    best = _halve(going_on, plan, stage)[: plan.keep]
    if not best:
        raise BadInput(f"candidates = {plan.candidates}: none of them changes these images; draw more")
    hybrid = Policy(tuple(choice for policy in best[:2] for choice in policy.choices))
    shown = [*best, hybrid, UNTRANSFORMED]
    accuracy, privacy = stage.accuracies(shown), stage.privacies(shown, plan.images)
    rank = {
        policy: Ranked(str(policy), mean(privacy[policy], bounds=(-1.0, 1.0)), accuracy[policy])
        for policy in shown
    }
    return Outcome(
        rank[hybrid],
        tuple(rank[policy] for policy in best),
        rank[UNTRANSFORMED],
        len(policies),
        len(passing),
        threshold,
    )


def _halve(policies: Sequence[Policy], plan: Plan, stage: "_Stage") -> list[Policy]:
    """The policies that are left at the end, the best by S_pri first.

    At each stage at least twice as many as are kept go on, if there are so many. Of policies with the very
    same scores, which do the same to these images, the first goes on; so do images as they are.
    """
    left = list(policies)
    for place, share in enumerate(RUNGS):
        images = _images(plan, share)
        entered = [UNTRANSFORMED, *left]
        scores = stage.privacies(entered, images)
        ranked = sorted(left, key=lambda policy: np.mean(scores[policy]))
        different = {scores[policy]: policy for policy in reversed([UNTRANSFORMED, *ranked])}
        left = [policy for policy in ranked if different[scores[policy]] is policy]
        if place < len(RUNGS) - 1:
            left = left[: max(2 * plan.keep, len(entered) * RUNGS[place + 1] // share)]
    return left


def _images(plan: Plan, share: int) -> int:
    """The images of a stage."""
    return min(plan.images, max(FEWEST, plan.images // share))


@dataclass(frozen=True, eq=False)
class _Stage:
    """Scores many policies: those that are not kept yet through the engine."""

    plan: Plan
    folder: RunFolder
    engine: Engine
    progress: Progress
    material: Shared

    def accuracies(self, policies: Iterable[Policy]) -> dict[Policy, AccuracyScore]:
        """S_acc of each policy."""
        jobs = {policy: _Job(str(policy), 0, 0, self.plan, self.material) for policy in policies}
        return self._scored(_accuracy, jobs, "accuracy/{0.policy}", AccuracyScore, "accuracy scores")

    def privacies(self, policies: Iterable[Policy], images: int) -> dict[Policy, tuple[float, ...]]:
        """S_pri of each policy on each of the first `images` images, in the blocks of the stages."""
        ends = sorted({0, *(_images(self.plan, share) for share in RUNGS)})
        scores: dict[Policy, tuple[float, ...]] = dict.fromkeys(policies, ())
        for start, stop in pairwise(end for end in ends if end <= images):
            jobs = {policy: _Job(str(policy), start, stop, self.plan, self.material) for policy in scores}
            label = f"privacy scores of {len(jobs)} policies, images {start + 1} to {stop}"
            name = "privacy/{0.policy}/{0.start}-{0.stop}"
            block = self._scored(_privacy, jobs, name, tuple[float, ...], label)
            scores = {policy: (*before, *block[policy]) for policy, before in scores.items()}
        return scores

    def _scored(
        self,
        score: "Callable[[_Job], Result]",
        jobs: "dict[Policy, _Job]",
        name: str,
        kind: type[Result],
        label: str,
    ) -> dict[Policy, Result]:
        """What `score` gives for each job; it is kept under the job's `name`."""
        names = {policy: name.format(job) for policy, job in jobs.items()}
        done = {
            policy: value for policy in jobs if (value := self.folder.kept(names[policy], kind)) is not None
        }
        missing = [policy for policy in jobs if policy not in done]
        results: Iterable[Result] = self.engine.map(score, [jobs[policy] for policy in missing])
        with self.progress.task(label, len(jobs), done=len(done)) as task:
            for policy, result in zip(missing, results):
                self.folder.keep(names[policy], result)
                done[policy] = result
                task.advance()
        return done


@dataclass(frozen=True, eq=False)
class _Job:
    """A policy to score, S_pri on the images from `start` to `stop`."""

    policy: str
    start: int
    stop: int
    plan: Plan
    material: Shared


def _accuracy(job: _Job) -> AccuracyScore:
    material: Material = job.material.get()
    policy = parse_policy(job.policy)
    return accuracy_score(
        material.untrained, material.batches, policy.apply, seed=derive(job.plan.seed, "accuracy")
    )


def _privacy(job: _Job) -> tuple[float, ...]:
    material: Material = job.material.get()
    scores = image_scores(
        material.semi_trained,
        material.images[job.start : job.stop],
        parse_policy(job.policy).apply,
        seed=derive(job.plan.seed, "privacy"),
        first=job.start,
        precision=job.plan.precision,
    )
    if not np.isfinite(scores).all():
        raise BadInput(
            f"policy {job.policy}: gradients are not finite; the training diverged: try another model"
        )
    return tuple(scores.tolist())

"""Privacy scores of the fifty transformations, and of random policies beside what an attack rebuilds."""

from collections.abc import Sequence

import numpy as np

from glasshouse.defences.policies.candidates import distinct
from glasshouse.defences.policies.policy import Policy, parse_policy
from glasshouse.defences.policies.privacy_score import image_scores
from glasshouse.defences.policies.transformations import LIBRARY
from glasshouse.findings import Finding, Subject
from glasshouse.learning.evaluate import hits
from glasshouse.learning.seeds import derive, numpy_rng
from glasshouse.measures.estimate import LEVEL, Estimate, mean, proportion
from glasshouse.models.shapes import Shape
from glasshouse.studies.ats import printed
from glasshouse.studies.ats.cells import ACCURACY, OVERLAP, SCORE, Task, attack_cell, score_of
from glasshouse.studies.ats.printed import BEST_FIVE, NONE
from glasshouse.studies.ats.training import Learner, Trained, materials_of, trained
from glasshouse.studies.study import Workplace

RESAMPLED = 2000
"""Resamples of the images, for the interval of how many of the best five are found."""


def policy_cell(task: Task, scored: int, place: Workplace) -> list[Finding]:
    """Figure 4: a policy's privacy score, and what an attack rebuilds of images that it transformed."""
    if task.address.arm == NONE:
        return attack_cell(task, place)
    model = trained(task.learner, task.trained_under, place)
    scores = _scores(model, parse_policy(task.address.arm), scored, place.seed)
    score = mean(scores.tolist(), bounds=(-1.0, 1.0))
    return [task.subject.finding("policy", SCORE, score), *attack_cell(task, place)]


def library_cell(learner: Learner, scored: int, place: Workplace) -> list[Finding]:
    """Figure 8: S_pri of each transformation, and how many of the best five are those of the paper."""
    semi = learner.semi_trained
    subject = Subject(source="", defence=None, data=learner.data, model=learner.model, note=semi.note)
    model, test = trained(semi, "none", place), materials_of(learner).test
    indices = distinct_indices(test.shape)
    scores = np.stack([_scores(model, Policy(((index,),)), scored, place.seed) for index in indices])
    right = hits(model.network, test)
    chance = test.label_counts().max().item() / len(test)
    share = proportion(int(right.sum()), len(right))
    overlap = best_five_overlap(scores, indices, numpy_rng(place.seed, "resampled images"))
    by_luck = len(BEST_FIVE) ** 2 / len(indices)
    return [
        subject.finding("utility", ACCURACY, share, chance=chance),
        subject.finding(
            "policy", OVERLAP, overlap, chance=by_luck, printed=printed.OVERLAPS.get(learner.data)
        ),
        *(
            subject.finding("policy", score_of(index), mean(row.tolist(), bounds=(-1.0, 1.0)))
            for index, row in zip(indices, scores)
        ),
    ]


def distinct_indices(shape: Shape) -> list[int]:
    """Of transformations that do the same to images of `shape` the first; of all that do nothing, too."""
    every = [Policy(((index,),)) for index in range(len(LIBRARY))]
    return [policy.choices[0][0] for policy in distinct(every, shape)]


def best_five_overlap(scores: np.ndarray, indices: Sequence[int], rng: np.random.Generator) -> Estimate:
    """How many of the paper's best five are among the five lowest, scores of shape (indices, images).

    The interval is the bootstrap's, over images.
    """

    def overlap(means: np.ndarray) -> int:
        lowest = np.argsort(means, kind="stable")[: len(BEST_FIVE)]
        return len({indices[place] for place in lowest} & set(BEST_FIVE))

    images = scores.shape[1]
    drawn = rng.integers(images, size=(RESAMPLED, images))
    resampled = [overlap(scores[:, sample].mean(1)) for sample in drawn]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail], method="closest_observation")
    return Estimate(overlap(scores.mean(1)), float(low), float(high), images)


def _scores(model: Trained, policy: Policy, scored: int, seed: int) -> np.ndarray:
    """S_pri on each of some test images; the same images and noise for all policies."""
    images = materials_of(model.learner).test[:scored]
    return image_scores(model.network, images, policy.apply, seed=derive(seed, "privacy"))

"""Images changed so that the model gets them wrong."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.errors import CannotRun, quoted
from glasshouse.evidence.evidence import Evidence, ImagePair, Judgement, Score
from glasshouse.evidence.truth import Question
from glasshouse.evidence.words import Family, Metric
from glasshouse.exhibits import Exhibits, Records, Robustness
from glasshouse.learning.ball import Ball, Norm, rim
from glasshouse.learning.evaluate import predict
from glasshouse.learning.seeds import torch_rng
from glasshouse.measures.comparing import share_difference
from glasshouse.measures.estimate import Estimate, proportion
from glasshouse.options import check_choice, check_number

SHOWN = 8
"""As many fooled images are shown."""

Outcomes = Mapping[float, np.ndarray]
"""For each eps, 0 for no attack, which candidates the model gets right, bool of shape (N,)."""


METRICS = {
    "robust-accuracy": Metric(
        "robust accuracy",
        "changes test images within a set limit, and the model then gets {value} right",
        "random noise of the same size leaves {chance}",
        leaks="low",
    ),
    "clean-accuracy": Metric("clean accuracy", "leaves {value} right without an attack", leaks="none"),
    "robust-accuracy-over-central": Metric(
        "robust accuracy over central",
        "leaves a share of the images right that differs from the central model's by {raw}",
        leaks="none",
        span=None,
    ),
    "clean-accuracy-over-central": Metric(
        "clean accuracy over central",
        "attacks a model whose share right differs from the central model's by {raw}",
        leaks="none",
        span=None,
        detail=True,
    ),
    "masked-share": Metric(
        "fell only without gradients",
        "needs no gradient to fool the model on {value} images on which attacks with gradients failed",
        leaks="none",
    ),
}

FAMILIES = {
    "evasion": Family(
        "Evasion",
        "Can changed images fool the model?",
        "robust-accuracy",
        "can be fooled",
        "nothing shown",
    ),
}


@dataclass(frozen=True, eq=False)
class AdversarialExamples(Evidence):
    """Perturbed candidates for each of E limits `eps`, ascending: `x` has shape (E, N, C, H, W).

    They lie within their limit of the originals: in every pixel where `norm` is "linf", over all pixels
    together where it is "l2". `signs` say, in words, why the model may hide its gradients rather than be
    robust; `hidden`, shape (N,), marks the images that fell only to attacks without gradients, if any ran;
    `notes` say where the attack ran otherwise than published.
    """

    x: Tensor
    eps: tuple[float, ...]
    norm: Norm = "linf"
    signs: tuple[str, ...] = ()
    hidden: Tensor | None = None
    notes: tuple[str, ...] = ()

    about = "test images"
    metrics = METRICS
    families = FAMILIES

    def judge(self, question: Question) -> Judgement:
        """At the largest limit; the blind guess is noise of the same size. Signs of masking stand beside it.

        The model looks at the candidates once as they are, and for each limit at the attack's images and at
        noise.
        """
        assert question.model is not None
        images = question.candidates
        self._check(images.x)
        before = _classes(question.model, images.x)
        after = {eps: _classes(question.model, x) for eps, x in zip(self.eps, self.x)}
        noise = rim(images.x.shape, self.norm, torch_rng(question.truth.noise_seed, "noise"))
        right, noisy = ({0.0: before == images.y} for _ in range(2))
        for eps in filter(None, self.eps):
            right[eps] = after[eps] == images.y
            noisy[eps] = _classes(question.model, Ball(images.x, eps, self.norm).at(noise)) == images.y
        largest = self.eps[-1]
        note = "; ".join((*self.notes, *self.signs)) or None
        robust = replace(_share(after[largest] == images.y), note=note)
        scores = [
            Score("robust-accuracy", robust, _mean(noisy[largest])),
            Score("clean-accuracy", _share(right[0.0])),
        ]
        if self.hidden is not None:
            scores.append(Score("masked-share", _share(self.hidden), 0.0))
        curve = tuple(self._point(eps, right[eps], noisy[eps]) for eps in right)
        pictures = tuple(self._fooled(images, before, after[largest])) if question.detailed else ()
        outcomes = {float(eps): hits.numpy() for eps, hits in right.items()}
        drawn = Exhibits(robustness=curve, records=(_records(question, outcomes),))
        return Judgement(tuple(scores), drawn, pictures, outcomes)

    def _check(self, x: Tensor) -> None:
        """Refuse examples that no image could be, or that move further than they say."""
        check_choice("the attack's", "norm", self.norm, get_args(Norm))
        for eps in self.eps:
            check_number("the attack's", "eps", float(eps), 0)
        if not self.eps or list(self.eps) != sorted(self.eps):
            raise CannotRun(f"the attack's limits are {quoted(self.eps)}; it takes one or more, ascending")
        if self.x.shape != (len(self.eps), *x.shape) or not ((self.x >= 0) & (self.x <= 1)).all():
            raise CannotRun("the attack returned something other than images of the same shape in [0, 1]")
        for examples, eps in zip(self.x, self.eps):
            furthest = Ball(x, eps, self.norm).distances(examples).max().item()
            if furthest > eps + 1e-6 * max(eps, 1):
                what = "a pixel" if self.norm == "linf" else "an image"
                raise CannotRun(f"the attack moved {what} by {furthest:g}, more than its eps = {eps:g}")

    def _point(self, eps: float, right: Tensor, noisy: Tensor) -> Robustness:
        share = _share(right)
        return Robustness(
            norm=self.norm,
            eps=eps,
            value=share.value,
            low=share.low,
            high=share.high,
            n=share.n,
            chance=_mean(noisy),
        )

    def _fooled(self, images: Images, before: Tensor, after: Tensor) -> Iterator[ImagePair]:
        """The first images that the model gets wrong only when they are changed."""
        names = images.names or tuple(map(str, range(images.classes)))
        moved = "each pixel moved" if self.norm == "linf" else "the pixels together moved (L2)"
        fooled = ((before == images.y) & (after != images.y)).nonzero().flatten()[:SHOWN].tolist()
        for place in fooled:
            yield ImagePair(
                str(place),
                images.x[place],
                self.x[-1, place],
                f"{names[int(before[place])]} becomes {names[int(after[place])]}",
                f"{moved} by at most {self.eps[-1]:g}",
            )


def _records(question: Question, outcomes: Outcomes) -> Records:
    """Whether the model is right about each image at each eps, one eps after the other."""
    columns = {
        "record": np.tile(question.records, len(outcomes)),
        "eps": np.repeat(list(outcomes), len(question.candidates)),
        "hit": np.concatenate(list(outcomes.values())),
    }
    return Records(table="evasion", columns=columns)


def differences(outcomes: Outcomes, baseline: Outcomes) -> dict[float, Estimate]:
    """By how much more of the same images one model gets right than another, at each eps."""
    return {eps: share_difference(outcomes[eps], baseline[eps]) for eps in outcomes}


def _classes(model: nn.Module, x: Tensor) -> Tensor:
    """The classes that the model names, or `CannotRun` where its answers are not finite."""
    logits = predict(model, x)
    if logits.isnan().any():
        raise CannotRun("the model's answers are not finite numbers")
    return logits.argmax(1)


def _share(right: torch.Tensor) -> Estimate:
    return proportion(int(right.sum()), len(right))


def _mean(right: Tensor) -> float:
    return right.double().mean().item()

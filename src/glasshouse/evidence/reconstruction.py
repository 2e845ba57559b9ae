"""Training images rebuilt."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glasshouse.data.images import Images
from glasshouse.errors import CannotRun
from glasshouse.evidence.evidence import Evidence, Judgement, Score, check_clients
from glasshouse.evidence.reconstruction_scores import Samples, guess_scores, image_scores, label_score
from glasshouse.evidence.reconstruction_views import course, shown
from glasshouse.evidence.reconstruction_words import FAMILIES, METRICS
from glasshouse.evidence.truth import Question, Truth
from glasshouse.exhibits import Exhibits, Records
from glasshouse.measures.estimate import Estimate
from glasshouse.measures.pictures import Match, match


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The images, shape (K, C, H, W), that an attack had after `step` steps and `seconds`, at `objective`.

    Pixels may still lie outside [0, 1]: they are judged as if cut to it.
    """

    step: int
    seconds: float
    objective: float
    x: Tensor


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """Images, shape (K, C, H, W) in [0, 1], believed to be among the training data of `clients`.

    There are at most as many as these clients hold together. An attack that reads the images' labels off
    the update returns them, shape (K,) in any order; one that was given them does not. One that improves its
    images step by step returns how far it had come at a few of the steps, and the `objective` that it
    reached. `round` is that of the update they come from. `proven` says that the attack can tell that each
    of its images is one of theirs, and does not only believe it.
    """

    x: Tensor
    clients: tuple[int, ...]
    labels: Tensor | None = None
    round: int | None = None
    objective: float | None = None
    snapshots: tuple[Snapshot, ...] = ()
    note: str | None = None
    proven: bool = False


@dataclass(frozen=True, eq=False)
class Reconstructions(Evidence):
    """What was rebuilt, in one part for each update, or sum of updates, that was attacked.

    `offline` are the seconds that went into preparing the attack, once for all rounds; `online` those from
    the updates to the images. `note` says what it took beyond a round with one model, and what kept it from
    more, `remark` what of that stands beside every score of the images.
    """

    parts: tuple[Rebuilt, ...]
    offline: float
    online: float
    note: str | None = None
    remark: str | None = None

    about = "clients"
    metrics = METRICS
    families = FAMILIES

    @property
    def x(self) -> Tensor:
        """The images of all parts, shape (K, C, H, W)."""
        return torch.cat([part.x for part in self.parts])

    def judge(self, question: Question) -> Judgement:
        """Every sample counts, once for each part: where no image was returned for it, grey is judged.

        What an attack has to beat shows, for each sample, the auxiliary image that is nearest to it: an
        oracle, which errs on the side of no leak. What blind guesses reach is said beside it.
        """
        held = self._held(question.truth)
        samples = Samples.joined(held)
        matched = _joined([match(each.x, part.x) for part, each in zip(self.parts, held)])
        named = [(part.labels, each) for part, each in zip(self.parts, held) if part.labels is not None]
        scores = [
            *image_scores(samples, matched, question.auxiliary.x, self.note, self.remark),
            *label_score(named, question.auxiliary),
            *guess_scores(samples, question.auxiliary.x),
            Score("offline-seconds", Estimate(float(self.offline), None, None, len(samples))),
            Score("online-seconds", Estimate(float(self.online), None, None, len(samples))),
        ]
        tracked = [(part.snapshots, each.x) for part, each in zip(self.parts, held) if part.snapshots]
        near = {"record": samples.place, "psnr": matched.psnr, "returned": matched.returned}
        drawn = Exhibits(
            course=course(tracked, question.auxiliary.x),
            records=(Records(table="reconstruction", columns=near),),
        )
        seen = question.detailed and any(len(part.x) for part in self.parts)
        return Judgement(tuple(scores), drawn, tuple(shown(self.parts, held, matched)) if seen else ())

    @classmethod
    def of_failed_round(cls, reason: str, shape: tuple[int, int, int], clients: int) -> "Reconstructions":
        """No image of anybody."""
        return cls((Rebuilt(torch.empty(0, *shape), tuple(range(clients))),), 0.0, 0.0, reason)

    def _held(self, truth: Truth) -> list[Samples]:
        """The samples that each part is about, of which it returns no more than there are."""
        if not isinstance(self.parts, tuple | list) or not self.parts:
            raise CannotRun("the attack returned no part, not even one without images")
        held = []
        for part in self.parts:
            if truth.clients:
                check_clients(part.clients, len(truth.clients))
            images = truth.held_by(part.clients)
            _check(part, images)
            held.append(Samples(images, np.concatenate([truth.clients[client] for client in part.clients])))
        return held


def _check(part: Rebuilt, held: Images) -> None:
    """Refuse what is no image, and more images than samples: one could return thousands and hope."""
    if len(part.x) > len(held):
        raise CannotRun(f"the attack returned {len(part.x)} images for {len(held)} samples")
    if part.x.shape[1:] != held.shape or not ((part.x >= 0) & (part.x <= 1)).all():
        raise CannotRun("the attack returned something other than images of the samples' shape in [0, 1]")
    if any(len(at.x) > len(held) or at.x.shape[1:] != held.shape for at in part.snapshots):
        raise CannotRun("a snapshot holds more images than there are samples, or images of another shape")
    labels = part.labels
    if labels is None:
        return
    whole = labels.dim() == 1 and not labels.is_floating_point() and len(labels) <= len(held)
    if not whole or not ((labels >= 0) & (labels < held.classes)).all():
        raise CannotRun(
            f"the attack returned something other than up to {len(held)} labels from 0 to {held.classes - 1}"
        )


def _joined(matches: Sequence[Match]) -> Match:
    return Match(
        torch.cat([matched.guess for matched in matches]),
        np.concatenate([matched.psnr for matched in matches]),
        np.concatenate([matched.returned for matched in matches]),
    )

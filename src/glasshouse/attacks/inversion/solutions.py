"""What a search found: the images of its best descent, before whatever the client did to them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glasshouse.attacks.attack import required
from glasshouse.attacks.inversion.descent import Descent
from glasshouse.attacks.inversion.target import Target
from glasshouse.attacks.inversion.undoing import UNDONE, undone
from glasshouse.defences.policies.draws import UNCHANGED, AnyDraw, Draw
from glasshouse.evidence.reconstruction import Snapshot
from glasshouse.measures.pictures import match


@dataclass(frozen=True, eq=False)
class Solution:
    """Images, shape (n, C, H, W) in [0, 1], with their labels, shape (n,), and the objective they reached."""

    x: Tensor
    labels: Tensor
    objective: float
    snapshots: tuple[Snapshot, ...] = ()
    note: str | None = None


AVERAGED = "the images were sought before the policy, whose cases took turns"


def solution_of(target: Target, best: Descent, client: Draw | AnyDraw, draws: Sequence[Draw]) -> Solution:
    """The images of the best descent, before the client transformed each by one of `draws`, if there are any.

    `client` is what the descent supposed that to be; where it is nothing, it is undone only here.
    """
    images = best.image.clamp(0, 1)
    if not draws:
        return _solution(target, best, images)
    if client is not UNCHANGED:
        fits = f"the image fits best if the policy did this to it: {client}"
        note = AVERAGED if isinstance(client, AnyDraw) else fits
        return replace(_solution(target, best, images), note=note)
    originals, _ = undone(images.flatten(0, 1), draws)
    solution = _solution(target, best, originals.view(images.shape))
    *before, last = solution.snapshots
    return replace(solution, snapshots=(*before, replace(last, x=solution.x)), note=UNDONE)


def _solution(target: Target, best: Descent, images: Tensor) -> Solution:
    """`images` have the shape (copies, n, C, H, W); those of several epochs are paired and averaged."""
    first, *others = images
    x = torch.stack([first.double(), *(match(first, other).guess for other in others)]).mean(0)
    labels = target.labels if best.soft is None else best.soft.argmax(1)
    return Solution(x.to(first.dtype), required(labels), best.lowest, tuple(best.snapshots))

"""Images changed so that the model gets them wrong."""

from dataclasses import dataclass

from torch import Tensor

from glasshouse.evidence.evidence import Evidence
from glasshouse.learning.ball import Norm


@dataclass(frozen=True, eq=False)
class AdversarialExamples(Evidence):
    """Perturbed candidates for each of E limits `eps`, ascending: `x` has shape (E, N, C, H, W).

    They lie within their limit of the originals: in every pixel where `norm` is "linf", over all pixels
    together where it is "l2". `signs` say, in words, why the model may hide its gradients rather than be
    robust; `hidden`, shape (N,), marks the images that fell only to attacks without gradients, if any ran.
    """

    x: Tensor
    eps: tuple[float, ...]
    norm: Norm = "linf"
    signs: tuple[str, ...] = ()
    hidden: Tensor | None = None

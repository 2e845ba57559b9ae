"""One image from the gradient of a vision transformer with learned positions, in closed form.

The positions E_pos, shape (T, d), are added to the patches' embeddings, so their gradient D = dL/dE_pos is
the gradient by the tokens z = embeddings + E_pos themselves. It meets them in two weight gradients:

- *Attention* (APRIL, Lu et al. 2022). Where nothing but the first attention reads the tokens, without norm
  or shortcut, dL/dz = sum of W^T dL/dq over its maps q = W z (queries, keys and values), and
  dL/dW = (dL/dq)^T z. Hence  D^T z = sum of W^T dL/dW,  d x d equations for each of T unknown tokens; the
  embedding is then inverted for the pixels.
- *Embedding*. The patches x, shape (T, p), enter by a linear map of weight E, shape (d, p), and
  dL/dE = D^T x  gives them at once, whatever the network does with its tokens afterwards.

Both need D to have rank T. Where positions are nearly equal, so are the rows of D: the condition number says
how many digits of the gradient that costs. Directions lost below the gradient's precision stay grey.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshouse.attacks.inversion.chain import Step, random_image, watch
from glasshouse.errors import CannotRun
from glasshouse.models.freezing import exchanged

GREY = 0.5
"""What a pixel is taken for as far as no equation says otherwise."""

SMALLEST = 1e-15
"""Singular values below this share of the largest are rounding, even in double precision."""

AGREEMENT = 1e-6
"""The relative difference up to which two double-precision results on a random image are the same."""

DETACHED = "nothing flows back to the network's embedding of patches: its answers are cut off from it"


@dataclass(frozen=True, eq=False)
class Patches:
    """How a network reads patches: the names of its linear embedding and of its positions.

    `order`, shape (T, p), says which pixel of the flattened image is where in which patch; the last T
    positions belong to patches, those before to class tokens. `projections` are the weights of the linear
    maps that read the tokens, in the first attention; empty where nothing reads the tokens themselves.
    """

    embedding: str
    position: str
    order: Tensor
    projections: tuple[str, ...]

    def image(self, patches: Tensor, shape: tuple[int, int, int]) -> Tensor:
        """The image of `shape` that consists of `patches`, shape (T, p)."""
        pixels = torch.empty(self.order.numel(), dtype=patches.dtype)
        pixels[self.order.flatten()] = patches.flatten()
        return pixels.reshape(shape)


def tokens_from_attention(
    position_gradient: Tensor,
    projections: Sequence[tuple[Tensor, Tensor]],
    around: Tensor,
    precision: float = 0.0,
) -> Tensor:
    """The tokens z, shape (T, d), of  D^T z = sum of W^T dL/dW  over pairs (W, dL/dW), shapes (m, d).

    `precision` is the gradients' relative one: what is lost below it is taken from the tokens `around`.

    >>> z, W = torch.eye(2, 3).double(), torch.eye(3).double()
    >>> slope = torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 5.0]]).double()
    >>> tokens_from_attention(slope @ W, [(W, slope.T @ z)], around=0 * z).allclose(z)
    True
    """
    right = torch.stack([W.T @ gradient for W, gradient in projections]).sum(0)
    return _nearest_solution(position_gradient.T, right, around, precision)


def patches_from_tokens(tokens: Tensor, position: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The patches x, shape (T, p), of  tokens = x E^T + bias + position  with E = `weight`, shape (d, p)."""
    embedded = tokens - position - (0 if bias is None else bias)
    patches: Tensor = torch.linalg.lstsq(weight, embedded.T).solution
    return patches.T


def patches_from_embedding(position_gradient: Tensor, gradient: Tensor, precision: float = 0.0) -> Tensor:
    """The patches x, shape (T, p), of  D^T x = dL/dE,  shapes (d, T) and (d, p)."""
    around = torch.full((len(position_gradient), gradient.shape[1]), GREY, dtype=gradient.dtype)
    return _nearest_solution(position_gradient.T, gradient, around, precision)


def find_patches(network: nn.Module, shape: tuple[int, int, int]) -> Patches:
    """How `network` reads patches, or `CannotRun` where it has no linear embedding with learned positions.

    What holds for the gradient of an image of the attacker's own holds for every image: the equations above
    are tried on it before they are believed.
    """
    network = deepcopy(network).double().train()
    steps, logits = watch(network, random_image(shape).requires_grad_())
    first = next((step for step in steps if list(step.module.parameters(recurse=False))), None)
    if first is None or not _cuts_patches(first):
        kind = "nothing" if first is None else f"{type(first.module).__name__} {first.name!r}"
        raise CannotRun(f"the network begins with {kind}, not with a linear embedding of patches")
    if not first.z.requires_grad:
        raise CannotRun(DETACHED)
    parameters = exchanged(network)
    loss = F.cross_entropy(logits, torch.tensor([0]))
    slopes = torch.autograd.grad(loss, [first.z, *parameters.values()], allow_unused=True)
    gradients = {name: slope for name, slope in zip(parameters, slopes[1:]) if slope is not None}
    if slopes[0] is None:
        raise CannotRun(DETACHED)
    embedded = _rows(first.z.detach(), first.module)
    position = _position(gradients, _rows(slopes[0], first.module))
    order = _order(network, first.name, shape)
    tokens = embedded + parameters[position].detach().reshape(-1, embedded.shape[1])[-len(embedded) :]
    readers = [step for step in steps if isinstance(step.module, nn.Linear) and _reads(step, tokens)]
    projections = tuple(dict.fromkeys(f"{step.name}.weight" for step in readers))
    if readers and not (
        {*projections} <= gradients.keys()
        and _attention_alone(readers[0].x.detach()[0], projections, position, parameters, gradients)
    ):
        projections = ()
    return Patches(first.name, position, order, projections)


def is_position(name: str) -> bool:
    """Whether a parameter of that name would be learned positions."""
    return name.rpartition(".")[2].startswith("pos")


def _nearest_solution(A: Tensor, right: Tensor, around: Tensor, precision: float) -> Tensor:
    """Of the least-squares solutions of A x = right the one nearest to `around`."""
    if A.shape[1] > A.shape[0]:
        raise CannotRun(f"{A.shape[1]} tokens of width {A.shape[0]}: more unknown tokens than equations")
    if not A.any():
        raise CannotRun("the gradient of the positions is zero")
    offset: Tensor = torch.linalg.lstsq(
        A, right - A @ around, rcond=max(precision, SMALLEST), driver="gelsd"
    ).solution
    return around + offset


def _cuts_patches(step: Step) -> bool:
    module = step.module
    if isinstance(module, nn.Conv2d):
        return module.kernel_size == module.stride and module.padding in (0, (0, 0)) and module.groups == 1
    return isinstance(module, nn.Linear) and step.x.dim() == 3


def _rows(z: Tensor, module: nn.Module) -> Tensor:
    """What an embedding gives for one image, (1, T, d) or (1, d, h, w), as (T, d)."""
    return z[0].flatten(1).T if isinstance(module, nn.Conv2d) else z[0]


def _position(gradients: dict[str, Tensor], by_embedding: Tensor) -> str:
    """The parameter whose last rows have the gradient of the embeddings, shape (T, d)."""
    count, width = by_embedding.shape
    for name, gradient in gradients.items():
        is_table = gradient.dim() in (2, 3) and gradient.numel() == gradient.shape[-2] * width
        if is_table and _agree(gradient.reshape(-1, width)[-count:], by_embedding):
            return name
    raise CannotRun("no learned positions are added to the patches' embeddings as they are")


def _order(network: nn.Module, embedding: str, shape: tuple[int, int, int]) -> Tensor:
    """Which pixel is where in which patch, shape (T, p): shown by an image whose pixels are numbered."""
    numbered = torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(1, *shape)
    with torch.no_grad():
        steps, _ = watch(network, numbered)
    step = next(step for step in steps if step.name == embedding)
    if isinstance(step.module, nn.Conv2d):
        order = F.unfold(step.x, step.module.kernel_size, stride=step.module.stride)[0].T
    else:
        order = step.x[0]
    if not torch.equal(order.flatten().sort().values, numbered.flatten()):
        raise CannotRun("the patches' embedding reads something other than each pixel once")
    return order.long()


def _reads(step: Step, tokens: Tensor) -> bool:
    """Whether a module's input ends in these tokens."""
    x = step.x.detach()
    return x.dim() == 3 and x.shape[2] == tokens.shape[1] and _agree(x[0, -len(tokens) :], tokens)


def _attention_alone(
    tokens: Tensor,
    projections: Sequence[str],
    position: str,
    weights: dict[str, nn.Parameter],
    gradients: dict[str, Tensor],
) -> bool:
    """Whether  D^T z = sum of W^T dL/dW  holds: no shortcut leads round the attention."""
    D = gradients[position].reshape(-1, tokens.shape[1])
    sums = torch.stack([weights[name].detach().T @ gradients[name] for name in projections]).sum(0)
    return len(D) == len(tokens) and _agree(D.T @ tokens, sums)


def _agree(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and float((one - other).norm()) <= AGREEMENT * float(other.norm())

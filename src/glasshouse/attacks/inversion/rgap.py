"""One image from its gradient, layer by layer from the last to the first (R-GAP, Zhu and Blaschko 2021).

A layer computes z = W x + b and passes on activation(z). With k = dL/dz known, and z known from the layer
above, its input x, flattened, solves two linear systems at once:

    weight constraints     W x = z - b
    gradient constraints   K x = dL/dW,    where K has the entries of k

A linear layer's gradient dL/dW = k x^T gives x at once. A convolution's is a correlation of k with x, the
same for each input channel: A X = dL/dW with one A of shape (O kh kw, H W) for the pixels X, shape (H W, C).
The least-squares solution comes from the normal equations in double precision,

    (W^T W / w + I_C (x) A^T A / a) x = W^T (z - b) / w + vec(A^T dL/dW) / a,

`w` and `a` being the mean squared length of the rows of each. Gradients are known to single precision, so
squaring the condition number costs nothing as long as it is below 1e8. Then k of the layer before is
activation'(z) * W^T k. The recursion starts at the logits: with cross-entropy k = softmax(logits) - onehot,
which is the head's bias gradient; without a bias see `head_inputs`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from scipy import linalg, optimize
from torch import Tensor, nn

from glasshouse.attacks.inversion.activations import settle_signs, undo
from glasshouse.attacks.inversion.chain import Link
from glasshouse.attacks.inversion.convolution import Meetings, padding
from glasshouse.errors import CannotRun

SINGULAR = 1e-12
"""Eigenvalues of the normal equations below this share of the largest count as zero."""

SCALES = np.logspace(-6, 6, 241)
"""Where a head without bias is searched for the length of its input, relative to that of the gradient."""

ROUNDS = 4
"""How often a layer is solved at most, while signs of its outputs are corrected."""

Named = Mapping[str, Tensor]
"""Tensors by the names of the network's parameters."""


@dataclass(frozen=True)
class LayerRank:
    """How well one layer's input is determined: `rank` of its `unknowns` by both systems together.

    `weight_rows` and `gradient_rows` bound what each contributes: the second without the one equation for
    each output channel that the first implies, <w_o, dL/dw_o> = <k_o, z_o>, b aside. `rank` is null before it
    is measured.
    """

    name: str
    unknowns: int
    weight_rows: int
    gradient_rows: int
    rank: int | None = None

    @property
    def missing(self) -> int:
        """How many directions of the input stay open, at the least."""
        most = min(self.unknowns, self.weight_rows + self.gradient_rows)
        return self.unknowns - (most if self.rank is None else self.rank)


@dataclass(frozen=True, eq=False)
class Recovered:
    """An image, not yet cut to [0, 1], its label, and the rank of each layer, last first.

    The image has the shape that the first layer takes: (C, H, W), or flat. `mismatch` is the relative
    distance of its own gradient from the one seen: near 0 where it is exact.
    """

    image: Tensor
    label: int
    ranks: tuple[LayerRank, ...]
    mismatch: float


def rank_analysis(links: Sequence[Link]) -> tuple[LayerRank, ...]:
    """What can be said before any gradient is seen: the equations each layer has for its inputs, last first.

    A layer with fewer equations than inputs cannot be undone. Which outputs of a ReLU tell its input depends
    on the image; all are counted.
    """
    return tuple(map(_counted, reversed(links)))


def recover(links: Sequence[Link], weights: Named, gradients: Named) -> Recovered:
    """The image behind the `gradients` of the cross-entropy of one sample at `weights`.

    A layer that is not fully determined gives the input nearest to zero (the image: to grey) of those that
    fit. Where the head has several explanations, the image in [0, 1] whose gradient fits best is returned.
    """
    weights, gradients = _doubled(weights), _doubled(gradients)
    starts = head_inputs(links[-1], weights, gradients)
    images = [_unwind(links, weights, gradients, k, x) for k, x in starts]
    if not images:
        raise CannotRun("no input of the last layer explains its gradient: it is not that of one sample")
    return min(images, key=lambda recovered: recovered.mismatch + _outside(recovered.image))


def head_inputs(head: Link, weights: Named, gradients: Named) -> Iterator[tuple[Tensor, Tensor]]:
    """Each k = dL/dlogits, shape (classes,), with an input x of the last layer that explains its gradient.

    With a bias k is the bias gradient and G = k x^T gives x. Without one, G = s u v^T (its largest singular
    value and vectors) leaves open the sign and the length: x = c v and k = s u / c for some c. As
    k = softmax(W x) - onehot has one negative entry, at the label y, c solves

        c (1 - softmax(c W v)_y) = -s u_y,

    and the other classes tell its roots apart. For two classes nothing does: their entries of k are equal.
    """
    W, G = weights[head.weight], gradients[head.weight]
    if not G.any():
        raise CannotRun("the gradient of the last layer is zero: the network already fits the sample")
    if head.bias is not None:
        k = gradients[head.bias]
        yield k, _outer_factor(head, G, k)
        return
    U, S, V = torch.linalg.svd(G, full_matrices=False)
    for sign in (1.0, -1.0):
        u, v, s = sign * U[:, 0], sign * V[0], float(S[0])
        if int((u < 0).sum()) == 1:
            yield from ((s * u / c, c * v) for c in _lengths(W @ v, u, s))


def _lengths(direction: Tensor, u: Tensor, s: float) -> list[float]:
    """The roots c > 0 of c (1 - softmax(c direction)_y) = -s u_y that suit the other classes best."""
    y = int(u.argmin())

    def excess(c: float) -> float:
        return c * (1 - float((c * direction).softmax(0)[y])) + s * float(u[y])

    def error(c: float) -> float:
        k = (c * direction).softmax(0) - F.one_hot(torch.tensor(y), len(u))
        return float((k * c / s - u).norm())

    grid = SCALES * s
    signs = np.sign([excess(c) for c in grid])
    brackets = np.flatnonzero(signs[:-1] != signs[1:])
    roots = [float(optimize.brentq(excess, grid[at], grid[at + 1], rtol=1e-14)) for at in brackets]
    errors = list(map(error, roots))
    return [root for root, off in zip(roots, errors) if off <= 2 * min(errors) + 1e-6]


def _unwind(links: Sequence[Link], weights: Named, gradients: Named, k: Tensor, x: Tensor) -> Recovered:
    """From the last layer's k and input x to the image."""
    *below, head = links
    ranks, label = [_counted(head, len(x))], int(k.argmin())
    k = weights[head.weight].T @ k
    for link in reversed(below):
        out, arriving = x.reshape(link.leaving), k.reshape(link.leaving)
        grey = 0.5 if link is links[0] else 0.0
        positive = out > 0
        for _ in range(ROUNDS):
            z, told, slope = undo(link.activation, out, positive)
            k = slope * arriving
            x, rank = layer_input(link, weights, gradients, z, told, k, grey=grey)
            settled = settle_signs(link, gradients[link.weight], x, out, arriving, positive)
            if torch.equal(settled, positive):
                break
            positive = settled
        ranks.append(_counted(link, rank))
        k = _pull_back(link, weights[link.weight], k)
    image = x.reshape(links[0].entering)
    return Recovered(image, label, tuple(ranks), _mismatch(links, weights, gradients, image, label))


def layer_input(
    link: Link,
    weights: Named,
    gradients: Named,
    z: Tensor,
    told: Tensor,
    k: Tensor,
    *,
    grey: float = 0.0,
) -> tuple[Tensor, int]:
    """The flattened input of a layer from its output z where `told` and from k = dL/dz; and its rank.

    Of several that fit, the one nearest to `grey` everywhere.
    """
    W, G = weights[link.weight], gradients[link.weight]
    if not isinstance(link.module, nn.Conv2d):
        return _outer_factor(link, G, k), G.shape[1]
    bias = 0 if link.bias is None else weights[link.bias][:, None, None]
    known = told.flatten().numpy()
    meetings = Meetings.of(link.module, link.entering)
    rows, out = meetings.weight_rows(W)[known], (z - bias).flatten().numpy()[known]
    A = meetings.gradient_rows(k)
    a = float(np.square(A).sum() / len(A))
    w = max(float(rows.multiply(rows).sum() / max(1, len(out))), 1e-300)
    if a == 0:
        raise CannotRun(f"no gradient reaches layer {link.name!r}")
    channels = link.entering[0]
    normal = (rows.T @ rows).toarray() / w + linalg.block_diag(*[A.T @ A / a] * channels)
    by_channel = G.transpose(1, 0).reshape(channels, -1).numpy()
    right = rows.T @ out / w + (by_channel @ A / a).flatten()
    offset, rank = _solve(normal, right - grey * normal.sum(1))
    return torch.from_numpy(grey + offset), rank


def _outer_factor(link: Link, G: Tensor, k: Tensor) -> Tensor:
    """The x of G = k x^T."""
    if not k.any():
        raise CannotRun(f"no gradient reaches layer {link.name!r}")
    return G.T @ k / k.square().sum()


def _solve(normal: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, int]:
    """The smallest least-squares solution of the normal equations, and their rank."""
    factor, failed = linalg.lapack.dpotrf(normal, lower=True)
    if not failed:
        inverse_condition, _ = linalg.lapack.dpocon(factor, np.abs(normal).sum(0).max(), uplo="L")
        if inverse_condition > SINGULAR:
            return linalg.cho_solve((factor, True), right), len(normal)
    values, vectors = linalg.eigh(normal)
    kept = values > SINGULAR * values[-1]
    vectors = vectors[:, kept]
    return vectors @ ((vectors.T @ right) / values[kept]), int(kept.sum())


def _pull_back(link: Link, W: Tensor, k: Tensor) -> Tensor:
    """dL/dx of a layer, flattened, from k = dL/dz."""
    x = torch.zeros(1, *link.entering, dtype=k.dtype, requires_grad=True)
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(_apply(link, W, None, x), x, k[None])
    return slope.flatten()


def _apply(link: Link, W: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    conv = link.module
    if not isinstance(conv, nn.Conv2d):
        return F.linear(x, W, bias)
    return F.conv2d(F.pad(x, padding(conv)), W, bias, conv.stride, 0, conv.dilation)


def _mismatch(links: Sequence[Link], weights: Named, gradients: Named, image: Tensor, label: int) -> float:
    """How far the gradient of an image with its label is from the one seen, relatively."""
    names = [name for link in links for name in (link.weight, link.bias) if name is not None]
    free = {name: weights[name].clone().requires_grad_() for name in names}
    with torch.enable_grad():
        x = image
        for link in links:
            bias = None if link.bias is None else free[link.bias]
            x = link.activation(_apply(link, free[link.weight], bias, x.reshape(1, *link.entering)))
        loss = F.cross_entropy(x, torch.tensor([label]))
        own = torch.autograd.grad(loss, [free[name] for name in names])
    off = sum(float((part - gradients[name]).square().sum()) for part, name in zip(own, names))
    return math.sqrt(off / sum(float(gradients[name].square().sum()) for name in names))


def _outside(image: Tensor) -> float:
    """How far the pixels lie outside [0, 1], on average."""
    return float((image - image.clamp(0, 1)).abs().mean())


def _doubled(tensors: Named) -> dict[str, Tensor]:
    return {name: tensor.detach().double() for name, tensor in tensors.items()}


def _counted(link: Link, rank: int | None = None) -> LayerRank:
    unknowns, outputs = math.prod(link.entering), math.prod(link.leaving)
    counted = LayerRank(link.name, unknowns, outputs, unknowns, rank)
    if not isinstance(link.module, nn.Conv2d):
        return counted
    channels, height, width = link.entering
    kernels = link.module.out_channels * math.prod(link.module.kernel_size)
    if kernels < height * width:
        return replace(counted, gradient_rows=channels * kernels - link.module.out_channels)
    return counted

"""The closed forms as attacks: what an update gives away without any search, and why where it does not."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshouse.access import Protocol
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.inversion.april import (
    GREY,
    Patches,
    find_patches,
    is_position,
    patches_from_embedding,
    patches_from_tokens,
    tokens_from_attention,
)
from glasshouse.attacks.inversion.chain import Link, find_chain
from glasshouse.attacks.inversion.inversion import UpdateInversion
from glasshouse.attacks.inversion.linear import CLEAR, find_leading_linear, lone_images, single_image
from glasshouse.attacks.inversion.rgap import LayerRank, rank_analysis, recover
from glasshouse.attacks.inversion.updates import (
    AttackedUpdate,
    check_plain_steps,
    check_scale,
    rounding,
    training_network,
)
from glasshouse.errors import CannotRun
from glasshouse.evidence.reconstruction import Rebuilt
from glasshouse.learning.layout import read_vector

MOST_UNKNOWNS = 6000
"""The largest input of a layer that is solved for: its equations are a square matrix of that side."""


@dataclass(frozen=True, kw_only=True)
class RGAP(UpdateInversion):
    """Recovers one image layer by layer, last to first, through a CNN like cnn6 (Zhu and Blaschko 2021)."""

    name = "r-gap"

    def check_protocol(self, protocol: Protocol, samples: int) -> None:
        check_one_gradient(protocol, samples)
        _links(protocol)

    def rebuild(self, update: AttackedUpdate, knowledge: Knowledge, rng: torch.Generator) -> Rebuilt:
        protocol = update.protocol
        check_one_gradient(protocol, update.samples)
        links = _links(protocol)
        weights, gradients = (protocol.layout.named(vector) for vector in (update.sent, update.gradient()))
        recovered = recover(links, weights, gradients)
        labels = torch.tensor([recovered.label])
        note = "; ".join(filter(None, map(_undetermined, recovered.ranks))) or None
        # A network that begins with a linear layer gives back a flat image.
        image = recovered.image.reshape(1, *protocol.shape)
        return Rebuilt(_pictures(image), update.clients, labels=labels, note=note)


@dataclass(frozen=True, kw_only=True)
class APRILAnalytic(UpdateInversion):
    """Solves for the tokens of a ViT with learned positions from its first attention (Lu et al. 2022)."""

    name = "april-analytic"

    def check_protocol(self, protocol: Protocol, samples: int) -> None:
        check_one_gradient(protocol, samples)
        _check_attention(_patches(protocol, read_vector(protocol.architecture)))

    def rebuild(self, update: AttackedUpdate, knowledge: Knowledge, rng: torch.Generator) -> Rebuilt:
        tokens = _Tokens.behind(update)
        _check_attention(tokens.patches)
        return tokens.rebuilt(update, *tokens.patches_from_attention())


@dataclass(frozen=True, kw_only=True)
class PatchLeak(UpdateInversion):
    """Solves for the patches of any ViT with learned positions from the gradient of their embedding."""

    name = "patch-leak"

    def check_protocol(self, protocol: Protocol, samples: int) -> None:
        check_one_gradient(protocol, samples)
        _patches(protocol, read_vector(protocol.architecture))

    def rebuild(self, update: AttackedUpdate, knowledge: Knowledge, rng: torch.Generator) -> Rebuilt:
        tokens = _Tokens.behind(update)
        return tokens.rebuilt(update, *tokens.patches_from_embedding())


@dataclass(frozen=True, kw_only=True)
class LinearLeak(UpdateInversion):
    """Divides a first linear layer's weight gradients by its biases': exact for a sample alone on neurons."""

    name = "linear-leak"

    def check_protocol(self, protocol: Protocol, samples: int) -> None:
        super().check_protocol(protocol, samples)
        _leading_linear(protocol)

    def rebuild(self, update: AttackedUpdate, knowledge: Knowledge, rng: torch.Generator) -> Rebuilt:
        protocol = update.protocol
        layer = _leading_linear(protocol)
        gradients = protocol.layout.named(update.gradient().double())
        W, b = gradients[f"{layer}.weight"], gradients[f"{layer}.bias"]
        noise = rounding(update, f"{layer}.weight")
        if update.samples == 1:
            image = single_image(W, b, noise).reshape(1, *protocol.shape)
            # Within rounding every image fits.
            return Rebuilt(_pictures(image), update.clients, proven=noise < CLEAR * float(b.norm()))
        images = lone_images(W, b, update.samples, noise).reshape(-1, *protocol.shape)
        if protocol.classes == 2:
            note = "one hidden layer and two classes: what neurons agree on may be mixtures of images"
            return Rebuilt(_pictures(images), update.clients, note=note)
        return Rebuilt(_pictures(images), update.clients, proven=True)


def check_one_gradient(protocol: Protocol, samples: int) -> None:
    """Raise `CannotRun` unless an update of `samples` images is one plain step on one image."""
    check_plain_steps(protocol.recipe)
    if samples != 1:
        raise CannotRun(f"the update holds {samples} images, and the closed form is for one")
    steps = protocol.recipe.total_steps(samples)
    if steps != 1:
        raise CannotRun(f"the client took {steps} local steps, and the closed form is for one")


def _leading_linear(protocol: Protocol) -> str:
    """The name of the linear layer that reads the image, or `CannotRun` where its gradient is not sent."""
    layer = find_leading_linear(protocol.architecture, protocol.shape)
    if f"{layer}.weight" in protocol.layout.frozen:
        raise CannotRun(
            f"the linear layer {layer!r} is frozen; the gradients of what is sent, {protocol.layout.sent}, "
            "divide into features and not into pixels"
        )
    return layer


def _links(protocol: Protocol) -> tuple[Link, ...]:
    """The chain of layers that R-GAP goes back through, or `CannotRun` where it does not get through."""
    check_scale(protocol.recipe)
    if protocol.recipe.label_smoothing:
        raise CannotRun("R-GAP reads logits from the gradient of plain labels, and these are smoothed")
    links = find_chain(protocol.architecture, protocol.shape)
    protocol.layout.check_sent(*(link.weight for link in links))
    largest = max(rank_analysis(links), key=lambda layer: layer.unknowns)
    if largest.unknowns > MOST_UNKNOWNS:
        raise CannotRun(
            f"layer {largest.name!r} has {largest.unknowns} inputs, over the limit of {MOST_UNKNOWNS}"
        )
    return links


def _patches(protocol: Protocol, sent: Tensor) -> Patches:
    """How the network with the weights `sent` reads patches, or `CannotRun` where it does not."""
    protocol.layout.check_sent(*(name for name in protocol.layout.frozen if is_position(name)))
    return find_patches(training_network(protocol, sent), protocol.shape)


def _check_attention(patches: Patches) -> None:
    if not patches.projections:
        raise CannotRun("a norm stands before the first attention, or a shortcut leads round it")


@dataclass(frozen=True, eq=False)
class _Tokens:
    """What the update of a vision transformer says about its tokens, in double precision."""

    patches: Patches
    weights: dict[str, Tensor]
    gradients: dict[str, Tensor]
    noise: float

    @classmethod
    def behind(cls, update: AttackedUpdate) -> "_Tokens":
        protocol = update.protocol
        check_one_gradient(protocol, update.samples)
        patches = _patches(protocol, update.sent)
        weights, gradients = (
            protocol.layout.named(vector.double()) for vector in (update.sent, update.gradient())
        )
        return cls(patches, weights, gradients, rounding(update, patches.position))

    def patches_from_attention(self) -> tuple[Tensor, Tensor]:
        """The patches, shape (T, p), and the gradient of the tokens that tells them apart."""
        weight, bias = self._embedding()
        position = self._position(self.weights)
        count = len(self.patches.order)
        around = position.clone()
        around[-count:] += GREY * weight.sum(1) + (0 if bias is None else bias)
        D = self._position(self.gradients)
        pairs = [(self.weights[name], self.gradients[name]) for name in self.patches.projections]
        tokens = tokens_from_attention(D, pairs, around, self._precision(D))
        return patches_from_tokens(tokens[-count:], position[-count:], weight, bias), D

    def patches_from_embedding(self) -> tuple[Tensor, Tensor]:
        """The patches, shape (T, p), and the gradient of the tokens that tells them apart."""
        D = self._position(self.gradients)[-len(self.patches.order) :]
        gradient = self.gradients[f"{self.patches.embedding}.weight"].flatten(1)
        return patches_from_embedding(D, gradient, self._precision(D)), D

    def rebuilt(self, update: AttackedUpdate, patches: Tensor, D: Tensor) -> Rebuilt:
        """The image of these patches, and how many of their directions the rounding hides."""
        values = torch.linalg.svdvals(D)
        hidden = bool((values <= self._precision(D) * values[0]).any())
        note = (
            "the update's rounding hides some of the patches' directions, which stay grey" if hidden else None
        )
        image = self.patches.image(patches, update.protocol.shape)
        return Rebuilt(_pictures(image[None]), update.clients, note=note)

    def _embedding(self) -> tuple[Tensor, Tensor | None]:
        name = self.patches.embedding
        return self.weights[f"{name}.weight"].flatten(1), self.weights.get(f"{name}.bias")

    def _position(self, tensors: dict[str, Tensor]) -> Tensor:
        position = tensors[self.patches.position]
        return position.reshape(-1, position.shape[-1])

    def _precision(self, D: Tensor) -> float:
        """The rounding beside the largest singular value: that of a random matrix is sqrt(T) + sqrt(d)."""
        spread = self.noise * (math.sqrt(D.shape[0]) + math.sqrt(D.shape[1]))
        return spread / max(float(torch.linalg.matrix_norm(D, 2)), 1e-300)


def _undetermined(layer: LayerRank) -> str | None:
    if not layer.missing:
        return None
    return f"{layer.missing} of {layer.unknowns} directions of the input of layer {layer.name!r} stay open"


def _pictures(x: Tensor) -> Tensor:
    """Images as evidence takes them: single precision in [0, 1]."""
    return x.nan_to_num(GREY).clamp(0, 1).float()

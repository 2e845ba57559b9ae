"""The verdict: is a received model crafted to leak?"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.errors import BadInput
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.models.shapes import Shape, check_classes, check_shape
from glasshouse.vetting.behaviour import behaviour_signs
from glasshouse.vetting.history import history_signs
from glasshouse.vetting.probing import Probe, probe, spread
from glasshouse.vetting.signs import Sign, weight_signs
from glasshouse.vetting.singling import FEWEST, single_signs, tried_at_once
from glasshouse.vetting.traps import firing_signs, trap_signs


@dataclass(frozen=True)
class Vetting:
    """Whether a model is crafted, all signs (alarming ones first) and the digest to compare with peers.

    The digest is empty where a file does not hold the network that it should.
    """

    crafted: bool
    signs: tuple[Sign, ...]
    digest: str


def vet(
    model: nn.Module,
    shape: Shape,
    classes: int | None = None,
    *,
    predecessors: Sequence[nn.Module] = (),
    peers: Iterable[str] = (),
    images: Tensor | None = None,
    labels: Tensor | None = None,
    seed: int | None = None,
) -> Vetting:
    """Judge a received `model` for images of `shape` (channels, height, width); it is not changed.

    `predecessors` are the models of the rounds before, oldest first; `peers` the digests that other clients
    got for this round. The model is tried on noise drawn from its weights or from `seed` (a server cannot
    prepare for a seed that it does not know) and on some of the client's `images`, (N, C, H, W) in
    [0, 1], with their `labels`, (N,).
    """
    check_request(shape, classes, peers := tuple(peers), images, labels, seed)
    if any(Layout.of(predecessor) != Layout.of(model) for predecessor in predecessors):
        raise BadInput(
            "a predecessor has other layers than the model; give earlier weights of the same network"
        )
    received = digest(model)
    if broken := _broken_tensors(model):
        return Vetting(True, broken, received)
    seed = int(received[:15], 16) if seed is None else seed
    seen = [probe(model, shape, seed)]
    own = None
    if images is not None:
        seen.append(probe(model, shape, seed, images))
        own = _tried(model, shape, images, labels, seen[0].logits.shape[1], seed)
    if classes is not None and seen[0].logits.shape[1] != classes:
        raise BadInput(f"the model gives {seen[0].logits.shape[1]} logits, not {classes}; give that number")
    signs = [
        *_broken_answers(seen),
        *weight_signs(model),
        *trap_signs(model),
        *(sign for batch in seen for sign in behaviour_signs(model, batch)),
        *(_own_signs(model, own, seen[1]) if own is not None else ()),
        *history_signs(model, predecessors, own),
        *_peer_signs(received, peers),
    ]
    # Noise and images often show the same sign of a layer: it is named once.
    once = {(sign.name, sign.layer): sign for sign in sorted(signs, key=lambda sign: sign.alarming)}
    ordered = sorted(once.values(), key=lambda sign: not sign.alarming)
    return Vetting(any(sign.alarming for sign in ordered), tuple(ordered), received)


def _tried(
    model: nn.Module, shape: Shape, images: Tensor, labels: Tensor | None, classes: int, seed: int
) -> Images:
    """As many of the client's images as the model's cost allows, with random labels where it gave none."""
    rng = torch.Generator().manual_seed(seed)
    if labels is None:
        labels = torch.randint(classes, (len(images),), generator=rng)
    elif int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise BadInput(
            f"labels from {int(labels.min())} to {int(labels.max())}; the model has {classes} classes"
        )
    places = spread(len(images), tried_at_once(model, shape))
    return Images(images[places], labels[places], classes)


def _own_signs(model: nn.Module, own: Images, seen: Probe) -> Iterator[Sign]:
    """What the client's own images, `seen` passing the model too, add to what noise shows."""
    if len(own) < FEWEST:
        why = f"{len(own)} images are too few to compare their gradients; give {FEWEST} or more"
        yield Sign("few-own-images", "", why, alarming=False)
    yield from firing_signs(seen)
    yield from single_signs(model, own)


def check_request(
    shape: Shape,
    classes: int | None,
    peers: Sequence[str],
    images: Tensor | None,
    labels: Tensor | None,
    seed: int | None,
) -> None:
    """Refuse what the client gave beside the model, where it cannot be used."""
    check_shape(shape)
    if classes is not None:
        check_classes(classes)
    if images is not None and (images.shape[1:] != shape or len(images) < 2):
        raise BadInput(f"images of shape {tuple(images.shape)}; give two or more of shape {tuple(shape)}")
    if labels is not None and (images is None or labels.shape != images.shape[:1]):
        raise BadInput(f"labels of shape {tuple(labels.shape)}; give one for each of the images")
    if seed is not None and not 0 <= seed < 2**63:
        raise BadInput(f"seed {seed} is out of range; give a whole number from 0 to below 2^63")
    for peer in _lowered(peers):
        if len(peer) != 64 or not set(peer) <= set("0123456789abcdef"):
            raise BadInput(
                f"peer digest {peer!r} is not a SHA-256; copy the 64 digits that `glasshouse vet` printed"
            )


def digest(model: nn.Module) -> str:
    """SHA-256 over the names, shapes and values of what a federation sends, as 64 hexadecimal digits.

    BatchNorm's step counters are no part of it: they count a client's own steps.
    """
    layout = Layout.of(model)
    described = hashlib.sha256(repr((layout.names, layout.shapes)).encode())
    described.update(read_vector(model).float().numpy().astype("<f4", copy=False).tobytes())
    return described.hexdigest()


def _peer_signs(received: str, peers: Sequence[str]) -> list[Sign]:
    digests = _lowered(peers)
    others = sum(peer != received for peer in digests)
    if not others:
        return []
    why = f"{others} of {len(digests)} peers got other weights: a server that sends one model sends it to all"
    return [Sign("inconsistent", "", why, alarming=True)]


def _lowered(peers: Sequence[str]) -> list[str]:
    return [peer.strip().lower() for peer in peers]


def _broken_answers(seen: Iterable[Probe]) -> list[Sign]:
    """A sign where the model's answers overflow, so that nothing else can be seen in them."""
    if all(torch.isfinite(batch.logits).all() for batch in seen):
        return []
    why = "it answers images with NaN or infinite values, which no training leads out of"
    return [Sign("not-finite", "", why, alarming=True)]


def _broken_tensors(model: nn.Module) -> tuple[Sign, ...]:
    """A sign for each tensor that nothing can be computed with."""
    why = "it has NaN or infinite values, which no training leads out of"
    return tuple(
        Sign("not-finite", name, why, alarming=True)
        for name, tensor in model.state_dict().items()
        if tensor.is_floating_point() and not torch.isfinite(tensor).all()
    )

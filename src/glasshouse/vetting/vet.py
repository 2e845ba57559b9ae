"""The verdict: is a received model crafted to leak?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from glasshouse.errors import BadInput
from glasshouse.learning.layout import Layout
from glasshouse.models.shapes import Shape, check_classes, check_shape
from glasshouse.vetting.behaviour import behaviour_signs
from glasshouse.vetting.digest import check_digest, digest
from glasshouse.vetting.history import history_signs
from glasshouse.vetting.probing import probe
from glasshouse.vetting.sign import Sign
from glasshouse.vetting.signs import weight_signs


@dataclass(frozen=True)
class Vetting:
    """Whether a model is crafted, all signs (alarming ones first) and the digest to compare with peers."""

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
    seed: int | None = None,
) -> Vetting:
    """Judge a received `model` for images of `shape` (channels, height, width); it is left as it is.

    `predecessors` are the models of the rounds before, oldest first; `peers` the digests that other clients
    got for this round. The noise that the model is tried on follows from its weights, or from `seed`: a
    client that keeps a seed to itself cannot be prepared for.
    """
    check_shape(shape)
    if any(Layout.of(each) != Layout.of(model) for each in predecessors):
        raise BadInput(
            "a predecessor has other layers than the model; give earlier weights of the same network"
        )
    own = digest(model)
    if broken := _broken_tensors(model):
        return Vetting(True, broken, own)
    seen = probe(model, shape, int(own[:15], 16) if seed is None else seed)
    if classes is not None:
        check_classes(classes)
        if seen.logits.shape[1] != classes:
            raise BadInput(
                f"the model gives {seen.logits.shape[1]} logits, not {classes}; give its own number"
            )
    signs = [
        *weight_signs(model),
        *behaviour_signs(model, seen),
        *history_signs(model, predecessors),
        *_peer_signs(own, peers),
    ]
    signs.sort(key=lambda sign: not sign.alarming)
    return Vetting(any(sign.alarming for sign in signs), tuple(signs), own)


def _peer_signs(own: str, peers: Iterable[str]) -> list[Sign]:
    given = [check_digest(peer) for peer in peers]
    others = sum(peer != own for peer in given)
    if not others:
        return []
    why = f"{others} of {len(given)} peers got other weights: a server that sends one model sends it to all"
    return [Sign("inconsistent", "", why, alarming=True)]


def _broken_tensors(model: nn.Module) -> tuple[Sign, ...]:
    """A sign for each tensor that nothing can be computed with."""
    why = "it has NaN or infinite values, which no training leads out of"
    return tuple(
        Sign("not-finite", name, why, alarming=True)
        for name, tensor in model.state_dict().items()
        if tensor.is_floating_point() and not torch.isfinite(tensor).all()
    )

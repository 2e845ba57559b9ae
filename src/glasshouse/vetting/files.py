"""Vetting weights in a file, and the verdict in words."""

import re
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

from torch import Tensor

from glasshouse.errors import BadInput
from glasshouse.models.loading import load_model, load_weights
from glasshouse.models.shapes import Shape
from glasshouse.vetting.vet import Vetting, vet


def vet_file(
    weights: Path,
    network: str,
    shape: Shape,
    classes: int,
    *,
    before: Sequence[Path] = (),
    peers: Sequence[str] = (),
    images: Tensor | None = None,
    seed: int | None = None,
) -> Vetting:
    """Judge the weights in a file for `network`, a name of the zoo or `package.module:factory`.

    `before` are files of the rounds before, oldest first; the rest is as `vet` takes it.
    """
    model = load_model(network, shape, classes)
    predecessors = [deepcopy(model) for _ in before]
    load_weights(model, weights, sound=False)  # what is not finite is part of the verdict
    for predecessor, path in zip(predecessors, before):
        load_weights(predecessor, path)
    return vet(model, shape, classes, predecessors=predecessors, peers=peers, images=images, seed=seed)


def read_shape(text: str) -> Shape:
    """`1x28x28` as channels, height and width."""
    sides = re.fullmatch(r"(\d{1,6})x(\d{1,6})x(\d{1,6})", text.strip())
    if sides is None:
        raise BadInput(f"shape {text!r} cannot be read; write channels, height and width like 1x28x28")
    channels, height, width = map(int, sides.groups())
    return channels, height, width


def verdict(vetting: Vetting) -> str:
    """The verdict and its reasons, a line each."""
    alarming = [sign for sign in vetting.signs if sign.alarming]
    others = [sign for sign in vetting.signs if not sign.alarming]
    lines = [
        "CRAFTED: do not train this model; it is built so that your update shows your data."
        if vetting.crafted
        else "clean: no known way of crafting a model shows in it.",
        *(f"  {sign}" for sign in alarming),
        *(["also noticed:"] if others else []),
        *(f"  {sign}" for sign in others),
        f"digest {vetting.digest}",
    ]
    if not vetting.crafted:
        lines.append("Compare the digest with other clients': a model made for you alone can look honest.")
    return "\n".join(lines)

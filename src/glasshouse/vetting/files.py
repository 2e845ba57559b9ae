"""Vetting weights in a file, and the verdict in words."""

import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from glasshouse.errors import BadInput
from glasshouse.models.files import OtherContent
from glasshouse.models.loading import load_model, load_weights
from glasshouse.models.shapes import Shape
from glasshouse.vetting.probing import affordable
from glasshouse.vetting.signs import Sign
from glasshouse.vetting.structure import structure_signs
from glasshouse.vetting.vet import Vetting, check_request, vet


def vet_file(
    weights: Path,
    network: str,
    shape: Shape,
    classes: int,
    *,
    before: Sequence[Path] = (),
    peers: Sequence[str] = (),
    images: Tensor | None = None,
    labels: Tensor | None = None,
    seed: int | None = None,
) -> Vetting:
    """Judge the weights in a file for `network`, a name of the zoo or `package.module:factory`.

    `before` are files of the rounds before, oldest first; the rest is as `vet` takes it. Whatever the server
    may have put into a file that can be read is a verdict; only what the client got wrong is `BadInput`.
    """
    model = load_model(network, shape, classes)
    check_request(shape, classes, peers, images, labels, seed)
    affordable(model.eval(), shape)
    predecessors = [deepcopy(model) for _ in before]
    signs = list(_loading_signs(weights, model, shape))
    for path, predecessor in zip(before, predecessors):
        signs += [
            replace(sign, why=f"{path}, of an earlier round: {sign.why}")
            for sign in _loading_signs(path, predecessor, shape)
        ]
    if signs:
        return Vetting(True, tuple(signs), "")
    return vet(
        model, shape, classes, predecessors=predecessors, peers=peers, images=images, labels=labels, seed=seed
    )


def _loading_signs(path: Path, model: nn.Module, shape: Shape) -> tuple[Sign, ...]:
    """Why the weights in `path` cannot be those of `model`, into which they are put if they can."""
    try:
        load_weights(model, path, sound=False)  # what is not finite is part of the verdict
    except OtherContent as refusal:
        return structure_signs(path, model, refusal)
    try:
        affordable(model, shape)
    except BadInput as error:
        why = f"with these weights the network fails where it did not before: {error}"
        return (Sign("fails", "", why, alarming=True),)
    return ()


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
        _headline(vetting),
        *(f"  {sign}" for sign in alarming),
        *(["also noticed:"] if others else []),
        *(f"  {sign}" for sign in others),
    ]
    if vetting.digest:
        lines.append(f"digest {vetting.digest}")
    if not vetting.crafted:
        lines.append("Compare the digest with other clients': a model made for you alone can look honest.")
    return "\n".join(lines)


def _headline(vetting: Vetting) -> str:
    if not vetting.crafted:
        return "clean: no known way of crafting a model shows in it."
    if not vetting.digest:
        return (
            "CRAFTED: do not train this model; it is not the network that you named "
            "(if you mistyped --model, --shape or --classes, the same is said)."
        )
    return "CRAFTED: do not train this model; it is built so that your update shows your data."

"""Vetting weights in a file, and the verdict in words."""

import re
from collections.abc import Collection, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from glasshouse.errors import BadInput
from glasshouse.models.files import OtherContent, read_named, some_of
from glasshouse.models.freezing import freeze, frozen_names
from glasshouse.models.loading import load_model, load_weights
from glasshouse.models.outputs import last_layer
from glasshouse.models.shapes import Shape
from glasshouse.vetting.probing import affordable
from glasshouse.vetting.signs import Sign
from glasshouse.vetting.structure import structure_signs
from glasshouse.vetting.vet import Vetting, check_request, vet

NOT_THE_NETWORK = {"new-layers", "missing-layers", "resized-layers", "other-content", "fails"}
"""Signs of a file that cannot be put into the network, which nothing more can be told of."""


def vet_file(
    weights: Path,
    network: str,
    shape: Shape,
    classes: int,
    *,
    train: Sequence[str] = (),
    guessed: bool = False,
    before: Sequence[Path] = (),
    peers: Sequence[str] = (),
    images: Tensor | None = None,
    labels: Tensor | None = None,
    seed: int | None = None,
) -> Vetting:
    """Judge the weights in a file for `network`, a name of the zoo or `package.module:factory`.

    `train` are patterns of what is trained, as of `model.train` in a configuration: files may lack the other
    tensors, which are those of a file before, or the factory's. `classes` may be `guessed` from the labels.
    `before` are files of the rounds before, oldest first; the rest is as `vet` takes it. Whatever the server
    may have put into a file that can be read is a verdict; only what the client got wrong is `BadInput`.
    """
    model = load_model(network, shape, classes)
    freeze(model, train)
    check_request(shape, classes, peers, images, labels, seed)
    affordable(model.eval(), shape)
    predecessors, frozen = [deepcopy(model) for _ in before], _Frozen(model)
    signs = [
        replace(sign, why=f"{path}, of an earlier round: {sign.why}")
        for path, predecessor in zip(before, predecessors)
        for sign in _loading_signs(path, predecessor, shape, frozen)
    ]
    signs = [*_loading_signs(weights, model, shape, frozen), *signs]
    if any(sign.name in NOT_THE_NETWORK for sign in signs):
        hints = tuple(_class_hints(weights, model, shape, classes)) if guessed else ()
        return Vetting(True, (*signs, *hints), "")
    vetting = vet(
        model, shape, classes, predecessors=predecessors, peers=peers, images=images, labels=labels, seed=seed
    )
    signs = sorted([*signs, *frozen.unseen(), *vetting.signs], key=lambda sign: not sign.alarming)
    return replace(vetting, crafted=any(sign.alarming for sign in signs), signs=tuple(signs))


class _Frozen:
    """The frozen tensors that files brought so far, by name: they stay as they are in later ones."""

    def __init__(self, model: nn.Module) -> None:
        self.names = sorted({*frozen_names(model)} & model.state_dict().keys())
        self._parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        self._held: dict[str, Tensor] = {}

    def put(self, model: nn.Module) -> None:
        """Give `model` those that are known."""
        if self._held:
            model.load_state_dict(model.state_dict() | self._held)

    def changes(self, model: nn.Module, brought: Collection[str]) -> Iterator[Sign]:
        """Signs where a file `brought` others than were known into `model`; they are the known ones next.

        Statistics do not alarm: some frameworks let frozen norms follow the data.
        """
        state = model.state_dict()
        arrived = {name: state[name].clone() for name in self.names if name in brought}
        changed = [
            name for name, tensor in arrived.items() if not torch.equal(tensor, self._held.get(name, tensor))
        ]
        self._held |= arrived
        for alarming in (True, False):
            if names := [name for name in changed if (name in self._parameters) is alarming]:
                why = f"{some_of(names)} differ from those of the round before, and nobody trains them"
                yield Sign("frozen-changed", "", why, alarming)

    def unseen(self) -> Iterator[Sign]:
        """A note on frozen tensors that no file held."""
        if names := [name for name in self.names if name not in self._held]:
            why = f"{some_of(names)} are in none of the files: those of --model stand in for them"
            yield Sign("frozen-unseen", "", why, alarming=False)


def _loading_signs(path: Path, model: nn.Module, shape: Shape, frozen: _Frozen) -> tuple[Sign, ...]:
    """What is odd about the weights in `path` as those of `model`, into which they are put if they can."""
    frozen.put(model)
    try:
        # What is not finite is part of the verdict.
        brought = load_weights(model, path, sound=False, optional=frozen.names)
    except OtherContent as refusal:
        return structure_signs(path, model, refusal, frozen.names)
    try:
        affordable(model, shape)
    except BadInput as error:
        why = f"with these weights the network fails where it did not before: {error}"
        return (Sign("fails", "", why, alarming=True),)
    return tuple(frozen.changes(model, brought))


def _class_hints(path: Path, model: nn.Module, shape: Shape, classes: int) -> Iterator[Sign]:
    """A note where the last layer in `path` has more classes than the client's labels suggest."""
    try:
        saved = read_named(path)
    except OtherContent:
        return
    name = f"{last_layer(model, shape)}.weight".lstrip(".")
    found, expected = saved.get(name), model.state_dict().get(name)
    if found is None or expected is None or not found.ndim or found.shape[1:] != expected.shape[1:]:
        return
    if len(found) > len(expected) == classes:
        why = (
            f"your labels suggest {classes} classes, the file's last layer has {len(found)}: "
            f"if that is what was agreed on, give --classes {len(found)}"
        )
        yield Sign("more-classes", name.rpartition(".")[0], why, alarming=False)


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

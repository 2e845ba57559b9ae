"""Signs that a received file is not the network that the client agreed to train.

A server that may add a layer needs no craft: Robbing the Fed and LOKI put one before the network.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from torch import Tensor, nn

from glasshouse.errors import one_line
from glasshouse.models.files import OtherContent, read_named
from glasshouse.vetting.signs import Sign

NAMED = 5
"""As many layers are named in a sign; the others are counted."""


def structure_signs(
    path: Path, model: nn.Module, refusal: OtherContent, optional: Collection[str] = ()
) -> tuple[Sign, ...]:
    """Why the weights in `path` are not those of `model`, which refused them with `refusal`.

    They may lack the `optional` tensors.
    """
    try:
        saved = read_named(path)
    except OtherContent:
        saved = {}
    state = model.state_dict()
    held = {name: state[name] for name in optional} | dict(saved)
    signs = network_signs(held, state) if saved else ()
    return signs or (Sign("other-content", "", str(refusal), alarming=True),)


def network_signs(saved: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> tuple[Sign, ...]:
    """What tells the tensors of another network, `saved`, from the `expected` ones."""
    return tuple(_differences(saved, expected))


def _differences(saved: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> Iterator[Sign]:
    """Layers that are there and should not be, that should be there, and of another shape."""
    new = [f"{_shown(name)} {_size(saved[name])}" for name in saved if name not in expected]
    missing = [f"{name} {_size(expected[name])}" for name in expected if name not in saved]
    resized = [
        f"{name} {_size(saved[name])} instead of {_size(expected[name])}"
        for name in expected
        if name in saved and saved[name].shape != expected[name].shape
    ]
    kinds = (
        ("new-layers", new, "the file has layers that your network does not: "),
        ("missing-layers", missing, "it lacks layers that your network has: "),
        ("resized-layers", resized, "layers have another shape: "),
    )
    for name, places, why in kinds:
        if places:
            more = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
            yield Sign(name, "", f"{why}{', '.join(places[:NAMED])}{more}", alarming=True)


def _shown(name: str) -> str:
    return one_line(name, 80) if name.isprintable() else one_line(repr(name), 80)


def _size(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "1"

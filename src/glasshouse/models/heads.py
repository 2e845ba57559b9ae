"""The head that a network has and a file of weights lacks, wherever in the network it lies."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

MOST = 3
"""A head has at most as many layers, of vectors and matrices: what differs in more is another network."""


@dataclass(frozen=True)
class NewHead:
    """The last `layers` of a network, by name, whose `tensors` are not a file's; `words` say why."""

    layers: tuple[str, ...]
    tensors: tuple[str, ...]
    words: str

    @property
    def layer(self) -> str:
        """The last of them, which gives the logits."""
        return self.layers[-1]


def head_elsewhere(saved: Mapping[str, Tensor], expected: Mapping[str, Tensor], last: str) -> NewHead | None:
    """The head of a network with the tensors `expected`, where those `saved` fit all before it; else null.

    `last` is the layer that gives the logits. The file may have a head of its own, under other names. Nothing
    else may differ: every tensor that the file lacks stands behind all that fit, in the order of the state,
    and both heads have at most `MOST` layers, no more than fit, none of which fits in part, and no tensor of
    more than two dimensions.
    """
    fit = [name for name, tensor in expected.items() if name in saved and saved[name].shape == tensor.shape]
    new = [name for name in expected if name not in saved]
    ignored = [name for name in saved if name not in expected]
    layers, others, body = _layers(new), _layers(ignored), _layers(fit)
    if [*expected] != [*fit, *new] or last not in layers:
        return None
    if {*layers, *others} & {*body, ""} or max(len(layers), len(others)) > min(MOST, len(body)):
        return None
    heads = [*(expected[name] for name in new), *(saved[name] for name in ignored)]
    if any(tensor.ndim > 2 for tensor in heads):
        return None
    own = f" (whose own, {_listed(ignored, saved)}, is ignored)" if ignored else ""
    words = f"the head ({_listed(new, expected)}) has no counterpart in the file{own}"
    return NewHead(tuple(sorted(layers, key=lambda layer: layer == last)), tuple(new), words)


def size_of(tensor: Tensor | None) -> str:
    """A tensor's shape as one says it: 10x512; `absent` where there is none."""
    return "absent" if tensor is None else "x".join(map(str, tensor.shape)) or "a number"


def _layers(names: Iterable[str]) -> list[str]:
    """The layers that the tensors are in."""
    return [*dict.fromkeys(name.rpartition(".")[0] for name in names)]


def _listed(names: Iterable[str], tensors: Mapping[str, Tensor]) -> str:
    shown = {name: name if name.isprintable() else repr(name) for name in names}
    return ", ".join(f"{words} {size_of(tensors[name])}" for name, words in shown.items())

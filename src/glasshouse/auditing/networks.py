"""The network that an audit begins with: made or handed over, with weights of a file, in part frozen."""

from collections.abc import Iterator, Mapping

from torch import Tensor, nn

from glasshouse.auditing.setting import ModelTable
from glasshouse.learning.layout import Layout
from glasshouse.models.freezing import freeze
from glasshouse.models.heads import NewHead
from glasshouse.models.loading import checked_copy, reinitialised, seeded_model
from glasshouse.models.shapes import Shape
from glasshouse.models.weights import load_but_head


def make_network(
    table: ModelTable, model: nn.Module | None, shape: Shape, classes: int, seed: int
) -> tuple[nn.Module, NewHead | None]:
    """The network that `table` names, or a copy of `model`, with its first weights.

    Those of a file may fit all but the head, which is then drawn from `seed`; without a file all are,
    but for those of `model`, which has its own.
    """
    if model is None:
        network = seeded_model(table.name, shape, classes, seed)
    else:
        network = checked_copy(model, shape, classes)
    head = load_but_head(network, table.weights, shape) if table.weights else None
    if head is not None and model is not None:
        network.load_state_dict(network.state_dict() | _drawn_head(network, head, seed))
    freeze(network, table.train)
    return network, head


def fresh_start(
    start: Tensor,
    model: nn.Module,
    spec: str | None,
    head: NewHead | None,
    shape: Shape,
    classes: int,
    seed: int,
) -> Tensor:
    """First weights for another network like `model`, drawn from `seed`, shape (P,).

    `spec` is its name; null where it was handed over as an object. With a new `head` that alone is drawn, and
    the others are those of `start`.
    """
    drawn: Mapping[str, Tensor]
    if spec is not None:
        drawn = seeded_model(spec, shape, classes, seed, like=model).state_dict()
    elif head is None:
        drawn = reinitialised(model, seed).state_dict()
    else:
        drawn = _drawn_head(model, head, seed)
    vector = start.clone()
    for name, piece in Layout.of(model).named(vector).items():
        if head is None or name in head.tensors:
            piece.copy_(drawn[name])
    return vector


def _drawn_head(network: nn.Module, head: NewHead, seed: int) -> dict[str, Tensor]:
    """The tensors of a head whose layers drew their weights anew, by name."""
    drawn: dict[str, Tensor] = {}
    for place, name in enumerate(reversed(head.layers)):
        layer = reinitialised(network.get_submodule(name), seed + place)
        drawn |= layer.state_dict(prefix=f"{name}.")
    return drawn


def news_of(network: nn.Module, head: NewHead | None, seed: int) -> Iterator[str]:
    """What a reader has to know of the network's weights, in words."""
    if head is not None:
        yield f"{head.words} and was drawn anew with seed {seed}"
    layout = Layout.of(network)
    if layout.frozen:
        count = sum(parameter.numel() for parameter in network.parameters())
        yield (
            f"clients train and send {layout.sent} of the {count:,} parameters; the others are frozen, "
            "and everybody has them"
        )

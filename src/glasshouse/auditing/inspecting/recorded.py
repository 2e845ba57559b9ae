"""One recorded update as its files hold it: the weights sent, and numbers of one of three kinds.

A *gradient* g, a *delta* (the weights after less those before, -lr g for one step of SGD), or the weights
*after*. What a file does not say of itself is told by its numbers, as far as they can tell it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from glasshouse.errors import BadInput
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.models.files import check_names, fitting, read_named, read_notes
from glasshouse.models.freezing import exchanged
from glasshouse.models.loading import load_weights

Kind = Literal["gradient", "delta", "after"]
KINDS: tuple[Kind, ...] = ("gradient", "delta", "after")

NEAR = 0.5
"""From this cosine to the weights before on, an update is the weights after.

Local training turns weights by less; gradients and deltas of thousands of entries have cosines near 0.
"""

FAR = 0.25
"""Below this cosine an update is no weights after; between the two nobody can tell."""

ALIKE = 1.5
"""Weights of one architecture that were drawn twice agree in the size of every tensor within this factor."""

COUNTED = 64
"""Entries of a tensor whose size tells how it was drawn."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """The `network` with the weights `sent`, shape (P,), and the `values` of the update's file, shape (P,).

    `held`, bool of shape (P,), is false for buffers that the file leaves out. `precision` is the relative
    spacing of the numbers it was saved in. `steps` are those that batch norm counted, where it did.
    """

    network: nn.Module
    layout: Layout
    sent: Tensor
    values: Tensor
    held: Tensor
    precision: float
    stated: str | None = None
    steps: int | None = None

    def change(self, kind: Kind) -> Tensor:
        """The change of the weights, shape (P,), that the values stand for; of a gradient its negative."""
        if kind == "after":
            return torch.where(self.held, self.values - self.sent, 0.0)
        if kind == "delta":
            return self.values.clone()
        change = -self.values
        change[self.layout.trainable :] = 0
        return change


def read_recorded(network: nn.Module, before: Path, update: Path) -> Recorded:
    """Read both files; `network` gets the weights before."""
    load_weights(network, before)
    layout, state = Layout.of(network), network.state_dict()
    saved = read_named(update)
    parameters = exchanged(network).keys()
    check_names(update, saved, parameters, state.keys() - parameters)
    parts, held = [], []
    for name, shape in zip(layout.names, layout.shapes):
        present = name in saved
        blank = torch.zeros(shape, dtype=state[name].dtype)
        parts.append(fitting(update, name, saved[name], state[name], sound=True) if present else blank)
        held.append(torch.full((blank.numel(),), present))
    recorded = Recorded(
        network=network,
        layout=layout,
        sent=read_vector(network),
        values=torch.cat([part.reshape(-1) for part in parts]),
        held=torch.cat(held),
        precision=max(torch.finfo(saved[name].dtype).eps for name in parameters),
        stated=_stated(update),
        steps=_counted_steps(state, saved),
    )
    if not recorded.values[: layout.trainable].any():
        raise BadInput(
            f"update {update} holds zeros alone, which say nothing; record one that moved the model"
        )
    return recorded


def told_kind(recorded: Recorded, kind: str, update: Path, before: Path) -> tuple[tuple[Kind, ...], str]:
    """The kinds that the update may be of, and how that is known.

    Its file may state it, under `kind` in the header of safetensors. Else weights after show by their
    direction; a gradient and a delta are told apart by what the last layer says, which comes later.
    """
    if kind == "auto" and recorded.stated is not None:
        chosen, why = recorded.stated, "its file says so"
    elif kind == "auto":
        chosen, why = _by_direction(recorded, update, before)
    else:
        chosen, why = kind, "as you said"
    if chosen == "":
        return ("gradient", "delta"), ""
    if chosen == "after":
        _check_after(recorded, update, before)
    return (next(known for known in KINDS if known == chosen),), why


def _by_direction(recorded: Recorded, update: Path, before: Path) -> tuple[str, str]:
    cosine = _cosine(recorded)
    if cosine >= NEAR:
        return "after", f"it points where the weights before do (cosine {cosine:.3f})"
    if cosine > FAR:
        raise BadInput(
            f"update {update} has a cosine of {cosine:.2f} to {before}: too much for a gradient or a delta, "
            "too little for the weights after; say which it is with --kind"
        )
    if _drawn_alike(recorded):
        raise BadInput(
            f"update {update} looks like weights of another model than {before} (cosine {cosine:.2f}, every "
            "tensor of the same size); give the weights that this client received, or say --kind"
        )
    return "", ""


def _check_after(recorded: Recorded, update: Path, before: Path) -> None:
    trainable = recorded.layout.trainable
    moved = recorded.change("after")[:trainable].norm()
    if not moved:
        raise BadInput(
            f"update {update} equals {before}: nothing was learned; give the weights after training"
        )
    if moved > recorded.sent[:trainable].norm() > 0:
        raise BadInput(
            f"update {update} lies further from {before} than zero does, so these are weights of two models; "
            "give the weights that this client received"
        )


def _cosine(recorded: Recorded) -> float:
    trainable = recorded.layout.trainable
    one, other = recorded.values[:trainable].double(), recorded.sent[:trainable].double()
    lengths = float(one.norm() * other.norm())
    return float(one @ other) / lengths if lengths else 0.0


def _drawn_alike(recorded: Recorded) -> bool:
    """Whether each large tensor of the update is of the size of the weights before."""
    pairs = zip(recorded.layout.named(recorded.values).values(), exchanged(recorded.network).values())
    ratios = [
        float(value.norm() / weight.detach().norm().clamp_min(1e-30))
        for value, weight in pairs
        if value.numel() >= COUNTED
    ]
    return len(ratios) > 1 and all(1 / ALIKE < ratio < ALIKE for ratio in ratios)


def _stated(update: Path) -> str | None:
    """The kind that the file states; null where it states none that there is."""
    stated = read_notes(update).get("kind")
    return stated if stated in KINDS else None


def _counted_steps(before: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> int | None:
    """How many steps batch norm counted between the two, where both files hold its counter."""
    counters = [name for name in before if name.endswith("num_batches_tracked") and name in saved]
    steps = max((int(saved[name]) - int(before[name]) for name in counters), default=0)
    return steps if steps > 0 else None

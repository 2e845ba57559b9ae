"""The mode that a client trained in: what its file tells, what its user says, and else what is assumed."""

from collections.abc import Iterator
from typing import Literal

import torch

from glasshouse.attacks.inversion.updates import BatchNorm, Dropout
from glasshouse.auditing.inspecting.recorded import Kind, Recorded

Mode = Literal["train", "eval"]
MODES: tuple[Mode, ...] = ("train", "eval")


def training_mode(recorded: Recorded, kind: Kind, told: str) -> tuple[Mode, tuple[str, ...]]:
    """The mode of the training behind an update of this kind, and how it is known, in words.

    In train mode batch norm moves its running statistics with every batch, in eval mode it leaves them alone.
    A gradient has none, and files may leave them out. Where the network has neither batch norm nor dropout,
    both modes are one, and there is nothing to say.
    """
    chosen = next((mode for mode in MODES if mode == told), None)
    if not any(isinstance(module, BatchNorm | Dropout) for module in recorded.network.modules()):
        return chosen or "train", ()
    if chosen is not None:
        return chosen, (f"You say that the client trained in {chosen} mode.",)
    moved = [] if kind == "gradient" else list(_statistics_moved(recorded, kind))
    if any(moved):
        return "train", ("The client trained in train mode: its batch norm statistics moved.",)
    if moved:
        return "eval", ("The client trained in eval mode: its batch norm statistics did not move.",)
    return "train", ("It is read as trained in train mode, which nothing tells; --mode eval says otherwise.",)


def _statistics_moved(recorded: Recorded, kind: Kind) -> Iterator[bool]:
    """Whether they moved by more than rounding, for each of the running statistics that the file holds."""
    layout = recorded.layout
    held, before, change = map(layout.named, (recorded.held, recorded.sent, recorded.change(kind)))
    for name, module in recorded.network.named_modules():
        if isinstance(module, BatchNorm):
            for statistic in ("running_mean", "running_var"):
                buffer = f"{name}.{statistic}".lstrip(".")
                if buffer in held and held[buffer].all():
                    rounding = recorded.precision * before[buffer].abs()
                    yield bool(torch.any(change[buffer].abs() > rounding))

"""What a message of FLARE holds: the arrays of a model, by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable

from glasshouse.errors import BadInput, quoted

KINDS = {DataKind.WEIGHTS: "after", DataKind.WEIGHT_DIFF: "delta"}


class Disguised(BadInput):
    """The tensors are encrypted or quantised, which is no fault of theirs."""


@dataclass(frozen=True, eq=False)
class Contents:
    """Arrays by name: weights ("after" training, or as they are sent), or a "delta" of them.

    `steps` is the number by which the server weighs a result: what the client reports as
    NUM_STEPS_CURRENT_ROUND, or 1.
    """

    kind: str
    arrays: Mapping[str, np.ndarray]
    steps: float

    def changed_to(self, kind: str, sent: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The arrays as weights "after" training, or as a "delta", of those that were `sent`.

        Whole numbers, such as batch norm's counters of steps, are left out where that takes arithmetic.
        """
        if kind == self.kind:
            return dict(self.arrays)
        sign = 1 if kind == "after" else -1
        return {
            name: array + sign * sent[name]
            for name, array in self.arrays.items()
            if array.dtype.kind == sent[name].dtype.kind == "f"
        }


def read_contents(message: Shareable) -> Contents | None:
    """What `message` holds; null where it reports an error, or holds something else than a model."""
    if message.get_return_code() != ReturnCode.OK:
        return None
    try:
        exchanged = from_shareable(message)
    except ValueError:
        return None  # of another kind
    if exchanged.data_kind not in KINDS:
        return None
    return contents_of(exchanged)


def contents_of(exchanged: DXO) -> Contents:
    """The arrays of weights, or of a difference of weights."""
    disguise = exchanged.get_meta_prop(MetaKey.PROCESSED_ALGORITHM)
    if disguise is not None:
        raise Disguised(
            f"the tensors are encrypted or quantised by {quoted(disguise)}, so that nothing can be read from "
            "them; run the job without it"
        )
    arrays = {name: as_array(name, value) for name, value in exchanged.data.items()}
    steps = exchanged.get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND, 1)
    try:
        return Contents(KINDS[exchanged.data_kind], arrays, float(steps))
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"NUM_STEPS_CURRENT_ROUND = {quoted(steps)} is no number") from None


def as_array(name: str, value: Any) -> np.ndarray:
    """A tensor of torch, or of numpy, or a number, as an array of its own."""
    if hasattr(value, "materialize"):  # left on the disk by FLARE until somebody needs it
        value = value.materialize()
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if value.dtype.is_floating_point and value.dtype.itemsize < 4:
            value = value.float()  # numpy has no bfloat16
        value = value.numpy()
    try:
        array = np.array(value)
    except ValueError:
        raise BadInput(f"{quoted(name)} is no array; send numpy arrays or tensors") from None
    if array.dtype.kind not in "fiub":
        raise BadInput(f"{quoted(name)} is {array.dtype}, not numbers; send numpy arrays or tensors")
    return array


def replaced(message: Shareable, arrays: Mapping[str, np.ndarray]) -> Shareable:
    """The same message with other arrays, each as the type that its tensor had."""
    exchanged = from_shareable(message)
    exchanged.data = {name: _like(exchanged.data[name], array) for name, array in arrays.items()}
    return exchanged.update_shareable(message)


def emptied(message: Shareable) -> Shareable:
    """The same message without a tensor: FedAvg passes it over, where an error would end the job."""
    exchanged = from_shareable(message) if _is_exchange(message) else DXO(DataKind.WEIGHTS, data={})
    for name in _entries_beside(message):
        del message[name]  # it may tell as much as the tensors
    meta = {name: value for name, value in exchanged.meta.items() if _is_plain(value)}
    return DXO(exchanged.data_kind, data={}, meta=meta).update_shareable(message)


def fault_of_kind(message: Shareable) -> str | None:
    """Why a client's result is no model, and reports no error alone either; null where it is one of both."""
    failed = message.get_return_code() != ReturnCode.OK
    if not _is_exchange(message):
        alone = failed and set(message) == set(Shareable())
        return None if alone else "it is of a kind that FLARE does not exchange models by"
    kind = from_shareable(message).data_kind
    if kind not in KINDS:
        name = quoted(getattr(kind, "value", kind))
        return f"it is of the kind {name}, neither weights nor their difference"
    return "it reports an error, and holds a model" if failed else None


def fault_beside(message: Shareable) -> str | None:
    """Which entry beside the model in a client's result is more than text and single numbers, if one is."""
    entries = {name: message[name] for name in _entries_beside(message)}
    if _is_exchange(message):
        entries |= from_shareable(message).meta
    for name, value in entries.items():
        if not _is_plain(value):
            return f"{quoted(name)} travels beside the model and may hold arrays; leave it out of the result"
    return None


def _is_exchange(message: Shareable) -> bool:
    try:
        from_shareable(message)
    except ValueError:
        return False
    return True


def _entries_beside(message: Shareable) -> set[str]:
    """The entries that are no part of what FLARE writes for a model."""
    return set(message) - set(DXO(DataKind.WEIGHTS, data={}).to_shareable())


def _is_plain(value: Any) -> bool:
    """Whether it is text, or single numbers: a list of numbers says as much as an array."""
    if isinstance(value, Mapping):
        return all(_is_plain(one) for one in (*value, *value.values()))
    if isinstance(value, list | tuple | set):
        return all(isinstance(one, str) or one is None for one in value)
    return value is None or isinstance(value, str | int | float) or getattr(value, "shape", None) == ()


def _like(before: Any, array: np.ndarray) -> Any:
    if hasattr(before, "detach"):
        import torch

        return torch.from_numpy(array).to(before.dtype)
    return array.astype(np.asarray(before).dtype, copy=False)

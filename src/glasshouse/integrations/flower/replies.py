"""What a client's reply holds, in Flower's Message API and in its legacy one."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.common import parameters_to_ndarrays

from glasshouse.errors import BadInput

WEIGHT = "num-examples"
"""The metric by which Flower's strategies weigh clients unless they are told another."""


def model_in(content: Any, key: str) -> Any:
    """The record of arrays that is the model: that under `key`, or the only one there is."""
    records = content.array_records
    if key in records:
        return records[key]
    if len(records) != 1:
        raise BadInput(
            f"a message holds {len(records)} records of arrays ({', '.join(records) or 'none'}), and none is "
            f"called {key!r}; say which is the model, by the strategy's arrayrecord_key"
        )
    return next(iter(records.values()))


def arrays_in(record: Any) -> dict[str, np.ndarray]:
    """The arrays of a record by name."""
    return {name: array.numpy() for name, array in record.items()}


def weight_in(content: Any, key: str) -> Any:
    """How much a reply weighs in the mean, usually its number of samples."""
    for metrics in content.metric_records.values():
        if key in metrics:
            return metrics[key]
    raise BadInput(f"the reply has no metric {key!r}, by which the strategy weighs it")


def told_in(content: Any) -> list[Mapping[str, Any]]:
    """The metrics and settings of a reply."""
    return [*content.metric_records.values(), *content.config_records.values()]


def opens_sums(grid: Any) -> bool:
    """Whether `grid` is a `SecureGrid`, which opens sums; an app without torch cannot import it to ask."""
    return bool(getattr(grid, "opens_sums", False))


def legacy_arrays(parameters: Any) -> list[np.ndarray]:
    """The arrays of legacy parameters, which have an order and no names."""
    return list(parameters_to_ndarrays(parameters))

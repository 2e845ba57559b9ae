"""Turns away what a client should not have sent, so that the round goes on with the others."""

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import Error, Message

from glasshouse.errors import BadInput, named, quoted
from glasshouse.integrations.flower.extending import extended
from glasshouse.integrations.flower.labels import NO_SUM, PROTOCOL
from glasshouse.integrations.flower.naming import ClientNames
from glasshouse.integrations.flower.replies import (
    WEIGHT,
    arrays_in,
    legacy_arrays,
    model_in,
    opens_sums,
    told_in,
    weight_in,
)

logger = logging.getLogger("flwr")

MOD_FAILED_PRECONDITION = 6
"""Flower's code for a message that did not meet a condition."""

Forms = Mapping[str, tuple[int, ...]]
"""The shapes of a model's arrays by name."""

Lengths = frozenset[tuple[str, int]]
"""Metrics by name and length; that of a single number is 0."""


def screen(strategy: Any, *, named_by: str | None = None) -> Any:
    """A strategy that does what `strategy` does with the replies that can be combined, and with no others.

    A reply is turned away if its model has other names or shapes than the one sent, or numbers that are NaN
    or infinite, or if it weighs nothing sensible; Flower's log says whose it is, and why. To the strategy it
    is a failure like that of a client that crashed. A client is called by its node's number, or by what it
    sends in a metric or setting under the key `named_by`. Around a recorded strategy, `screen(record(...))`,
    the record has only what was combined.
    """
    return extended(
        strategy, ScreensMessages, ScreensFits, _screened_names=ClientNames(named_by), _screened_forms={}
    )


class ScreensMessages:
    """The steps of a strategy of `flwr.serverapp`, with a look at each reply."""

    _screened_names: ClientNames
    _screened_forms: Forms
    _screened_sums = False

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> list[Any]:
        messages = list(super().configure_train(server_round, arrays, config, grid))  # type: ignore[misc]
        self._screened_sums = opens_sums(grid)
        if messages:
            sent = model_in(messages[0].content, self._model_key)
            self._screened_forms = _forms(arrays_in(sent))
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> Any:
        replies = list(replies)
        usual = _usual_metrics(replies)
        screened = [self._screened(server_round, reply, usual) for reply in replies]
        return super().aggregate_train(server_round, screened)  # type: ignore[misc]

    def _screened(self, number: int, reply: Any, usual: Lengths) -> Any:
        if not reply.has_content():
            return reply
        fault = _fault(lambda: self._check(reply.content, usual))
        if fault is None:
            return reply
        client = self._screened_names.of(reply.metadata.src_node_id, told_in(reply.content))
        reason = _turned_away(number, client, fault)
        return Message(metadata=reply.metadata, error=Error(MOD_FAILED_PRECONDITION, reason))

    def _check(self, content: Any, usual: Lengths) -> None:
        if PROTOCOL in content and not self._screened_sums:
            raise BadInput(NO_SUM)
        if len(content.array_records) != 1 or len(content.metric_records) != 1:
            raise BadInput("it does not hold one record of arrays and one of metrics")
        (metrics,) = content.metric_records.values()
        if _lengths(metrics) != usual:
            raise BadInput("its metrics are not those that most clients send")
        _check_weight(weight_in(content, getattr(self, "weighted_by_key", WEIGHT)))
        _check_arrays(arrays_in(model_in(content, self._model_key)), self._screened_forms)

    @property
    def _model_key(self) -> str:
        return getattr(self, "arrayrecord_key", "arrays")


class ScreensFits:
    """The steps of a strategy of `flwr.server`, with a look at each result."""

    _screened_names: ClientNames
    _screened_forms: Forms

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        instructions = super().configure_fit(server_round, parameters, client_manager)  # type: ignore[misc]
        if instructions:
            self._screened_forms = _forms(_numbered(instructions[0][1].parameters))
        return instructions

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        kept, turned_away = [], list(failures)
        for client, fit in results:
            fault = _fault(lambda fit=fit: self._check(fit))
            if fault is None:
                kept.append((client, fit))
            else:
                _turned_away(server_round, self._screened_names.of(client.node_id, [fit.metrics]), fault)
                turned_away.append((client, fit))
        return super().aggregate_fit(server_round, kept, turned_away)  # type: ignore[misc]

    def _check(self, fit: Any) -> None:
        _check_weight(fit.num_examples)
        _check_arrays(_numbered(fit.parameters), self._screened_forms)


def _fault(check: Any) -> str | None:
    """What is wrong with a reply, in words; null where nothing is."""
    try:
        check()
    except BadInput as fault:
        return str(fault)
    except Exception as error:  # bytes of a stranger, read by numpy
        return f"it cannot be read ({named(error)})"
    return None


def _turned_away(number: int, client: str, fault: str) -> str:
    reason = f"round {number}: the reply of client {client} is turned away: {fault}"
    logger.warning("Glasshouse: %s", reason)
    return reason


def _check_weight(weight: Any) -> None:
    sensible = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not sensible or not math.isfinite(weight) or weight <= 0:
        raise BadInput(f"it weighs {quoted(weight)}; its number of samples must be above 0")


def _check_arrays(arrays: Mapping[str, np.ndarray], forms: Forms) -> None:
    for name in {**forms, **arrays}:
        if name not in arrays:
            raise BadInput(f"{name} is missing")
        if name not in forms:
            raise BadInput(f"{quoted(name)} is no part of the model sent")
        array = arrays[name]
        if array.shape != forms[name]:
            raise BadInput(f"{name} has shape {array.shape}, in the model sent {forms[name]}")
        if array.dtype.kind not in "fiub":
            raise BadInput(f"{name} holds {array.dtype}, not numbers")
        if not np.isfinite(array).all():
            raise BadInput(f"{name} holds NaN or infinite numbers")


def _usual_metrics(replies: Iterable[Any]) -> Lengths:
    """The metrics that most clients send: Flower stops where they are not the same for all."""
    sent = Counter(
        _lengths(metrics)
        for reply in replies
        if reply.has_content()
        for metrics in reply.content.metric_records.values()
    )
    return sent.most_common(1)[0][0] if sent else frozenset()


def _lengths(metrics: Mapping[str, Any]) -> Lengths:
    return frozenset((name, len(value) if isinstance(value, list) else 0) for name, value in metrics.items())


def _forms(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}


def _numbered(parameters: Any) -> dict[str, np.ndarray]:
    """Legacy parameters by their places."""
    return {f"parameter {place}": array for place, array in enumerate(legacy_arrays(parameters))}

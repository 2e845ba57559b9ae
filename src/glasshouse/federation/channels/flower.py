"""Flower's SecAgg+ as a channel, run in this process."""

import logging
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from glasshouse.errors import BadInput
from glasshouse.federation.channels.channel import (
    Channel,
    RoundFailed,
    check_dropouts,
    check_updates,
    draw_dropouts,
    staying,
)
from glasshouse.federation.secagg.messages import needed
from glasshouse.federation.secagg.ring import Ring, narrow_clients
from glasshouse.federation.updates import Delivery, Update
from glasshouse.learning.seeds import derive


@dataclass(frozen=True, kw_only=True)
class FlowerSecAgg(Channel):
    """Flower's `SecAggPlusWorkflow` and `secaggplus_mod`, with as many shares of a secret as `neighbours`.

    None: as there are clients, as in Bonawitz et al. The other options are those of the channel `secure`,
    but Flower rounds to levels at random.
    """

    shows_updates = False
    least = 2

    clip: float = 8.0
    bits: int = 22
    threshold: float = 2 / 3
    neighbours: int | None = None
    dropout_before: float = 0.0
    dropout_after: float = 0.0

    def __post_init__(self) -> None:
        Ring(clip=self.clip, bits=self.bits, clients=2)
        if self.bits > 30:
            raise BadInput(f"bits = {self.bits} is out of range; Flower sums modulo 2^32, give at most 30")
        if not 0.5 < self.threshold < 1:
            raise BadInput(f"threshold = {self.threshold} is out of range; it must lie in (0.5, 1)")
        if self.neighbours is not None and (self.neighbours < 3 or self.neighbours % 2 == 0):
            raise BadInput(f"neighbours = {self.neighbours} is out of range; give an odd number from 3")
        check_dropouts(self.dropout_before, self.dropout_after)

    def fewest(self, clients: int) -> int:
        return staying(clients, self.dropout_before)

    @property
    def largest(self) -> float:
        return self.clip

    def deliver(self, updates: Sequence[Update], seed: int) -> Delivery:
        self._check(updates)
        before, after = draw_dropouts(
            [update.client for update in updates], self.dropout_before, self.dropout_after, seed
        )
        grid = InProcess(updates, before, after)
        with _as_a_quiet_run(seed):
            mean = _play(grid, self._workflow(updates), grid.nodes)
        survivors = [update for update in updates if update.client not in before]
        return Delivery(
            torch.from_numpy(mean).to(updates[0].delta.dtype),
            sum(update.samples for update in survivors),
            tuple(update.client for update in survivors),
        )

    @property
    def described(self) -> str:
        sharing = "all clients" if self.neighbours is None else f"{self.neighbours} neighbours"
        return (
            f"Flower's SecAgg+: entries clipped at {self.clip:g} and rounded at random to 2^{self.bits} "
            f"levels, summed under masks modulo 2^32, shares of {self.threshold:.0%} of {sharing} needed, "
            f"{self.dropout_before:.0%} of the clients dropping out before they send and "
            f"{self.dropout_after:.0%} after"
        )

    def _check(self, updates: Sequence[Update]) -> None:
        if len(updates) < 2:
            raise RoundFailed(
                f"SecAgg+ needs at least 2 clients in a round, {len(updates)} took part; let more of them"
            )
        check_updates(updates)
        if len(updates) > narrow_clients(self.bits):
            raise BadInput(
                f"{len(updates)} clients of {self.bits} bits overflow Flower's sum modulo 2^32; "
                "lower bits or take the channel secure"
            )
        for update in updates:
            if not torch.isfinite(update.delta).all():
                raise BadInput(
                    f"client {update.client}: the update holds NaN or infinite entries; "
                    "lower its learning rate"
                )

    def _workflow(self, updates: Sequence[Update]) -> Any:
        """Flower's server side; the sum can never overflow, as no client weighs more than one."""
        complete = self.neighbours is None or self.neighbours >= len(updates)
        shares = len(updates) if complete else self.neighbours
        assert shares is not None
        return _flower().server.workflow.SecAggPlusWorkflow(
            num_shares=1.0 if complete else shares,
            reconstruction_threshold=needed(shares, self.threshold),
            max_weight=float(max(update.samples for update in updates)),
            clipping_range=float(self.clip),
            quantization_range=2**self.bits,
        )


class InProcess:
    """What Flower calls a grid: it hands messages to client apps and brings their replies back.

    Clients in `before` stop answering when asked for their masked vector, those in `after` when asked to
    unmask. Messages are copied, as the wire would.
    """

    def __init__(self, updates: Sequence[Update], before: set[int], after: set[int]) -> None:
        self.nodes = {update.client + 1: _client_app(update) for update in updates}  # nodes count from one
        self._contexts = {node: _context(node) for node in self.nodes}
        self._silent = {"collect_masked_vectors": before, "unmask": before | after}

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        """The replies of all clients that still answer."""
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            stage = message.content.config_records["secaggplus_configs"]["stage"]
            if node - 1 not in self._silent.get(stage, ()):
                reply = self.nodes[node](deepcopy(message), self._contexts[node])
                replies.append(deepcopy(reply))
        return replies


class _Collecting:
    """What Flower calls a strategy: all nodes take part, and the weighted mean is kept."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._nodes = nodes
        self.mean: Any = None

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> list[Any]:
        """One instruction for each node."""
        instruction = _flower().common.FitIns(parameters, {})
        return [(SimpleNamespace(node_id=node), instruction) for node in self._nodes]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> tuple[None, dict[str, Any]]:
        """Every result carries the same parameters here: the opened mean."""
        (self.mean,) = _flower().common.parameters_to_ndarrays(results[0][1].parameters)
        return None, {}


def _play(grid: InProcess, workflow: Any, nodes: Iterable[int]) -> Any:
    """The weighted mean, shape (P,), in double precision."""
    flower = _flower()
    strategy = _Collecting(nodes)
    context = flower.server.LegacyContext(_context(0), strategy=strategy)
    context.state["config"] = flower.app.ConfigRecord({"current_round": 1})
    context.state["parameters"] = flower.app.ArrayRecord()
    workflow(grid, context)
    if strategy.mean is None:
        raise RoundFailed(
            "Flower's SecAgg+ halted: too few clients are left; nothing of their updates was revealed; "
            "lower the share that drops out, or the threshold"
        )
    return strategy.mean


def _client_app(update: Update) -> Any:
    """A Flower client whose training gives `update`."""
    flower = _flower()

    def fit(self: Any, parameters: Any, config: Any) -> tuple[list[Any], int, dict[str, Any]]:
        return [update.delta.detach().numpy()], update.samples, {}

    sender = type("Sender", (flower.client.NumPyClient,), {"fit": fit})
    return flower.clientapp.ClientApp(
        client_fn=lambda context: sender().to_client(), mods=[flower.client.mod.secaggplus_mod]
    )


def _context(node: int) -> Any:
    app = _flower().app
    return app.Context(run_id=1, node_id=node, node_config={}, state=app.RecordDict(), run_config={})


def _flower() -> Any:
    """The package `flwr` with the parts used here."""
    try:
        import flwr
        import flwr.app
        import flwr.client.mod
        import flwr.clientapp
        import flwr.common
        import flwr.server.workflow
        import flwr.supercore.task_identity
    except ImportError as error:
        raise BadInput(
            f"the channel flower needs Flower ({error}); install it with: pip install 'glasshouse[flower]'"
        ) from None
    return flwr


@contextmanager
def _as_a_quiet_run(seed: int) -> Iterator[None]:
    """Set, and restore, what Flower takes from the process: an identity, both global generators, its log."""
    identity = _flower().supercore.task_identity.TaskIdentity
    identifiers = {name: getattr(identity, name) for name in ("_task_id", "_run_id", "_node_id")}
    numbers, choices = np.random.get_state(), random.getstate()
    logger = logging.getLogger("flwr")
    level = logger.level
    identity.task_id = identity.run_id = identity.node_id = 1
    np.random.seed(derive(seed, "rounding") % 2**32)
    random.seed(derive(seed, "neighbours"))
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, value in identifiers.items():
            setattr(identity, name, value)
        np.random.set_state(numbers)
        random.setstate(choices)
        logger.setLevel(level)

"""Under which conditions a federation trains, and which of them cannot be."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from glasshouse.defences.defence import Stack
from glasshouse.defences.promise import Conditions
from glasshouse.errors import BadInput
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.channels.channel import Channel, Plain
from glasshouse.federation.history import History
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.strategy import Strategy
from glasshouse.learning.recipe import Recipe
from glasshouse.registry import parse_spec, write_spec

PROBE_ROUNDS = 1_000_000
"""Rounds that a crafting server runs are numbered from here, apart from those of the training.

Such a server says which round it is: its clients train at the largest learning rate of a schedule.
"""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long a federation runs and which rounds are recorded.

    A fraction `fraction` of the clients takes part in each round; the run ends after `rounds`, or when the
    global test accuracy reaches `target_accuracy`, or when `patience` rounds have not raised the accuracy on
    held-out images. The server's view is kept for the rounds in `observe`, with every single update if
    `observe_updates`, else with their mean alone.
    """

    rounds: int = 10
    fraction: float = 1.0
    target_accuracy: float | None = None
    observe: tuple[int, ...] = ()
    observe_updates: bool = True
    patience: int | None = None

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise BadInput(f"rounds = {self.rounds} is out of range; it must be at least 1")
        if not 0 < self.fraction <= 1:
            raise BadInput(f"fraction = {self.fraction} is out of range; it must lie in (0, 1]")

    def participants(self, clients: int) -> int:
        """How many of `clients` take part in a round."""
        return max(1, math.floor(self.fraction * clients + 0.5))


def conditions_of(
    strategy: Strategy,
    channel: Channel,
    recipe: Recipe,
    sizes: Sequence[int],
    plan: Plan,
    entries: int = 0,
) -> Conditions:
    """What everybody knows of a training by `plan`, in which clients of these `sizes` follow `recipe`.

    Their updates have so many `entries`.
    """
    return Conditions(
        rounds=plan.rounds,
        fraction=plan.fraction,
        sizes=tuple(sizes),
        recipe=recipe,
        trusted=channel.shows_updates,
        at_random=type(strategy).choose is FedAvg.choose,
        reports=tuple(strategy.client_reports),
        entries=entries,
    )


def defended_channel(channel: Channel, defences: Stack) -> Channel:
    """The channel that updates take under `defences`, in place of the setting's `channel`.

    Where clients of a plain channel drop out, so many do before they send, unless the defence says otherwise.
    """
    spec = defences.channel()
    if spec is None:
        return channel
    if isinstance(channel, Plain) and channel.dropout:
        name, options = parse_spec(spec, "channel")
        spec = write_spec(name, {"dropout_before": channel.dropout} | options)
    chosen: Channel = CHANNELS.make(spec)
    return chosen


def check_compatible(strategy: Strategy, channel: Channel, defences: Stack) -> None:
    """Refuse a strategy that needs more than a channel shows, or than a defence of the sum covers."""
    name = type(strategy).__name__
    if strategy.needs_updates and not channel.shows_updates:
        raise BadInput(
            f"{name} looks at every client's update, of which this channel shows only the sum; "
            'take the channel "plain", or a strategy that needs no more than the sum'
        )
    if defences.guards_sum and (strategy.needs_updates or strategy.sums_more):
        more = "looks at every client's update" if strategy.needs_updates else "sums more than the updates"
        raise BadInput(
            f"{name} {more}, which a defence of their sum (differential-privacy) does not cover; "
            "take another strategy, or defences that clients apply"
        )


def check_uncut(channel: Channel, defences: Stack, clients: int) -> None:
    """Refuse a channel that would cut the noise of the updates of `clients`, which nobody accounts for."""
    if channel.shows_updates:
        return
    largest = defences.largest_masked(channel.fewest(clients))
    if largest > channel.largest:
        raise BadInput(
            f"{defences} sends entries of up to {largest:.3g}, and the channel cuts them at "
            f"{channel.largest:g}, which no epsilon accounts for; give the channel "
            f"clip={math.ceil(largest)}, or the defence a smaller norm"
        )


def finished(history: History, plan: Plan) -> bool:
    """Whether a run by `plan` is at its end."""
    if not history.rounds:
        return False
    target, reached = plan.target_accuracy, history.rounds[-1].acc_global or 0
    if len(history.rounds) >= plan.rounds or (target is not None and reached >= target):
        return True
    return plan.patience is not None and _at_rest(history, plan.patience)


def _at_rest(history: History, patience: int) -> bool:
    """Whether the last `patience` rounds brought nothing better on held-out images than those before."""
    reached = [row.acc_held_out or 0.0 for row in history.rounds]
    before, late = reached[:-patience], reached[-patience:]
    return bool(before) and max(late) <= max(before)

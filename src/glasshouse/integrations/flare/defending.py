"""A client that defends each update before it leaves."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants
from nvflare.job_config.defs import FilterType

from glasshouse.defences.defence import Stack
from glasshouse.defences.reach import applicable
from glasshouse.errors import BadInput, quoted
from glasshouse.integrations.flare.checking import fault_in
from glasshouse.integrations.flare.contents import (
    Contents,
    fault_beside,
    fault_of_kind,
    read_contents,
    replaced,
)
from glasshouse.integrations.flare.events import about, withheld
from glasshouse.integrations.flare.jobs import add, check_tasks
from glasshouse.integrations.flare.networks import agreed, arrays_of, vector_of
from glasshouse.learning.layout import Layout
from glasshouse.learning.seeds import derive, torch_rng

ELSEWHERE = {
    "on_receive": "looks at the model that a client receives; add VetModel to the job instead",
    "on_aggregate": "acts on the sum of the updates, which a client never has",
    "on_masking": "acts on the sum of the updates, which a client never has",
    "training": "changes how a client trains, which is over when its update comes by; build it into the "
    "client's training",
    "on_batch": "changes the images of a batch, which are gone when the update comes by; build it into the "
    "client's training",
    "recipe": "changes how a client trains, which is over when its update comes by; build it into the "
    "client's training",
    "rounds": "plans the rounds, which the server does",
    "stopping": "ends the training early, which the server does",
    "channel": "is a protocol of all clients with the server",
}
"""What a filter of one client's update cannot do, by the hook of a defence that does it."""


class DefendUpdate(Filter):
    """Applies defences to a client's update: `DefendUpdate("clipping(norm=1.0)", "lenet", (1, 28, 28), 10)`.

    Those that act on something else than the update are refused. A result that is no update of the model, or
    has arrays beside it, stays at the client. Noise comes from the system's own randomness; with a `seed` it
    can be drawn again, by whoever knows the seed, so give one in experiments only.
    """

    def __init__(
        self,
        defences: str,
        model: str,
        shape: tuple[int, int, int],
        classes: int,
        seed: int | None = None,
        task: str = "train",
    ) -> None:
        super().__init__()
        self.defences, self.model, self.shape, self.classes = defences, model, shape, classes
        self.seed, self.task = seed, task
        self._stack = of_updates(defences)
        self._layout: Layout | None = None
        self._received: Contents | None = None
        self._round = 0

    def add_to_fed_job(self, job: Any, ctx: Any, **options: Any) -> None:
        """Called by the Job API and by recipes: what a client sends passes through here."""
        add(self, FilterType.TASK_RESULT, job, ctx, options)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Keep what the client received: its update is the difference."""
        if event_type == EventType.START_RUN:
            check_tasks(self, fl_ctx)
        elif event_type == EventType.BEFORE_TASK_EXECUTION and about(self.task, fl_ctx):
            task = fl_ctx.get_prop(FLContextKey.TASK_DATA)
            self._received = read_contents(task)
            self._round = task.get_header(AppConstants.CURRENT_ROUND, 0) + 1

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """The result as it may leave the client; nothing leaves undefended."""
        fault = fault_of_kind(shareable) or fault_beside(shareable)
        if fault is not None:
            return withheld(self, fault, shareable, fl_ctx)
        result = read_contents(shareable)
        if result is None:
            return shareable
        if self._received is None or self._received.kind != "after":
            raise BadInput("the task held no weights, so that the update cannot be told from the result")
        layout, sent = self._agreed_layout(), self._received.arrays
        fault = fault_in(result.arrays, sent, result.steps) or self._fault_in_update(result, sent)
        if fault is not None:
            return withheld(self, fault, shareable, fl_ctx)
        delta = vector_of(layout, result.changed_to("delta", sent))
        rng = self._rng(fl_ctx.get_identity_name())
        update = self._stack.on_update(delta.clone(), layout, rng)  # a defence may write into what it gets
        if result.kind == "after":
            # What no defence changes stays as it is, to the last digit.
            trained = vector_of(layout, result.arrays)
            update = torch.where(update == delta, trained, vector_of(layout, sent) + update)
        # What is no part of an update, such as batch norm's counters of steps, travels as it is.
        return replaced(shareable, {**result.arrays, **arrays_of(layout, update)})

    def _fault_in_update(self, result: Contents, sent: Mapping[str, np.ndarray]) -> str | None:
        """Why the result is not the update of the agreed network and nothing else; null where it is."""
        names = self._agreed_layout().names
        missing = [name for name in names if name not in result.arrays]
        if missing:
            return f"it lacks {missing[0]}, and so cannot be defended as the update of {self.model}"
        for name, array in result.changed_to("delta", sent).items():
            if name not in names and array.dtype.kind == "f" and array.any():
                return f"it changes {quoted(name)}, which is no part of the update of {self.model}"
        return None

    def _agreed_layout(self) -> Layout:
        if self._layout is None:
            self._layout = Layout.of(agreed(self.model, self.shape, self.classes))
        return self._layout

    def _rng(self, client: str) -> torch.Generator:
        if self.seed is None:
            rng = torch.Generator()
            rng.seed()
            return rng
        return torch_rng(derive(self.seed, "round", self._round), "client", client, "defence")


def of_updates(spec: str) -> Stack:
    """The defences that `spec` names, if all of them act on the update of one client and on nothing else."""
    stack = applicable(spec, ELSEWHERE)
    if not stack.defences:
        raise BadInput("defences = 'none' changes nothing; leave the filter out of the job")
    return stack

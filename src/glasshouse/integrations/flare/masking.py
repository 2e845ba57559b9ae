"""A client whose update leaves under masks, which cancel in the sum of all clients."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.job_config.defs import FilterType
from torch import Tensor

from glasshouse.errors import BadInput
from glasshouse.federation.secagg.client import Client
from glasshouse.federation.secagg.messages import Keys, Masked, Refused, Revealed, Shared, Terms
from glasshouse.federation.secagg.ring import Ring
from glasshouse.integrations.flare.checking import fault_in
from glasshouse.integrations.flare.contents import Contents, fault_of_kind, read_contents
from glasshouse.integrations.flare.events import about, withheld
from glasshouse.integrations.flare.jobs import add, check_tasks
from glasshouse.integrations.flare.wire import packed, unpacked
from glasshouse.options import check_whole

TOPIC = "glasshouse.secure-sum"
ASKED, ANSWER, REFUSAL = "asked", "answer", "refusal"
NAMES, SHAPES = "names", "shapes"


class MaskUpdates(Filter):
    """Keeps a client's update and lets only its masked form leave: `job.to_clients(MaskUpdates())`.

    The server adds the masked updates up with the aggregator `SecureSum`. An update enters one sum: who asks
    for it a second time is refused, and so is a sum that fewer than `fewest` clients could open.
    """

    def __init__(self, fewest: int = 2, task: str = "train") -> None:
        super().__init__()
        check_whole("MaskUpdates", "fewest", fewest, 2)
        self.fewest, self.task = fewest, task
        self._received: Contents | None = None
        self._update: tuple[Tensor, int] | None = None
        self._client: Client | None = None
        self._lock = threading.Lock()

    def add_to_fed_job(self, job: Any, ctx: Any, **options: Any) -> None:
        """Called by the Job API and by recipes: what a client sends passes through here."""
        add(self, FilterType.TASK_RESULT, job, ctx, options)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Listen for the server's requests, and keep the model that an update starts from."""
        if event_type == EventType.START_RUN:
            check_tasks(self, fl_ctx)
            fl_ctx.get_engine().register_aux_message_handler(TOPIC, self._answer)
        elif event_type == EventType.BEFORE_TASK_EXECUTION and about(self.task, fl_ctx):
            self._received = read_contents(fl_ctx.get_prop(FLContextKey.TASK_DATA))

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Send that there is an update, of so many samples, instead of the update."""
        fault = fault_of_kind(shareable)
        if fault is not None:
            return withheld(self, fault, shareable, fl_ctx)
        result = read_contents(shareable)
        if result is None:
            return shareable
        if self._received is None or self._received.kind != "after":
            raise BadInput("the task held no weights, so that the update cannot be told from the result")
        fault = fault_in(result.arrays, self._received.arrays, result.steps)
        if fault is None and not result.steps.is_integer():
            fault = f"it weighs {result.steps}, no whole number of samples"
        if fault is not None:
            return withheld(self, fault, shareable, fl_ctx)
        delta = result.changed_to("delta", self._received.arrays)
        names = sorted(name for name, array in delta.items() if array.dtype.kind == "f")
        vector = np.concatenate([delta[name].astype(np.float32).reshape(-1) for name in names])
        with self._lock:
            self._client, self._update = None, (torch.from_numpy(vector), int(result.steps))
        about = {NAMES: names, SHAPES: [list(delta[name].shape) for name in names]}
        told = DXO(DataKind.APP_DEFINED, about, {MetaKey.NUM_STEPS_CURRENT_ROUND: int(result.steps)})
        # Only what is named here leaves; other entries of the result may tell more.
        return told.to_shareable()

    def _answer(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        """The answer to one message of the protocol, or why there is none."""
        reply = Shareable()
        with self._lock:
            try:
                reply[ANSWER] = packed(self._step(request))
            except (Refused, BadInput) as refusal:
                self.log_error(fl_ctx, f"secure aggregation: {refusal}", fire_event=False)
                reply[REFUSAL] = str(refusal)
        return reply

    def _step(self, request: Mapping[str, Any]) -> Keys | Shared | Masked | Revealed:
        asked = request[ASKED]
        if asked == "keys":
            return self._begun(int(request["number"]), unpacked(request["terms"])).advertise()
        if self._client is None:
            raise Refused("no sum has begun")
        if asked == "shares":
            return self._client.share(unpacked(request["keys"]))
        if asked == "masked":
            if self._update is None:
                raise Refused("there is no update that did not enter a sum")
            masked = self._client.mask(unpacked(request["inbox"]), self._update[0])
            self._update = None
            return masked
        if asked == "revealed":
            return self._client.reveal(unpacked(request["request"]))
        raise Refused(f"nobody knows what {asked!r} asks for")

    def _begun(self, number: int, terms: object) -> Client:
        """The client of this sum, if its terms are safe."""
        if self._update is None:
            raise Refused("there is no update that did not enter a sum")
        vector, samples = self._update
        if not isinstance(terms, Terms) or not isinstance(terms.ring, Ring):
            raise Refused("the request has no terms")
        if terms.threshold < self.fewest:
            raise Refused(
                f"{terms.threshold} clients could open the sum, and it asks for {self.fewest} or more"
            )
        if terms.length != len(vector):
            raise Refused(f"the terms are for {terms.length} numbers, the update has {len(vector)}")
        self._client = Client(number, samples, terms)
        return self._client

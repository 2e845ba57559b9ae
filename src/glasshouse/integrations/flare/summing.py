"""The server's side of secure aggregation in a FLARE job."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from glasshouse.errors import LONGEST_MESSAGE, BadInput, named, one_line, quoted
from glasshouse.federation.channels.channel import RoundFailed
from glasshouse.federation.channels.secure import Secure
from glasshouse.federation.secagg.messages import Keys, Masked, Refused, Revealed, Shared
from glasshouse.federation.secagg.server import Server
from glasshouse.integrations.flare.contents import read_contents
from glasshouse.integrations.flare.events import SUMMED
from glasshouse.integrations.flare.masking import ANSWER, ASKED, NAMES, REFUSAL, SHAPES, TOPIC
from glasshouse.integrations.flare.wire import Answer, answer_of, packed

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""The names of tensors with their shapes, in the order in which a client's vector holds them."""


class SecureSum(ModelAggregator):
    """Adds up masked updates, of which it never sees one: `FedAvg(..., aggregator=SecureSum())`.

    The clients need `MaskUpdates`. The protocol is that of Glasshouse's channel `secure`, and so are the
    options; a client that does not answer within `timeout` seconds, or answers with something else than it is
    asked for, is left out of the sum.
    """

    def __init__(
        self, clip: float = 8.0, bits: int = 22, threshold: float = 2 / 3, timeout: float = 60.0
    ) -> None:
        super().__init__()
        self.clip, self.bits, self.threshold, self.timeout = clip, bits, threshold, timeout
        self._channel = Secure(clip=clip, bits=bits, threshold=threshold)  # checks them
        self._sent: dict[str, tuple[int, ...]] | None = None
        self.reset_stats()

    @property
    def described(self) -> str:
        """The protocol in words, as a record wants it."""
        return self._channel.described

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Note what the model looks like that a round begins with."""
        super().handle_event(event_type, fl_ctx)
        if event_type == AppEventType.BEFORE_TRAIN_TASK and self._sent is None:
            contents = read_contents(fl_ctx.get_prop(AppConstants.TRAIN_SHAREABLE))
            if contents is not None:
                self._sent = {name: array.shape for name, array in contents.arrays.items()}

    def reset_stats(self) -> None:
        """Begin a round."""
        self._sent = None
        self._samples: dict[str, int] = {}
        self._shapes: dict[str, Shapes] = {}

    def accept_model(self, model: FLModel) -> None:
        """A client has an update, of so many samples."""
        client = str(model.meta["client_name"])
        if not isinstance(model.params, Mapping) or set(model.params) != {NAMES, SHAPES}:
            raise BadInput(
                f"client {client} sent its update in the clear; add MaskUpdates to the clients' job"
            )
        shapes = _shapes_in(client, model.params)
        if self._sent is not None:
            _check_places(client, shapes, self._sent)
        samples = model.meta.get(FLMetaKey.NUM_STEPS_CURRENT_ROUND)
        if not isinstance(samples, int) or isinstance(samples, bool) or samples < 1:
            raise BadInput(f"client {client} has {quoted(samples)} samples; a whole number above 0 is needed")
        self._shapes[client], self._samples[client] = shapes, samples

    def aggregate_model(self) -> FLModel:
        """The weighted mean of the updates, after four questions to each client."""
        shapes = self._agreed_shapes()
        sizes = [math.prod(shape) for _, shape in shapes]
        try:
            mean = self._summed(dict(enumerate(self._samples.values())), sum(sizes))
        except RoundFailed as failure:
            raise RoundFailed(self._with_names(str(failure))) from None
        self.fire_event_with_data(SUMMED, self.fl_ctx, SUMMED, dict(self._samples))
        pieces = np.split(mean, np.cumsum(sizes)[:-1])
        params = {name: piece.reshape(shape) for (name, shape), piece in zip(shapes, pieces)}
        return FLModel(params_type=ParamsType.DIFF, params=params)

    def _agreed_shapes(self) -> Shapes:
        """Those of most clients; the others cannot be added to them, and are left out."""
        most = Counter(self._shapes.values()).most_common(1)
        for client, shapes in self._shapes.items():
            if shapes != most[0][0]:
                self.warning(f"client {client} is left out of the sum: it has other tensors than most")
                del self._samples[client]
        if len(self._samples) < 2:
            raise BadInput(f"secure aggregation needs at least 2 clients, {len(self._samples)} took part")
        return most[0][0]

    def _summed(self, samples: Mapping[int, int], length: int) -> np.ndarray:
        """The protocol, client by client; the mean has shape (length,)."""
        terms = self._channel.terms(samples, length, neighbours=None)
        server = Server(terms)
        server.collect(self._asked("keys", Keys, samples, lambda k: {"number": k, "terms": packed(terms)}))
        known = list(server.keys)
        server.route(self._asked("shares", Shared, known, lambda k: {"keys": packed(server.directory(k))}))
        sharing = list(server.sharing)
        for masked in self._asked("masked", Masked, sharing, lambda k: {"inbox": packed(server.inbox(k))}):
            server.add(masked)
        server.close()
        summed = list(server.masked)
        total = server.unmask(
            self._asked("revealed", Revealed, summed, lambda k: {"request": packed(server.request(k))})
        )
        for fault in server.faults:
            self.warning(f"secure aggregation went on without a message: {self._with_names(fault)}")
        left = [list(self._samples)[k] for k in samples if k not in server.masked]
        for client in left:
            del self._samples[client]
        weight = sum(self._samples.values())
        return terms.ring.read(total, terms.largest / weight, np.dtype(np.float32))

    def _asked(
        self, what: str, kind: type[Answer], clients: Iterable[int], told: Callable[[int], dict[str, Any]]
    ) -> Iterator[Answer]:
        """The answers of the clients that give one."""
        names = list(self._samples)
        engine = self.fl_ctx.get_engine()
        for client in clients:
            request = Shareable()
            request.update({ASKED: what, **told(client)})
            replies = engine.send_aux_request(
                [names[client]], TOPIC, request, self.timeout, self.fl_ctx, secure=False
            )
            try:
                answer = _answer_in((replies or {}).get(names[client]), client, kind)
            except Exception as error:  # whatever a client sends, the others go on
                why = str(error) if isinstance(error, Refused) else f"no answer can be read ({named(error)})"
                self.warning(f"client {names[client]} left the sum when asked for its {what}: {why}")
            else:
                yield answer

    def _with_names(self, text: str) -> str:
        """The text with the clients' names for their numbers."""
        names = dict(enumerate(self._samples))
        return re.sub(
            r"\bclient (\d{1,9})\b", lambda found: f"client {names.get(int(found[1]), found[1])}", text
        )


def _answer_in(reply: Mapping[str, Any] | None, client: int, kind: type[Answer]) -> Answer:
    if reply is None or ANSWER not in reply:
        why = "no answer" if reply is None else str(reply.get(REFUSAL, "no answer"))
        raise Refused(one_line(why, LONGEST_MESSAGE))
    return answer_of(client, kind, reply[ANSWER])


def _check_places(client: str, shapes: Shapes, sent: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in shapes:
        if name not in sent:
            raise BadInput(f"client {client} has a tensor {quoted(name)}, which the model sent lacks")
        if sent[name] != shape:
            raise BadInput(f"client {client} has {quoted(name)} in shape {shape}, {sent[name]} was sent")


def _shapes_in(client: str, params: Mapping[str, Any]) -> Shapes:
    names, shapes = params[NAMES], params[SHAPES]
    texts = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    whole = isinstance(shapes, list | tuple) and all(
        isinstance(shape, list | tuple) and all(isinstance(size, int) and size >= 0 for size in shape)
        for shape in shapes
    )
    if not (texts and whole and names and len(set(names)) == len(names) == len(shapes)):
        raise BadInput(f"client {client} does not say which tensors it has, by name and shape")
    return tuple(zip(names, map(tuple, shapes)))

"""The server's side of secure aggregation in a FLARE job."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator

from glasshouse.errors import BadInput
from glasshouse.federation.channels.secure import Secure
from glasshouse.federation.secagg.messages import Terms, needed
from glasshouse.federation.secagg.ring import Ring
from glasshouse.federation.secagg.server import Server
from glasshouse.integrations.flare.events import SUMMED
from glasshouse.integrations.flare.masking import ANSWER, ASKED, NAMES, REFUSAL, SHAPES, TOPIC
from glasshouse.integrations.flare.wire import packed, unpacked


class SecureSum(ModelAggregator):
    """Adds up masked updates, of which it never sees one: `FedAvg(..., aggregator=SecureSum())`.

    The clients need `MaskUpdates`. The protocol is that of Glasshouse's channel `secure`, and so are the
    options; a client that does not answer within `timeout` seconds is left out of the sum.
    """

    def __init__(
        self, clip: float = 8.0, bits: int = 22, threshold: float = 2 / 3, timeout: float = 60.0
    ) -> None:
        super().__init__()
        self.clip, self.bits, self.threshold, self.timeout = clip, bits, threshold, timeout
        Secure(clip=clip, bits=bits, threshold=threshold)  # checks them
        self.reset_stats()

    @property
    def described(self) -> str:
        """The protocol in words, as a record wants it."""
        return Secure(clip=self.clip, bits=self.bits, threshold=self.threshold).described

    def reset_stats(self) -> None:
        """Begin a round."""
        self._samples: dict[str, int] = {}
        self._places: tuple[list[str], list[list[int]]] | None = None

    def accept_model(self, model: FLModel) -> None:
        """A client has an update, of so many samples."""
        client = str(model.meta["client_name"])
        if set(model.params) != {NAMES, SHAPES}:
            raise BadInput(
                f"client {client} sent its update in the clear; add MaskUpdates to the clients' job"
            )
        places = (list(model.params[NAMES]), [list(shape) for shape in model.params[SHAPES]])
        if self._places is not None and self._places != places:
            raise BadInput(f"client {client} has other tensors than the clients before")
        self._places = places
        self._samples[client] = int(model.meta[FLMetaKey.NUM_STEPS_CURRENT_ROUND])

    def aggregate_model(self) -> FLModel:
        """The weighted mean of the updates, after four questions to each client."""
        if len(self._samples) < 2 or self._places is None:
            raise BadInput(f"secure aggregation needs at least 2 clients, {len(self._samples)} took part")
        names, shapes = self._places
        sizes = [math.prod(shape) for shape in shapes]
        samples = dict(enumerate(self._samples.values()))
        mean = self._summed(samples, sum(sizes))
        self.fire_event_with_data(SUMMED, self.fl_ctx, SUMMED, dict(self._samples))
        pieces = np.split(mean, np.cumsum(sizes)[:-1])
        params = {name: piece.reshape(shape) for name, piece, shape in zip(names, pieces, shapes)}
        return FLModel(params_type=ParamsType.DIFF, params=params)

    def _summed(self, samples: Mapping[int, int], length: int) -> np.ndarray:
        """The protocol, client by client; the mean has shape (length,)."""
        terms = Terms(
            ring=Ring(clip=self.clip, bits=self.bits, clients=len(samples)),
            length=length,
            holders=len(samples),
            threshold=needed(len(samples), self.threshold),
            fewest=needed(len(samples), self.threshold),
            largest=max(samples.values()),
        )
        server = Server(terms)
        server.collect(self._asked("keys", samples, lambda k: {"number": k, "terms": packed(terms)}))
        known = list(server.keys)
        server.route(self._asked("shares", known, lambda k: {"keys": packed(server.directory(k))}))
        sharing = list(server.sharing)
        for masked in self._asked("masked", sharing, lambda k: {"inbox": packed(server.inbox(k))}):
            server.add(masked)
        server.close()
        total = server.unmask(
            self._asked("revealed", list(server.masked), lambda k: {"request": packed(server.request(k))})
        )
        for fault in server.faults:
            self.warning(f"secure aggregation went on without a message: {fault}")
        left = [list(self._samples)[k] for k in samples if k not in server.masked]
        for client in left:
            del self._samples[client]
        weight = sum(self._samples.values())
        return terms.ring.read(total, terms.largest / weight, np.dtype(np.float32))

    def _asked(
        self, what: str, clients: Iterable[int], told: Callable[[int], dict[str, Any]]
    ) -> Iterator[Any]:
        """The answers of the clients that give one."""
        names = list(self._samples)
        engine = self.fl_ctx.get_engine()
        for client in clients:
            request = Shareable()
            request.update({ASKED: what, **told(client)})
            replies = engine.send_aux_request(
                [names[client]], TOPIC, request, self.timeout, self.fl_ctx, secure=False
            )
            reply = replies.get(names[client]) or {}
            if ANSWER in reply:
                yield unpacked(reply[ANSWER])
            else:
                why = reply.get(REFUSAL, "no answer")
                self.warning(f"client {names[client]} left the sum when asked for its {what}: {why}")

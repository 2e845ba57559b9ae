"""The client's side of secure aggregation in a Flower app: it trains as ever, and sends its update masked."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from glasshouse.errors import BadInput
from glasshouse.federation.secagg.client import Client
from glasshouse.federation.secagg.messages import Refused, Terms
from glasshouse.integrations.flower.framework import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from glasshouse.integrations.flower.labels import (
    ADVERTISE,
    MASK,
    PROTOCOL,
    REPORT,
    REVEAL,
    SHARE,
    SUMMED,
    TRAIN,
    UPDATE,
    WORDS,
)
from glasshouse.integrations.flower.mods import Mod
from glasshouse.integrations.flower.records import (
    State,
    only_record,
    record_of,
    refusal,
    samples_in,
    tensors_of,
    trains,
)
from glasshouse.integrations.flower.wire import (
    Fields,
    inbox_from,
    keys_from,
    keys_to,
    request_from,
    revealed_to,
    secrets_from,
    secrets_to,
    shared_to,
    terms_from,
    terms_to,
)
from glasshouse.options import check_whole


def secure_mod(
    *,
    fewest: int = 2,
    weighted_by: str = "num-examples",
    clear: Sequence[str] = (),
    reports: bool = False,
    arrays: str | None = None,
) -> Mod:
    """A mod that never sends an update but as a part of the sum that `SecureGrid` opens; put it first.

    What it keeps from one message of a round to the next is in the state of the client's context. It refuses
    a sum that fewer than `fewest` clients could open, and any request to train outside of the protocol. In
    the clear it sends its number of samples, the metric `weighted_by`, and those metrics that `clear` names;
    all others stay. What a strategy has clients report beside their updates would travel in the clear, too:
    such a reply is not sent unless `reports` is true. `arrays` names the record of the model where a message
    has several.
    """
    check_whole("secure_mod", "fewest", fewest, 2)

    def mod(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        if not trains(message):
            return call_next(message, context)
        asked = message.content.config_records.get(PROTOCOL)
        if asked is None:
            return refusal(message, "it sends updates under masks alone; let the server use SecureGrid")
        stage = asked.get("stage")
        if stage == TRAIN:
            return _train(message, context, call_next, weighted_by, frozenset(clear), reports, arrays)
        try:
            fields, records = _answer(str(stage), asked, context, fewest)
        except (Refused, BadInput) as reason:
            return refusal(message, str(reason))
        except (KeyError, TypeError, ValueError, AttributeError):
            return refusal(message, f"the server's message for the stage {stage!r} cannot be read")
        return _reply(message, asked, fields, records)

    return mod


def _train(
    message: Message,
    context: Context,
    call_next: Callable[[Message, Context], Message],
    weighted_by: str,
    clear: frozenset[str],
    reports: bool,
    arrays: str | None,
) -> Message:
    """Train, and keep the update until the round's other clients are known."""
    asked = message.content.config_records[PROTOCOL]
    for name in (PROTOCOL, UPDATE):
        context.state.pop(name, None)  # of a round that came to no end
    del message.content[PROTOCOL]
    sent = State.of(only_record(message.content, arrays)[1])
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    if REPORT in reply.content and not reports:
        return refusal(
            message,
            "its report would travel in the clear, beside the masks; allow that by secure_mod(reports=True), "
            "or take a strategy that has clients report nothing",
        )
    update = _update(reply.content, sent, arrays)
    samples = samples_in(reply.content, weighted_by)
    context.state[UPDATE] = record_of({"update": update})
    context.state[PROTOCOL] = ConfigRecord({"session": asked["session"], "samples": samples})
    metrics = _told(reply.content, clear | {weighted_by})
    extra = len(update) - sent.layout.size
    report = {REPORT: reply.content[REPORT]} if REPORT in reply.content else {}
    return _reply(message, asked, {"samples": samples, "extra": extra}, {**metrics, **report})


def _update(content: Any, sent: State, arrays: str | None) -> Tensor:
    """The change of the floats in a reply, and what else is to be summed, as one vector."""
    others = set(content.array_records) - {SUMMED, REPORT}
    if (arrays is None and len(others) != 1) or (arrays is not None and others != {arrays}):
        raise BadInput(
            f"the reply has the records of arrays {', '.join(sorted(others)) or '(none)'}, and only one can "
            "travel under masks; send no more than the model"
        )
    trained = State.of(content[next(iter(others))])
    trained.check_like(sent)
    delta = trained.vector - sent.vector
    if SUMMED not in content:
        return delta
    return torch.cat([delta, tensors_of(content[SUMMED])["summed"].to(delta.dtype)])


def _told(content: Any, clear: frozenset[str]) -> dict[str, MetricRecord]:
    told = {
        name: MetricRecord({key: value for key, value in metrics.items() if key in clear})
        for name, metrics in content.metric_records.items()
    }
    return {name: metrics for name, metrics in told.items() if metrics}


def _answer(
    stage: str, asked: ConfigRecord, context: Context, fewest: int
) -> tuple[Fields, dict[str, ArrayRecord]]:
    """What the client answers in one stage of the protocol, of which its state is kept."""
    state = context.state.config_records.get(PROTOCOL)
    if state is None or state["session"] != asked["session"]:
        raise Refused("it has not trained for this sum, or has sent its update already")
    if stage == ADVERTISE:
        return _begun(asked, context, state, fewest)
    name, terms = state["name"], terms_from(state)
    client = Client.resumed(name, state["samples"], terms, secrets_from(state))
    fields: Fields = {}
    records: dict[str, ArrayRecord] = {}
    if stage == SHARE:
        fields = shared_to(client.share(keys_from(asked)))
    elif stage == MASK:
        if UPDATE not in context.state:
            raise Refused("it is asked for its masked vector out of turn: it has sent it")
        update = tensors_of(context.state[UPDATE])["update"]
        masked = client.mask(inbox_from(asked), update)
        records[WORDS] = ArrayRecord({"words": Array(masked.words)})
        del context.state[UPDATE]
    elif stage == REVEAL:
        fields = revealed_to(client.reveal(request_from(asked)))
    else:
        raise Refused(f"the protocol has no stage {stage!r}")
    _keep(context, state, name, terms, client)
    return fields, records


def _begun(
    asked: ConfigRecord, context: Context, state: ConfigRecord, fewest: int
) -> tuple[Fields, dict[str, ArrayRecord]]:
    """Draw the secrets of this sum, if its terms are safe."""
    if "name" in state:
        raise Refused("its secrets for this sum are drawn already")
    name, terms = int(asked["name"]), terms_from(asked)
    if terms.threshold < fewest:
        raise Refused(f"{terms.threshold} clients could open the sum, and it asks for {fewest} or more")
    client = Client(name, state["samples"], terms)
    _keep(context, state, name, terms, client)
    return keys_to([client.advertise()]), {}


def _keep(context: Context, state: ConfigRecord, name: int, terms: Terms, client: Client) -> None:
    context.state[PROTOCOL] = ConfigRecord(
        {
            "session": state["session"],
            "samples": state["samples"],
            "name": name,
            **terms_to(terms),
            **secrets_to(client.secrets()),
        }
    )


def _reply(message: Message, asked: ConfigRecord, fields: Fields, records: dict[str, Any]) -> Message:
    said = ConfigRecord({"stage": asked["stage"], "session": asked["session"], **fields})
    return Message(RecordDict({PROTOCOL: said, **records}), reply_to=message)

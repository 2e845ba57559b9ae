"""Client mods: change what a client sends, or refuse to train what it received."""

import secrets
from collections.abc import Callable, Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn

from glasshouse.defences.defence import Stack
from glasshouse.defences.reach import applicable
from glasshouse.errors import quoted
from glasshouse.integrations.flower.framework import ArrayRecord, ConfigRecord, Context, Message
from glasshouse.integrations.flower.records import (
    State,
    logger,
    number_of,
    only_record,
    record_of,
    refusal,
    round_of,
    tensors_of,
    trains,
)
from glasshouse.learning.seeds import derive, torch_rng
from glasshouse.models.freezing import exchanged
from glasshouse.models.shapes import Shape
from glasshouse.options import check_whole
from glasshouse.vetting.vet import check_request, vet

Mod = Callable[[Message, Context, Callable[[Message, Context], Message]], Message]

OUT_OF_REACH = {
    "on_receive": "looks at the model received; use vet_mod(model, shape)",
    "channel": "chooses how updates travel; use secure_mod() and SecureGrid",
    "on_masking": "adds noise to the sum of the updates, which a client does not see; "
    "use clipping and gaussian-noise, or a strategy that adds the noise at the server",
    "on_aggregate": "changes the sum of the updates, which a client does not see; "
    "use clipping and gaussian-noise, or a strategy that does it at the server",
    "training": "changes how a client trains on a batch, which a mod does not see; "
    "train by GlasshouseClient(..., defences=...)",
    "on_batch": "changes the batches that a client trains on, which a mod does not see; "
    "train by GlasshouseClient(..., defences=...)",
    "recipe": "changes the numbers that a client trains by; change them in your app, or train by "
    "GlasshouseClient(..., defences=...)",
    "rounds": "changes how many rounds the server plans; change num_rounds in your server app",
    "stopping": "ends the training at the server; end it in your server app",
}
"""What a mod can not do for a defence that has such a hook, and what to do instead."""


UNDEFENDED = (
    "beside the model, which no mod defends; send the model alone, or train by "
    "GlasshouseClient(..., defences=...), where defences act inside the training"
)
"""Why `defence_mod` sends no reply with other arrays, and what to do instead."""


def defence_mod(
    spec: str | Stack,
    model: nn.Module | None = None,
    *,
    arrays: str | None = None,
    seed: int | None = None,
) -> Mod:
    """A mod that changes each update as the defences in `spec` say, such as "clipping(norm=1)+pruning".

    The update is what a client replies, less what it received. Statistics of batch norms travel as they are:
    they are known by torch's names for them, or as what is no parameter of `model`. `arrays` names the record
    of the model where a message has several. A reply that carries arrays beside the model is not sent, as no
    defence here acts on them. Noise follows from `seed`, the round and the number of the client, by default
    from the operating system's entropy.
    """
    defences = applicable(spec, OUT_OF_REACH)
    parameters = None if model is None else frozenset(exchanged(model))

    def mod(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        if not trains(message):
            return call_next(message, context)
        sent = State.of(only_record(message.content, arrays)[1], parameters)
        number = round_of(message)
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        name, record = only_record(reply.content, arrays)
        if beside := sorted(set(reply.content.array_records) - {name}):
            return refusal(message, f"the reply carries {', '.join(map(quoted, beside))} {UNDEFENDED}")
        trained = State.of(record, parameters)
        trained.check_like(sent)
        rng = noise_rng(seed, number, number_of(context))
        reply.content[name] = trained.with_vector(defended(defences, sent, trained, rng))
        return reply

    return mod


def defended(defences: Stack, sent: State, trained: State, rng: torch.Generator) -> Tensor:
    """The state that a client sends in place of the one it `trained`; what no defence changes stays exact."""
    before, after = sent.vector, trained.vector
    delta = after - before
    # A defence may write into what it gets.
    update = defences.on_update(delta.clone(), trained.layout, rng).to(after.dtype)
    return torch.where(update == delta, after, before + update)


def noise_rng(seed: int | None, number: int, client: int) -> torch.Generator:
    """The random numbers of the defences of `client` in round `number`; not to be foreseen without a seed."""
    if seed is None:
        return torch.Generator().manual_seed(secrets.randbits(63))
    return torch_rng(derive(seed, "round", number), "client", client, "defence")


def vet_mod(
    model: nn.Module,
    shape: Shape,
    classes: int | None = None,
    *,
    images: Tensor | None = None,
    labels: Tensor | None = None,
    history: int = 0,
    arrays: str | None = None,
    tell: bool = True,
) -> Mod:
    """A mod that refuses to train a model that `glasshouse vet` calls crafted, and replies with the reason.

    `model` is the network, whatever its weights, for images of `shape` (channels, height, width). `images` of
    the client, (N, C, H, W) in [0, 1], and their `labels` show more, and so do up to `history` models that it
    trained before, which stay in the state of its context. The reason is in the client's log; with `tell`
    off the server learns only that there is one.
    """
    check_request(shape, classes, (), images, labels, None)
    check_whole("vet_mod", "history", history, 0)
    network = deepcopy(model)

    def mod(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        if not trains(message):
            return call_next(message, context)
        received = deepcopy(network)
        number = round_of(message) + 1
        record = only_record(message.content, arrays)[1]
        if misfit := _loaded(received, tensors_of(record)):
            return _refuse(message, number, f"it is not the model agreed on: {misfit}", tell)
        earlier = []
        for kept in _history(context):
            earlier.append(predecessor := deepcopy(network))
            _loaded(predecessor, tensors_of(kept))
        verdict = vet(received, shape, classes, predecessors=earlier, images=images, labels=labels)
        if verdict.crafted:
            signs = "; ".join(str(sign) for sign in verdict.signs if sign.alarming)
            context.state["glasshouse.vet"] = ConfigRecord({"refused-round": number, "reason": signs})
            return _refuse(message, number, signs, tell)
        if history:
            _remember(context, record_of(received.state_dict()), history)
        return call_next(message, context)

    return mod


def _refuse(message: Message, number: int, reason: str, tell: bool) -> Message:
    logger.warning("round %d: refused to train the model received: %s", number, reason)
    told = f"refused to train the model received: {reason}" if tell else "refused to train the model received"
    return refusal(message, told)


def _loaded(network: nn.Module, tensors: Mapping[str, Tensor]) -> str | None:
    """Load `tensors`, by name or by their order, into `network`; returns why they do not fit, if so."""
    expected = network.state_dict()
    if tensors.keys() != expected.keys() and list(tensors) == [str(k) for k in range(len(expected))]:
        tensors = dict(zip(expected, tensors.values()))  # the legacy interface sends arrays without names
    for name, tensor in expected.items():
        if name not in tensors or tensors[name].shape != tensor.shape:
            # Counters of batch norms are no part of what all federations send.
            if name not in tensors and not tensor.is_floating_point():
                continue
            found = f"has the shape {tuple(tensors[name].shape)}" if name in tensors else "is missing"
            return f"{name} {found}, {tuple(tensor.shape)} is expected"
    if unknown := [name for name in tensors if name not in expected]:
        return f"{unknown[0]} is no tensor of the network"
    network.load_state_dict(expected | dict(tensors))
    return None


def _history(context: Context) -> list[ArrayRecord]:
    """The models that the client trained before, oldest first."""
    names = sorted(name for name in context.state.array_records if name.startswith("glasshouse.vet."))
    return [context.state[name] for name in names]


def _remember(context: Context, received: ArrayRecord, most: int) -> None:
    kept = [*_history(context), received][-most:]
    for place, record in enumerate(kept):
        context.state[f"glasshouse.vet.{place:06d}"] = record

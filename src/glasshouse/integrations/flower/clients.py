"""The strategies of Glasshouse as strategies of Flower: the clients' side."""

import secrets
from collections.abc import Callable, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from glasshouse.data.images import Images
from glasshouse.defences.defence import Stack
from glasshouse.defences.reach import applicable
from glasshouse.errors import BadInput
from glasshouse.federation.local import Received, client_seed, local_task
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.strategies.strategy import Strategy, Tensors
from glasshouse.integrations.flower.framework import (
    ArrayRecord,
    ClientApp,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from glasshouse.integrations.flower.labels import REPORT, SUMMED
from glasshouse.integrations.flower.mods import OUT_OF_REACH, Mod
from glasshouse.integrations.flower.records import (
    number_of,
    record_of,
    refusal,
    round_of,
    tensors_of,
    vector_of,
)
from glasshouse.integrations.flower.strategies import ARRIVED, INTRODUCE, PAYLOAD
from glasshouse.learning.cpu import laid_out
from glasshouse.learning.fit import fit
from glasshouse.learning.layout import Layout, write_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.learning.seeds import derive
from glasshouse.learning.step import Step

KEPT, PENDING = "glasshouse.kept", "glasshouse.pending"
"""What a client remembers of the last round in which its update counted, and of the last that it trained."""

AT_THE_SERVER = ("channel", "on_masking", "on_aggregate", "rounds", "stopping")
"""The hooks of a defence that a client cannot answer for."""


class GlasshouseClient:
    """A client that trains as a strategy of Glasshouse says, by name or as a value: that of the server.

    `images` gives the client's own, from its context. It trains `model` by `recipe`, under the `defences`
    that a client can apply, such as "clipping(norm=1)" or "dp-sgd(noise=1)". All that it draws follows from
    `seed`, the round and its number, by default from the operating system's entropy.
    """

    def __init__(
        self,
        strategy: str | Strategy,
        model: nn.Module,
        images: Callable[[Context], Images],
        *,
        recipe: Recipe | None = None,
        defences: str | Stack = "none",
        seed: int | None = None,
    ) -> None:
        self._strategy: Strategy = STRATEGIES.make(strategy) if isinstance(strategy, str) else strategy
        self._defences = applicable(defences, {hook: OUT_OF_REACH[hook] for hook in AT_THE_SERVER})
        for defence in self._defences.defences:
            if getattr(defence, "target_epsilon", None) is not None:
                raise BadInput(
                    f"{self._defences}: a client knows neither rounds nor clients to solve target_epsilon "
                    "for; give the noise"
                )
        self._recipe = self._strategy.local(self._defences.recipe(recipe or Recipe()))
        self._defences.check(model, self._recipe)
        self._module = laid_out(deepcopy(model))
        self._layout = Layout.of(model)
        self._images, self._seed = images, seed

    def app(self, mods: Sequence[Mod] = ()) -> ClientApp:
        """The Flower app of this client; `mods` act on its training."""
        app = ClientApp(mods=list(mods))
        app.train()(self.train)
        app.query(INTRODUCE.partition(".")[2])(self.introduce)
        return app

    def introduce(self, message: Message, context: Context) -> Message:
        """Say how many samples it holds, by which the server weighs it."""
        # A node's number may take 64 bits, for which records have no type.
        said = ConfigRecord({"number": str(number_of(context)), "samples": len(self._images(context))})
        return Message(RecordDict({"glasshouse.client": said}), reply_to=message)

    def train(self, message: Message, context: Context) -> Message:
        """Train the model received, and reply with the weights that it has then."""
        content = message.content
        sent = vector_of(content["arrays"], self._layout)
        images = self._images(context)
        write_vector(self._module, sent)
        if reason := self._defences.on_receive(self._module, images.shape):
            return refusal(message, f"refused to train the model received: {reason}")
        number = round_of(message)
        seed = secrets.randbits(62) if self._seed is None else derive(self._seed, "round", number)
        client, recipe = number_of(context), self._recipe.in_round(number)
        states: list[Tensor] = []

        def change(step: Step) -> Tensor:
            states.append(fit(self._module, sent, images, recipe, client_seed(seed, client), step))
            return states[-1] - sent

        payload = tensors_of(content[PAYLOAD]) if PAYLOAD in content else {}
        received = Received(sent, payload, self._kept(message, context))
        task = local_task(
            self._module,
            self._layout,
            received,
            images,
            recipe,
            self._defences,
            seed=seed,
            client=client,
            change=change,
        )
        with torch.no_grad():
            report = self._strategy.report(task.module.eval(), images)
        reply = self._strategy.train(task)
        if reply.kept:
            context.state[PENDING] = record_of(reply.kept)
            context.state[f"{PENDING}.round"] = ConfigRecord({"round": number + 1})
        # Where no defence changed it, the state that was reached is exact; a sum would round.
        exact = torch.equal(states[-1] - sent, reply.delta)
        trained = states[-1] if exact else sent + reply.delta
        metrics = MetricRecord({"num-examples": len(images)})
        records = {"arrays": self._arrays(content["arrays"], trained), "metrics": metrics}
        if reply.summed is not None:
            records[SUMMED] = record_of({"summed": reply.summed})
        if report:
            records[REPORT] = record_of(report)
        return Message(RecordDict(records), reply_to=message)

    def _arrays(self, received: ArrayRecord, trained: Tensor) -> ArrayRecord:
        """The arrays received, with the weights that were trained."""
        return record_of(tensors_of(received) | self._layout.named(trained))

    def _kept(self, message: Message, context: Context) -> Tensors:
        """What it remembers: what it kept in its last round, if the server says that its update arrived."""
        state = context.state
        if PENDING in state:
            arrived = message.content["config"].get(ARRIVED)
            pending = state.pop(PENDING)
            if arrived == state[f"{PENDING}.round"]["round"]:
                state[KEPT] = pending
        return tensors_of(state[KEPT]) if KEPT in state else {}

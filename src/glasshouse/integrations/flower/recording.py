"""Records what the server of a Flower app sees, round by round, and leaves the training as it is."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from glasshouse.errors import BadInput
from glasshouse.integrations.flower.extending import extended, flower_name, is_legacy
from glasshouse.integrations.flower.labels import NO_SUM, PROTOCOL
from glasshouse.integrations.flower.naming import ClientNames, ParameterNames, place_of
from glasshouse.integrations.flower.repeating import AnotherRun, Repeated, recorded_by_number
from glasshouse.integrations.flower.replies import (
    WEIGHT,
    arrays_in,
    legacy_arrays,
    model_in,
    opens_sums,
    told_in,
    weight_in,
)
from glasshouse.recording import Recorder, Seen
from glasshouse.recording.reader import RecordedRound

if TYPE_CHECKING:
    from torch import nn

    from glasshouse.models.shapes import Shape

logger = logging.getLogger("flwr")


def record(
    strategy: Any,
    folder: str | Path,
    *,
    model: "str | nn.Module | None" = None,
    shape: "Shape | None" = None,
    classes: int | None = None,
    recipe: Mapping[str, Any] | None = None,
    channel: Literal["plain", "sum"] = "plain",
    seed: int | None = None,
    every: int = 1,
    clients: int | None = None,
    named_by: str | None = None,
) -> Any:
    """A strategy that does what `strategy` does, and writes what its server sees into `folder`.

    `strategy` is one of `flwr.serverapp.strategy`, or a legacy one of `flwr.server.strategy`. `model` is a
    name of the zoo, `package.module:factory` or the module itself, for images of `shape` (channels, height,
    width) in so many `classes`; where parameters have no names, as in the legacy API, it gives them. `recipe`
    is what is known of the clients' training: fields of `glasshouse.learning.recipe.Recipe`. The `channel` is
    "sum" where the server sees only what `SecureGrid` opens, or the legacy `SecAggPlusWorkflow`.

    Every n-th round is recorded, with the single updates of at most so many `clients`. A client is called by
    its node's number, or by what it sends in a metric or setting under the key `named_by`. A folder that has
    rounds is continued by a run that repeats them; the first difference ends the run.
    """
    legacy = is_legacy(strategy)
    if hasattr(strategy, "_glasshouse"):
        raise BadInput("the strategy is recorded already; record it once")
    if legacy and model is None:
        raise BadInput(
            "the parameters of a legacy strategy have no names; give the model that they belong to"
        )
    folder = Path(folder).absolute()
    recorder = Recorder(
        folder,
        model=model if model is None or isinstance(model, str) else place_of(model),
        shape=shape,
        classes=classes,
        recipe=recipe,
        channel=channel,
        described=None if channel == "plain" else "Flower's SecAgg+" if legacy else "Glasshouse's SecureGrid",
        strategy=flower_name(strategy),
        seed=seed,
        framework=("flwr", metadata.version("flwr")),
        every=every,
        clients=clients,
    )
    logger.info("Glasshouse records what the server sees in %s", folder)
    keeper = Keeper(recorder, ParameterNames(model, shape, classes), ClientNames(named_by))
    return extended(strategy, RecordsMessages, RecordsFits, _glasshouse=keeper)


class Keeper:
    """Writes the rounds of a strategy; what cannot be recorded is an error in Flower's log, and no more.

    A run that begins in a folder with rounds has to repeat them, number by number, before it adds its own:
    then all that lies in the folder is of this run, whichever began it.
    """

    def __init__(self, recorder: Recorder, parameters: ParameterNames, names: ClientNames) -> None:
        self.names = names
        self._recorder, self._parameters = recorder, parameters
        self._number = 0
        self._round: Seen | Repeated | None = None
        self._recorded: Mapping[int, RecordedRound] = {}

    @property
    def sees_sums(self) -> bool:
        """Whether the server sees no single update."""
        return self._recorder.description.channel == "sum"

    def send(self, number: int, sent: Any) -> None:
        """Begin round `number` with the model sent; raises `BadInput` if it is none that can be recorded.

        So does a round that the record has of another run.
        """
        named, rounds = self._parameters.named(sent), self._recorder.rounds
        self._number = number
        if all(recorded < number for recorded in rounds):
            self._round = self._recorder.round(number, named)
            return
        if number not in rounds:  # it stays out: the later ones that are there may be of another run
            self._round = Seen(self._recorder, number, None)
            return
        if number not in self._recorded:
            self._recorded = recorded_by_number(self._recorder.folder)
        repeated = Repeated(self._recorder, self._recorded[number])
        repeated.check_sent(named)
        self._round = repeated

    def updates(
        self, number: int, replies: Mapping[str, Any], read: Callable[[Any], tuple[Any, Any]]
    ) -> None:
        """Record of each client the model that it sent, and its samples, as `read` finds them."""
        with _told(f"round {number} is not recorded"), self._begun() as seen:
            if not seen.due:
                return
            told = 0
            for client, reply in replies.items():
                with _told(f"round {number} is recorded without client {client}"):
                    arrays, samples = read(reply)
                    seen.update(client, self._parameters.named(arrays), samples=samples)
                    told += 1
            if not told:
                raise BadInput("no client sent an update that can be")

    def sum(self, number: int, replies: Mapping[str, Any], read: Callable[[Any], tuple[Any, Any]]) -> None:
        """Record the mean that secure aggregation opened, which each reply carries, as `read` finds it."""
        with _told(f"round {number} is not recorded"), self._begun() as seen:
            if not replies:
                raise BadInput("no sum was opened")
            mean, _ = read(next(iter(replies.values())))
            samples = {client: read(reply)[1] for client, reply in replies.items()}
            seen.sum(self._parameters.named(mean), clients=samples)

    def finish(self, final: Any) -> None:
        """Record the model after the last round, unless the record goes further."""
        with _told("the final model is not recorded"):
            if all(recorded <= self._number for recorded in self._recorder.rounds):
                self._recorder.finish(self._parameters.named(final))

    def _begun(self) -> Seen | Repeated:
        if self._round is None:
            raise BadInput("its model was not sent by the strategy's own steps")
        begun, self._round = self._round, None
        return begun


class RecordsMessages:
    """The steps of a strategy of `flwr.serverapp`, each with a look at what passes through it."""

    _glasshouse: Keeper

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> list[Any]:
        _check_channel(self._glasshouse, opened=opens_sums(grid))
        messages = list(super().configure_train(server_round, arrays, config, grid))  # type: ignore[misc]
        models = [model_in(message.content, self._model_key) for message in messages]
        if any(model is not models[0] and model != models[0] for model in models):
            raise BadInput(
                "the strategy sends its clients different models; a record holds one for each round"
            )
        if models:
            self._glasshouse.send(server_round, arrays_in(models[0]))
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> Any:
        replies = list(replies)
        contents = {
            self._glasshouse.names.of(reply.metadata.src_node_id, told_in(reply.content)): reply.content
            for reply in replies
            if reply.has_content()
        }
        keeper = self._glasshouse
        if keeper.sees_sums:
            keeper.sum(server_round, contents, self._read)
        else:
            keeper.updates(server_round, contents, self._read_update)
        return super().aggregate_train(server_round, replies)  # type: ignore[misc]

    def start(self, *args: Any, **options: Any) -> Any:
        result = super().start(*args, **options)  # type: ignore[misc]
        if result.arrays:
            self._glasshouse.finish(arrays_in(result.arrays))
        return result

    @property
    def _model_key(self) -> str:
        return getattr(self, "arrayrecord_key", "arrays")

    def _read(self, content: Any) -> tuple[Any, Any]:
        weight = weight_in(content, getattr(self, "weighted_by_key", WEIGHT))
        return arrays_in(model_in(content, self._model_key)), weight

    def _read_update(self, content: Any) -> tuple[Any, Any]:
        if PROTOCOL in content:
            raise BadInput(NO_SUM)
        return self._read(content)


class RecordsFits:
    """The steps of a strategy of `flwr.server`, each with a look at what passes through it."""

    _glasshouse: Keeper

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        instructions = super().configure_fit(server_round, parameters, client_manager)  # type: ignore[misc]
        if any(fit.parameters is not instructions[0][1].parameters for _, fit in instructions):
            raise BadInput(
                "the strategy sends its clients different models; a record holds one for each round"
            )
        if instructions:
            self._glasshouse.send(server_round, legacy_arrays(instructions[0][1].parameters))
        return instructions

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        keeper = self._glasshouse
        fits = {keeper.names.of(client.node_id, [fit.metrics]): fit for client, fit in results}
        opened = len(fits) > 1 and len({id(fit.parameters) for fit in fits.values()}) == 1
        _check_channel(keeper, opened=opened)
        if opened:
            keeper.sum(server_round, fits, _read_fit)
        else:
            keeper.updates(server_round, fits, _read_fit)
        combined, metrics = super().aggregate_fit(server_round, results, failures)  # type: ignore[misc]
        if combined is not None:
            keeper.finish(legacy_arrays(combined))  # nobody says which round is the last
        return combined, metrics


def _check_channel(keeper: Keeper, *, opened: bool) -> None:
    """Refuse a record of another channel than that by which the updates, `opened` as a sum or not, came."""
    if opened and not keeper.sees_sums:
        raise BadInput(
            'the clients\' updates are summed before the server sees them; record with channel="sum"'
        )
    if keeper.sees_sums and not opened:
        raise BadInput('the server sees single updates; leave the channel of the record "plain"')


def _read_fit(fit: Any) -> tuple[Any, Any]:
    return legacy_arrays(fit.parameters), fit.num_examples


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Let the training go on where something cannot be recorded, and say so; two runs are never mixed."""
    try:
        yield
    except AnotherRun:
        raise
    except BadInput as error:
        logger.error("Glasshouse: %s: %s", what, error)

"""The rounds of a FLARE job, recorded on its server."""

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import nvflare
from nvflare.apis.dxo import from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.abstract.model import ModelLearnable, ModelLearnableKey
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.job_config.defs import FilterType

from glasshouse.errors import BadInput
from glasshouse.integrations.flare.checking import fault_in
from glasshouse.integrations.flare.contents import (
    Contents,
    Disguised,
    as_array,
    contents_of,
    emptied,
    read_contents,
)
from glasshouse.integrations.flare.events import REPORTED, SUMMED, about, who_and_what
from glasshouse.integrations.flare.jobs import add
from glasshouse.recording import Recorder, Seen


@dataclass(eq=False)
class Open:
    """The round that is going on: its number from 1, the model sent, and who has answered so far.

    Results that were `accepted` may be masked, so that there are no `samples` of theirs before the sum. Where
    the round is recorded, `closing` makes it whole.
    """

    number: int
    sent: Mapping[str, np.ndarray]
    seen: Seen | None = None
    closing: ExitStack = field(default_factory=ExitStack)
    accepted: int = 0
    samples: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)


class RecordRounds(Filter):
    """Records what the server of a job sends and receives: `job.to_server(RecordRounds("record", ...))`.

    A `folder` that is relative lies in the run folder of the job on the server. The other options are those
    of `glasshouse.Recorder`; with `channel="sum"` only the mean of a round is recorded. The number of
    samples of a client is what the server weighs its result by, NUM_STEPS_CURRENT_ROUND, unless `samples`
    has it by the client's name.

    A result with NaN, or of other shapes than the model sent, is rejected with the name of its client, and
    the round goes on without it. Recording that fails is reported, and the job goes on.
    """

    def __init__(
        self,
        folder: str = "record",
        model: str | None = None,
        shape: tuple[int, int, int] | None = None,
        classes: int | None = None,
        recipe: Mapping[str, Any] | None = None,
        channel: Literal["plain", "sum"] = "plain",
        described: str | None = None,
        strategy: str | None = "fedavg",
        seed: int | None = None,
        kind: Literal["after", "delta"] = "after",
        every: int = 1,
        clients: int | None = None,
        samples: Mapping[str, int] | None = None,
        task: str = "train",
    ) -> None:
        super().__init__()
        self.folder, self.model, self.shape, self.classes = folder, model, shape, classes
        self.recipe, self.channel, self.described, self.strategy = recipe, channel, described, strategy
        self.seed, self.kind, self.every, self.clients = seed, kind, every, clients
        self.samples, self.task = samples, task
        self._recorder: Recorder | None = None
        self._round: Open | None = None
        self._final: Mapping[str, np.ndarray] | None = None
        self._averages = True  # until a model is sent that is not the mean of the round before
        self._stopped = False
        self._lock = threading.RLock()  # results arrive in threads of their own

    def add_to_fed_job(self, job: Any, ctx: Any, **options: Any) -> None:
        """Called by the Job API and by recipes: what the server receives passes through here."""
        add(self, FilterType.TASK_RESULT, job, ctx, options)

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Pass a client's result on to the aggregator, or nothing in its place where that could spoil it."""
        with self._lock:
            if self._round is None:
                return shareable
            client = fl_ctx.get_peer_context().get_identity_name()
            try:
                result = read_contents(shareable)
                if result is None:
                    return shareable
                fault = fault_in(result.arrays, self._round.sent, result.steps)
            except Disguised as error:
                self._stop(fl_ctx, f"client {client}: {error}")
                return shareable
            except BadInput as error:
                fault = str(error)
            if fault is None:
                return shareable
            self._round.rejected[client] = fault
            self.log_error(
                fl_ctx, f"rejected client {client} in round {self._round.number}: {fault}", fire_event=False
            )
            return emptied(shareable)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Follow the rounds of the job."""
        steps = {
            EventType.START_RUN: self._begin,
            EventType.AFTER_TASK_DATA_FILTER: self._sent,
            AppEventType.AFTER_CONTRIBUTION_ACCEPT: self._received,
            AppEventType.BEFORE_AGGREGATION: self._counted,
            AppEventType.AFTER_AGGREGATION: self._aggregated,
            AppEventType.AFTER_SHAREABLE_TO_LEARNABLE: self._updated,
            EventType.END_RUN: self._finish,
            SUMMED: self._summed,
            REPORTED: self._told,
        }
        if event_type not in steps:
            return
        with self._lock:
            try:
                steps[event_type](fl_ctx)
            except BadInput as error:
                self._stop(fl_ctx, str(error))

    def _begin(self, fl_ctx: FLContext) -> None:
        run = fl_ctx.get_engine().get_workspace().get_run_dir(fl_ctx.get_job_id())
        self._recorder = Recorder(
            Path(run) / self.folder,
            model=self.model,
            shape=self.shape,
            classes=self.classes,
            recipe=self.recipe,
            channel=self.channel,
            described=self.described,
            strategy=self.strategy,
            seed=self.seed,
            kind=self.kind,
            every=self.every,
            clients=self.clients,
            framework=("nvflare", nvflare.__version__),
        )

    def _sent(self, fl_ctx: FLContext) -> None:
        """A task leaves the server; the first one of a round has its model."""
        if not about(self.task, fl_ctx):
            return
        message = fl_ctx.get_prop(FLContextKey.TASK_DATA)
        number = message.get_header(AppConstants.CURRENT_ROUND, 0) + 1
        if self._round is not None and self._round.number == number:
            return
        contents = read_contents(message)
        if contents is None:
            return
        if self._final is not None and not _close(self._final, contents.arrays):
            self._averages = False
        self._round = begun = Open(number, contents.arrays)
        if self._recorder is not None:
            begun.seen = begun.closing.enter_context(self._recorder.round(number, contents.arrays))

    def _received(self, fl_ctx: FLContext) -> None:
        """A result that the aggregator took."""
        result = fl_ctx.get_prop(AppConstants.TRAINING_RESULT)
        if self._round is None or result is None or not fl_ctx.get_prop(AppConstants.AGGREGATION_ACCEPTED):
            return
        client = fl_ctx.get_peer_context().get_identity_name()
        if client in self._round.rejected:
            return
        self._round.accepted += 1
        contents = read_contents(result)
        if contents is None:
            return
        self._round.samples[client] = self._samples_of(client, contents)
        if self.channel == "plain" and self._round.seen is not None and self._round.seen.due:
            arrays = contents.changed_to(self.kind, self._round.sent)
            self._round.seen.update(client, arrays, samples=self._round.samples[client])

    def _samples_of(self, client: str, contents: Contents) -> int:
        if self.samples and client in self.samples:
            return self.samples[client]
        if not contents.steps.is_integer():
            raise BadInput(
                f"client {client} weighs {contents.steps}, no whole number of samples; tell RecordRounds the "
                f"number: samples={{{client!r}: ...}}"
            )
        return int(contents.steps)

    def _summed(self, fl_ctx: FLContext) -> None:
        """Updates were added up that nobody saw."""
        if self._round is not None:
            self._round.samples = fl_ctx.get_prop(SUMMED)

    def _counted(self, fl_ctx: FLContext) -> None:
        """End a job of which no client is left, which would go on with an empty model."""
        if self._round is not None and self._round.rejected and not self._round.accepted:
            faults = "; ".join(f"{client}: {fault}" for client, fault in self._round.rejected.items())
            self.system_panic(f"round {self._round.number}: every result was rejected: {faults}", fl_ctx)

    def _aggregated(self, fl_ctx: FLContext) -> None:
        """The mean of a round is there, and the round is whole."""
        if self._round is None or not self._round.samples:
            return
        ended, self._round = self._round, None
        mean = _mean_in(fl_ctx.get_prop(AppConstants.AGGREGATION_RESULT))
        self._final = mean.changed_to("after", ended.sent)
        with ended.closing:
            if self.channel == "sum" and ended.seen is not None and ended.seen.due:
                ended.seen.sum(mean.changed_to(self.kind, ended.sent), clients=ended.samples)

    def _updated(self, fl_ctx: FLContext) -> None:
        """The server made the next model of the mean, by whatever rule; not every controller says so."""
        model = fl_ctx.get_prop(AppConstants.GLOBAL_MODEL)
        if isinstance(model, ModelLearnable):
            weights = model[ModelLearnableKey.WEIGHTS]
            self._final = {name: as_array(name, value) for name, value in weights.items()}

    def _finish(self, fl_ctx: FLContext) -> None:
        if self._recorder is None or self._final is None:
            return
        if self._averages:
            self._recorder.finish(self._final)
        else:
            why = "the server makes models by another rule than the mean, and does not say what it made last"
            self.log_warning(fl_ctx, f"the final model is not recorded: {why}", fire_event=False)

    def _told(self, fl_ctx: FLContext) -> None:
        """A client's filter reports what it did not let pass."""
        client, what = who_and_what(fl_ctx)
        self.log_error(fl_ctx, f"client {client} {what}", fire_event=False)

    def _stop(self, fl_ctx: FLContext, why: str) -> None:
        self._recorder = None
        if self._round is not None:
            self._round.seen, self._round.closing = None, ExitStack()  # what is not whole is no round
        if not self._stopped:
            self._stopped = True
            self.log_error(fl_ctx, f"Glasshouse records nothing more of this job: {why}", fire_event=False)


def _close(expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> bool:
    """Whether the tensors are the same but for the rounding of sums."""
    return all(
        np.allclose(array, found[name], rtol=1e-3, atol=1e-5, equal_nan=True)
        for name, array in expected.items()
        if name in found and array.shape == found[name].shape
    )


def _mean_in(aggregated: Any) -> Contents:
    """The weighted mean, as either kind of controller hands it over."""
    message = FLModelUtils.to_shareable(aggregated) if isinstance(aggregated, FLModel) else aggregated
    return contents_of(from_shareable(message))

"""A client that looks at each model before it trains it."""

from collections import deque
from copy import deepcopy
from typing import Any

import torch
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import ContentBlockedException, Filter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.fl_context_utils import add_job_audit_event
from nvflare.app_common.app_constant import AppConstants
from nvflare.job_config.defs import FilterType
from torch import Tensor, nn

from glasshouse.data.dataset import unit_pixels
from glasshouse.data.parts import read_pair
from glasshouse.errors import BadInput
from glasshouse.integrations.flare.contents import Contents, read_contents
from glasshouse.integrations.flare.events import report
from glasshouse.integrations.flare.jobs import add, check_tasks
from glasshouse.integrations.flare.networks import agreed
from glasshouse.vetting.structure import network_signs
from glasshouse.vetting.vet import vet


class VetModel(Filter):
    """Refuses to train a model that looks crafted: `job.to_clients(VetModel("lenet", (1, 28, 28), 10))`.

    It judges as `glasshouse vet` does, on noise, or also on a client's `images`, an .npz file of its own,
    and compares with up to `history` models that it trained before. A task that holds no model of the agreed
    network is refused, too. The reason goes into the client's log and FLARE's audit trail; with `tell` off
    the server learns only that there is one.
    """

    def __init__(
        self,
        model: str,
        shape: tuple[int, int, int],
        classes: int,
        images: str | None = None,
        history: int = 0,
        tell: bool = True,
        task: str = "train",
    ) -> None:
        super().__init__()
        self.model, self.shape, self.classes = model, shape, classes
        self.images, self.history, self.tell, self.task = images, history, tell, task
        self._network: nn.Module | None = None
        self._own: tuple[Tensor, Tensor] | None = None
        self._earlier: deque[nn.Module] = deque(maxlen=history)

    def add_to_fed_job(self, job: Any, ctx: Any, **options: Any) -> None:
        """Called by the Job API and by recipes: what a client receives passes through here."""
        add(self, FilterType.TASK_DATA, job, ctx, options)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Make sure that every model on its way to the training passes through here."""
        if event_type == EventType.START_RUN:
            check_tasks(self, fl_ctx)

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Pass an honest model on to training."""
        why = self._why_not(shareable)
        if why is None:
            return shareable
        number = shareable.get_header(AppConstants.CURRENT_ROUND, 0) + 1
        what = f"refused the model of round {number}"
        reason = f"{what}: {why}"
        self.log_error(fl_ctx, reason, fire_event=False)
        add_job_audit_event(fl_ctx=fl_ctx, msg=reason)
        report(self, reason if self.tell else what, fl_ctx)
        raise ContentBlockedException(reason)

    def _why_not(self, task: Shareable) -> str | None:
        """Why a model is not to be trained; null where nothing speaks against it."""
        try:
            contents = read_contents(task)
        except BadInput as error:
            return str(error)
        if contents is None or contents.kind != "after":
            return "the task holds no weights"
        if self._network is None:
            self._network = agreed(self.model, self.shape, self.classes)
            self._own = self._read_own()
        network = deepcopy(self._network)
        signs = network_signs(_as_sent(contents), _as_expected(network))
        if not signs:
            _fill(network, contents)
            images, labels = self._own or (None, None)
            channels, height, width = self.shape
            vetting = vet(
                network,
                (channels, height, width),
                self.classes,
                predecessors=tuple(self._earlier),
                images=images,
                labels=labels,
            )
            signs = tuple(sign for sign in vetting.signs if sign.alarming)
        if signs:
            return "; ".join(map(str, signs))
        self._earlier.append(network)
        return None

    def _read_own(self) -> tuple[Tensor, Tensor] | None:
        if self.images is None:
            return None
        pixels, labels = read_pair("images", self.images)
        return unit_pixels([pixels]), torch.from_numpy(labels)


def _as_sent(contents: Contents) -> dict[str, Tensor]:
    """The tensors that were sent, without counters of steps, which say nothing."""
    return {name: torch.from_numpy(array) for name, array in contents.arrays.items() if array.ndim}


def _as_expected(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in network.state_dict().items() if tensor.ndim}


@torch.no_grad()
def _fill(network: nn.Module, contents: Contents) -> None:
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(torch.from_numpy(contents.arrays[name]))

"""What the components tell one another by events of FLARE."""

from typing import Any

from nvflare.apis.fl_constant import FedEventHeader, FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from glasshouse.errors import LONGEST, one_line
from glasshouse.integrations.flare.contents import emptied

REPORTED = "glasshouse.reported"
"""The event that travels from a client's filter to the server where it lets something not pass."""

SUMMED = "glasshouse.summed"
"""The event on the server once updates were added up, with the samples of each client that is in the sum."""

_WHAT = "what"


def about(task: str, fl_ctx: FLContext) -> bool:
    """Whether an event is about the task of this name."""
    return bool(fl_ctx.get_prop(FLContextKey.TASK_NAME) == task)


def report(component: Any, what: str, fl_ctx: FLContext) -> None:
    """Let the server know what this client does not do, and why."""
    told = Shareable()
    told[_WHAT] = what
    component.fire_fed_event(REPORTED, told, fl_ctx)


def withheld(component: Any, fault: str, result: Shareable, fl_ctx: FLContext) -> Shareable:
    """Send nothing of a client's own result, in which there is a `fault`, and say so."""
    what = f"sends nothing of its result: {fault}"
    component.log_error(fl_ctx, what, fire_event=False)
    report(component, what, fl_ctx)
    return emptied(result)


def who_and_what(fl_ctx: FLContext) -> tuple[str, str]:
    """The client that reports, and what."""
    told = fl_ctx.get_prop(FLContextKey.EVENT_DATA)
    return str(told.get_header(FedEventHeader.ORIGIN)), one_line(str(told[_WHAT]), LONGEST)

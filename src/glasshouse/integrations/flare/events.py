"""What the components tell one another by events of FLARE."""

from typing import Any

from nvflare.apis.fl_constant import FedEventHeader, FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

REFUSED = "glasshouse.refused"
"""The event that travels from a client's filter to the server where it refuses a model."""

SUMMED = "glasshouse.summed"
"""The event on the server once updates were added up, with the samples of each client that is in the sum."""

_WHY = "why"


def tell(component: Any, why: str, fl_ctx: FLContext) -> None:
    """Let the server know why this client refuses the model."""
    told = Shareable()
    told[_WHY] = why
    component.fire_fed_event(REFUSED, told, fl_ctx)


def who_and_why(fl_ctx: FLContext) -> tuple[str, str]:
    """The client that refused, and its reason."""
    told = fl_ctx.get_prop(FLContextKey.EVENT_DATA)
    return str(told.get_header(FedEventHeader.ORIGIN)), str(told[_WHY])

"""A server that is not honest: it sends a model whose first layer sorts the images of a client into bins."""

import numpy as np
from nvflare.apis.dxo import from_shareable
from nvflare.apis.filter import Filter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable


class Imprint(Filter):
    """Every row of the layer measures the brightness of an image, each against another threshold."""

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        sent = from_shareable(shareable)
        rows, pixels = sent.data["1.weight"].shape
        sent.data = sent.data | {
            "1.weight": np.full((rows, pixels), 1 / pixels, np.float32),
            "1.bias": -np.linspace(0.1, 0.6, rows, dtype=np.float32),
        }
        return sent.update_shareable(shareable)

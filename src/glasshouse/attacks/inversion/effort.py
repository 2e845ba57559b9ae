"""How much of a search some time buys, told from sizes alone, so that the numbers depend on no clock."""

from glasshouse.learning.layout import Layout

LIGHT, FEWEST, MOST = 1.2e9, 80, 2400
"""What a minute on a CPU allows: products of steps, parameters and images, and bounds for the steps."""


def affordable_steps(layout: Layout, images: int) -> int:
    """How many steps take about a minute on a CPU, from the sizes of the network and the batch alone.

    >>> small, large = (Layout((), (), size) for size in (10_000, 1_000_000))
    >>> affordable_steps(small, 8), affordable_steps(large, 1), affordable_steps(large, 8)
    (2400, 960, 400)
    """
    return int(min(MOST, max(FEWEST, LIGHT / (layout.trainable * (1 + images / 4)))))

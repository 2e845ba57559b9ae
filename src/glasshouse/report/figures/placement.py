"""Finds room for text beside points, so that labels cover neither each other nor the marks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

_ANGLES = [math.radians(degrees) for degrees in range(0, 360, 15)]
_DISTANCES = (9.0, 15.0, 24.0, 36.0, 52.0, 72.0, 96.0)


@dataclass(frozen=True)
class Rectangle:
    """An upright rectangle in points, from its lower left corner."""

    x: float
    y: float
    width: float
    height: float

    def overlap(self, other: "Rectangle") -> float:
        """The shared area."""
        across = min(self.x + self.width, other.x + other.width) - max(self.x, other.x)
        up = min(self.y + self.height, other.y + other.height) - max(self.y, other.y)
        return max(0.0, across) * max(0.0, up)


def place(
    anchors: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    taken: Sequence[Rectangle],
    frame: Rectangle,
) -> list[Rectangle]:
    """A rectangle of each size near its anchor, in order, off what is `taken` and inside the `frame`.

    Greedy: each label takes the candidate that costs least beside those already placed.
    """
    placed: list[Rectangle] = []
    for anchor, size in zip(anchors, sizes):
        earlier = list(zip(placed, anchors))
        best, least = frame, math.inf
        for reach, angle in product(_DISTANCES, _ANGLES):
            # The edge facing the anchor lies at the given reach, whatever the text's length.
            x, y = (
                start + reach * turn + length / 2 * (turn - 1)
                for start, length, turn in zip(anchor, size, (math.cos(angle), math.sin(angle)))
            )
            box = Rectangle(x, y, *size)
            if (cost := _cost(box, anchor, earlier, taken, frame, least)) < least:
                best, least = box, cost
        placed.append(best)
    return placed


def nearest(box: Rectangle, anchor: tuple[float, float]) -> tuple[float, float]:
    """The point of the rectangle that lies nearest to the anchor."""
    x = min(max(anchor[0], box.x), box.x + box.width)
    y = min(max(anchor[1], box.y), box.y + box.height)
    return x, y


def _cost(
    box: Rectangle,
    anchor: tuple[float, float],
    earlier: Sequence[tuple[Rectangle, tuple[float, float]]],
    taken: Sequence[Rectangle],
    frame: Rectangle,
    least: float,
) -> float:
    """How bad a place is, if its distance alone leaves it better than `least`.

    `earlier` holds the labels already placed, each with its anchor.
    """
    end = nearest(box, anchor)
    away = math.dist(end, anchor)
    if away > least + 1e-6:
        return math.inf
    outside = box.width * box.height - box.overlap(frame)
    labels = sum(box.overlap(other) for other, _ in earlier)
    # A line may be covered at need, a mark hardly ever; how much of either is covered matters less.
    marks = sum(
        (25 if min(other.width, other.height) < 3 else 150) * min(1.0, box.overlap(other) / 4)
        for other in taken
    )
    crossed = sum(
        _crosses(end, anchor, other) + _crosses(nearest(other, its_anchor), its_anchor, box)
        for other, its_anchor in earlier
    )
    return 50 * outside + 20 * labels + marks + 150 * crossed + away


def _crosses(start: tuple[float, float], end: tuple[float, float], box: Rectangle) -> bool:
    """Whether the way from start to end leads through the rectangle, judged at a few steps."""
    for step in range(1, 20):
        x = start[0] + (end[0] - start[0]) * step / 20
        y = start[1] + (end[1] - start[1]) * step / 20
        if box.x <= x <= box.x + box.width and box.y <= y <= box.y + box.height:
            return True
    return False

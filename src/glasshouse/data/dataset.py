"""A named data set in memory: what was published for training and, where there is one, for testing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glasshouse.data.formats import check_room
from glasshouse.data.ids import checked_ids, checked_parts
from glasshouse.data.images import Images, checked
from glasshouse.data.stratify import stratified
from glasshouse.errors import BadInput


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images to train on, the official test images if any, and what is known of each training image.

    `clients` says who holds it, `users` whose it is (all images of a user stay in one part) and `parts`
    which part it is of, by the names in `data.ids`; each of shape (len(train),), or None.
    """

    name: str
    train: Images
    test: Images | None = None
    users: np.ndarray | None = None
    clients: np.ndarray | None = None
    parts: np.ndarray | None = None

    def __post_init__(self) -> None:
        train, test = self.train, self.test
        if test is not None and (train.x.shape[1:] != test.x.shape[1:] or train.classes != test.classes):
            raise BadInput(
                f"{self.name}: training images {tuple(train.x.shape[1:])} of {train.classes} classes, "
                f"test images {tuple(test.x.shape[1:])} of {test.classes}; give both the same"
            )
        for field, key in (("users", "user"), ("clients", "client")):
            if (ids := getattr(self, field)) is not None:
                object.__setattr__(self, field, checked_ids(ids, len(train), key, self.name))
        if self.parts is not None:
            object.__setattr__(self, "parts", checked_parts(self.parts, len(train), self.name))

    @property
    def pool(self) -> Images:
        """Training images, then test images; a view when they lie side by side in memory, else a copy."""
        return self.train if self.test is None else self.train.joined(self.test)

    def draw(
        self, train_sizes: Sequence[int], test_sizes: Sequence[int], rng: np.random.Generator
    ) -> list[np.ndarray]:
        """Positions in `pool` of disjoint parts, each with all classes in proportion: `test_sizes` last.

        These are parts of the official test images; where there are none, of the training images too.
        """
        y = self.train.y.numpy()
        if self.test is None:
            return stratified(y, [*train_sizes, *test_sizes], rng)
        drawn = stratified(y, train_sizes, rng)
        return drawn + [len(y) + part for part in stratified(self.test.y.numpy(), test_sizes, rng)]


def from_pool(
    name: str,
    x: Tensor,
    y: np.ndarray,
    *,
    source: str,
    tests: int = 0,
    classes: int | None = None,
    every_class: bool = True,
    names: tuple[str, ...] = (),
    users: Any = None,
    clients: Any = None,
    parts: Any = None,
) -> Dataset:
    """Check images `x` with labels `y` and make a data set of them; the last `tests` are the test images.

    Train and test are views of `x`, so that no second copy of the pixels is ever needed.
    Without `classes` there are as many as `names`, or as the largest training label says. Where training data
    need not have `every_class`, there are two at least.
    """
    labels = torch.from_numpy(np.ascontiguousarray(y, dtype=np.int64))
    cut = len(labels) - tests
    if classes is None:
        classes = len(names) or (int(labels[:cut].max()) + 1 if cut else 0)
    if not every_class:
        classes = max(classes, 2)
    train = checked(Images(x[:cut], labels[:cut], classes, names), source, every_class=every_class)
    test = None
    if tests:
        test = checked(
            Images(x[cut:], labels[cut:], classes, names), f"{source} (test images)", every_class=False
        )
    return Dataset(name, train, test, users, clients, parts)


def unit_pixels(parts: Sequence[np.ndarray], source: str = "the images") -> Tensor:
    """Put uint8 (0..255) or float parts, each (N, C, H, W), one after another as float32 in [0, 1]."""
    check_room(sum(part.size for part in parts) * np.float32().itemsize, source)
    x = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), np.float32)
    start = 0
    for part in parts:
        goal = x[start : start + len(part)]
        if part.dtype == np.uint8:
            np.divide(part, np.float32(255), out=goal)
        else:
            with np.errstate(over="ignore"):  # what does not fit becomes infinite and is refused as such
                goal[...] = part
        start += len(part)
    return torch.from_numpy(x)

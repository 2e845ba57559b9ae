"""What was made of the data, as numbers: clients, their sizes and classes, and who is held out."""

from collections.abc import Iterator, Mapping

import numpy as np

from glasshouse.data.split import Split
from glasshouse.exhibits import PARTS, Division, Holder


def division_of(split: Split) -> Division:
    """Who holds what: a holder for each client and, where whole clients were held out, for those too."""
    y, classes = split.pool.y.numpy(), split.pool.classes
    parts = {name: np.asarray(getattr(split, name)) for name in PARTS}
    return Division(
        holders=tuple(_with_others(split, parts)),
        labels={
            part: tuple(np.bincount(y[positions], minlength=classes).tolist())
            for part, positions in parts.items()
        },
        classes=split.pool.names,
        partition=split.partition,
        held_out=split.held_out,
        official_test=split.official_test,
        unused=len(split.pool) - sum(map(len, parts.values())) - split.left_out,
    )


def _with_others(split: Split, parts: Mapping[str, np.ndarray]) -> Iterator[Holder]:
    """The clients and, where the data say whose the images of the other parts are, how many of them."""
    y, owners = split.pool.y.numpy(), split.owners
    clients = {
        name: _holder(name, y[positions]) for name, positions in zip(split.names, split.clients, strict=True)
    }
    if owners is None:
        yield from clients.values()
        return
    others = [part for part in PARTS[1:] if part != "test" or not split.official_test]
    counts = {
        part: np.bincount(owners.number_of[parts[part]], minlength=len(owners.names)) for part in others
    }
    for number, name in enumerate(owners.names):
        holder = clients.get(name, Holder(name=name, members=0))
        yield holder.model_copy(update={part: int(counts[part][number]) for part in others})


def _holder(name: str, labels: np.ndarray) -> Holder:
    counts = np.bincount(labels)
    largest = int(counts.argmax())
    return Holder(
        name=name,
        members=len(labels),
        classes=int((counts > 0).sum()),
        largest=largest,
        share=float(counts[largest] / len(labels)),
    )

"""The defences that `all` stands for: each at a few strengths, and how they compose."""

import re
from dataclasses import dataclass

from glasshouse.defences import DEFENCES, split_defences
from glasshouse.registry import parse_spec


@dataclass(frozen=True)
class Entry:
    """A defence at several strengths, weakest first.

    Compositions keep the order of the catalogue, so that what happens on the client's own data comes before
    what happens to its update. Of one `kind` a composition has one at most: noise on noise buys nothing that
    more noise would not. `against` evasion means that it is no defence of the data, and is tried only where
    limits ask for it.
    """

    name: str
    options: tuple[str, ...] = ("",)
    kind: str = ""
    against: str = "leaks"

    @property
    def specs(self) -> list[str]:
        """As users would write them."""
        return [f"{self.name}({options})" if options else self.name for options in self.options]


CATALOGUE = (
    Entry("vet"),
    Entry("larger-batches", ("factor=4",)),
    Entry("more-local-steps", ("factor=3",)),
    Entry("early-stopping", ("patience=3",)),
    Entry("mix-up", ("alpha=1.0",)),
    Entry("label-smoothing", ("amount=0.1", "amount=0.3")),
    Entry("weight-decay", ("amount=0.001", "amount=0.01")),
    Entry("adversarial-training", ("eps=0.1,steps=3",), against="evasion"),
    Entry("transformation-policy"),
    Entry("dp-sgd", ("target_epsilon=8.0", "target_epsilon=2.0"), kind="noise"),
    Entry("pruning", ("fraction=0.7", "fraction=0.95", "fraction=0.99")),
    Entry("clipping", ("norm=1.0", "norm=0.3")),
    Entry("gaussian-noise", ("std=0.02", "std=0.05", "std=0.1"), kind="noise"),
    Entry("laplacian-noise", ("scale=0.05",), kind="noise"),
    Entry("differential-privacy", ("target_epsilon=8.0", "target_epsilon=2.0"), kind="noise"),
    Entry("secure-aggregation"),
)
"""In the order in which they compose; those whose name is not registered are left out."""


def singles(*, evasion: bool = False) -> list[str]:
    """Every defence of the catalogue at each of its strengths, none of them composed."""
    return [
        spec
        for entry in CATALOGUE
        if entry.name in DEFENCES.places and (evasion or entry.against == "leaks")
        for spec in entry.specs
    ]


def composed(first: str, second: str) -> str | None:
    """Two defences as one, in the catalogue's order; null where they do not go together.

    >>> composed("gaussian-noise(std=0.05)", "pruning(fraction=0.95)")
    'pruning(fraction=0.95)+gaussian-noise(std=0.05)'
    >>> composed("gaussian-noise(std=0.05)", "laplacian-noise(scale=0.05)")
    """
    parts = [*split_defences(first), *split_defences(second)]
    names = [parse_spec(part, DEFENCES.kind)[0] for part in parts]
    kinds = [kind for kind in map(_kind, names) if kind]
    if len(set(names)) < len(names) or len(set(kinds)) < len(kinds):
        return None
    return "+".join(sorted(parts, key=_place))


def _place(spec: str) -> int:
    """Where a defence stands in the catalogue; one of a user's own after all others."""
    name = re.match(r"[^(]*", spec.strip())
    known = [entry.name for entry in CATALOGUE]
    return known.index(name[0]) if name and name[0] in known else len(known)


def _kind(name: str) -> str:
    return next((entry.kind for entry in CATALOGUE if entry.name == name), "")

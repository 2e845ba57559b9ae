"""Curves, histograms and pictures: what a page draws beside its findings, as `curves.json` holds it."""

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from glasshouse.measures.estimate import clopper_pearson
from glasshouse.packing import Column

LARGEST = 1e100
"""The largest number that is drawn: its square is finite, which axes and intervals need."""

Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]


PARTS = ("members", "nonmembers", "auxiliary", "test")
"""What every image of a division is one of, unless it is in no part."""


class Frozen(BaseModel):
    """A value that is read from a file once and does not change."""

    model_config = ConfigDict(frozen=True)


class Exhibit(Frozen):
    """Something to draw, and what it is about: a cell of the run, an attack and its adversary, a defence."""

    cell: str | None = None
    strategy: str = ""
    defence: str = "none"
    attack: str = ""
    adversary: str = ""
    seed: Whole | None = None


class TrainingPoint(Exhibit):
    """Accuracy after one round; `acc_local` is the mean over the clients' own models.

    `down` and `up` are the bytes that travel to and from one client; 0 where nobody counted.
    """

    round: Whole
    acc_global: Number | None
    acc_local: Number | None = None
    down: Whole = 0
    up: Whole = 0


class Roc(Exhibit):
    """A membership attack's ROC curve, `fpr` ascending, both of the same length.

    A question is about `unit` records at once; `members` and `nonmembers` count questions.
    """

    fpr: tuple[Number, ...]
    tpr: tuple[Number, ...]
    members: Whole
    nonmembers: Whole
    unit: Whole = 1


class Picture(Exhibit):
    """A private image, if anybody knows it, beside what the adversary made of it: paths in the run folder."""

    caption: str = ""
    original: str | None = None
    result: str
    note: str = ""


class Statement(Exhibit):
    """What one recorded update gives away, in words: the answer, what it rests on, and what was not tried."""

    answer: str
    found: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()


class Risk(Exhibit):
    """A membership attack's AUC on one client's records or after one round, both counted from 0.

    A client may have a `name`.
    """

    kind: Literal["client", "round"]
    index: Whole
    name: str = ""
    value: Number | None
    low: Number | None = None
    high: Number | None = None
    chance: Number | None = 0.5
    n: Whole | None = None


class Holder(Frozen):
    """One client: how many of its images fell to each part, and of which classes its members are.

    Where other parts were not drawn within clients, they are null. `largest` is the number of its most
    frequent class, `share` the share of its members that are of it.
    """

    name: str
    members: Whole
    nonmembers: Whole | None = None
    auxiliary: Whole | None = None
    test: Whole | None = None
    classes: Whole = 0
    largest: Whole = 0
    share: Number = 0.0


class Division(Exhibit):
    """Who holds what of the data: clients, parts, and how members were told from others.

    `labels` counts the images of each class in each part. `unused` images are in no part, besides those that
    are copies of images in another. Parts that were not `redrawn` are the same for every seed.
    """

    holders: tuple[Holder, ...]
    labels: dict[str, tuple[Whole, ...]]
    classes: tuple[str, ...] = ()
    partition: str = ""
    held_out: str = "given"
    official_test: bool = False
    unused: Whole = 0
    redrawn: bool = True

    @model_validator(mode="after")
    def _whole(self) -> "Division":
        lengths = {len(self.labels.get(part, ())) for part in PARTS}
        if lengths == {0} or len(lengths) > 1 or not sum(self.labels["members"]):
            raise ValueError("labels must count the classes of members, nonmembers, auxiliary and test")
        if not any(holder.members > 0 for holder in self.holders):
            raise ValueError("one of the holders must have members")
        return self


class Robustness(Exhibit):
    """The accuracy an attack leaves where it may move an image by `eps`; `chance` is what noise leaves.

    `difference` is how much more the federated model keeps than the central one, on the same images.
    """

    norm: str = "linf"
    eps: Number
    value: Number | None
    low: Number | None = None
    high: Number | None = None
    chance: Number | None = None
    n: Whole | None = None
    difference: Number | None = None
    difference_low: Number | None = None
    difference_high: Number | None = None


class CoursePoint(Exhibit):
    """How near rebuilt images had come after `step` steps and `seconds` on one update, by mean PSNR in dB.

    Over `n` images behind the `updates` attacked; the attack sees its `objective` alone. `chance` is what the
    nearest auxiliary images reach, chosen knowing the originals, `mean_image` the mean of the auxiliary ones.
    """

    step: Whole
    seconds: Number
    psnr: Number
    objective: Number | None = None
    chance: Number | None = None
    mean_image: Number | None = None
    updates: Whole | None = None
    n: Whole | None = None


class Histogram(Exhibit):
    """The share of a quantity's values in each of its bins, and the ends of the shares' 95% intervals.

    A fitted law has no intervals and no `n`.
    """

    quantity: str
    bins: tuple[str, ...]
    shares: tuple[Number, ...]
    low: tuple[Number | None, ...] = ()
    high: tuple[Number | None, ...] = ()
    n: Whole | None = None

    @classmethod
    def counted(cls, quantity: str, counts: Mapping[str, int], attack: str = "") -> "Histogram":
        """From how many values lie in each bin."""
        n = sum(counts.values())
        low, high = zip(*(clopper_pearson(count, n) for count in counts.values()))
        shares = tuple(count / n for count in counts.values())
        bins = tuple(counts)
        return cls(attack=attack, quantity=quantity, bins=bins, shares=shares, low=low, high=high, n=n)


class Records(Exhibit):
    """What was said of each record that was asked about, as `scores.npz` keeps it: columns of one length.

    `table` says which columns there are. A `record` is a position in the data set, or the digest of a batch.
    """

    table: str
    columns: dict[str, Column]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Records) and self.model_dump() == other.model_dump()

    def __hash__(self) -> int:
        return hash((self.table, self.cell, self.attack, self.adversary, self.seed))

    def __len__(self) -> int:
        return len(self.columns["record"])

    def __getitem__(self, column: str) -> np.ndarray:
        return self.columns[column]


class Series(Frozen):
    """One line or set of bars, a value for each category; `printed` when it is the paper's.

    A line drawn `like` another has its colour, and is dashed.
    """

    name: str
    values: tuple[Number | None, ...]
    low: tuple[Number | None, ...] = ()
    high: tuple[Number | None, ...] = ()
    printed: bool = False
    like: str = ""


class Chart(Frozen):
    """A figure of a study; `chance` is drawn as a dashed line.

    "curves" are lines through many points: no marks, and bands for intervals.
    """

    name: str
    title: str
    kind: Literal["lines", "curves", "bars"] = "lines"
    x: str = ""
    y: str = ""
    categories: tuple[str, ...]
    chance: Number | None = None
    log_y: bool = False
    series: tuple[Series, ...]
    note: str = ""


class StudyTable(Frozen):
    """A table as a study lays it out itself, usually as its paper does."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | Whole | Number | None, ...], ...]
    note: str = ""


class Exhibits(Frozen):
    """Everything that `curves.json` holds; the `records` are kept in `scores.npz` instead."""

    training: tuple[TrainingPoint, ...] = ()
    roc: tuple[Roc, ...] = ()
    gallery: tuple[Picture, ...] = ()
    risk: tuple[Risk, ...] = ()
    robustness: tuple[Robustness, ...] = ()
    course: tuple[CoursePoint, ...] = ()
    histograms: tuple[Histogram, ...] = ()
    statements: tuple[Statement, ...] = ()
    division: tuple[Division, ...] = ()
    records: tuple[Records, ...] = ()

    def about(self, **labels: str | int | None) -> "Exhibits":
        """The same, each labelled with the fields of `Exhibit` that are given."""
        labelled = {
            kind: tuple(exhibit.model_copy(update=labels) for exhibit in exhibits) for kind, exhibits in self
        }
        return Exhibits(**labelled)

    def __add__(self, other: "Exhibits") -> "Exhibits":
        return Exhibits(**{kind: exhibits + getattr(other, kind) for kind, exhibits in self})

"""Curves, histograms and pictures: what a page draws beside its findings, as `curves.json` holds it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class TrainingPoint(BaseModel):
    """Accuracy after one round; `acc_local` is the mean over the clients' own models.

    `down` and `up` are the bytes that travel to and from one client; 0 where nobody counted.
    """

    model_config = ConfigDict(frozen=True)

    cell: str | None = None
    defence: str = "none"
    strategy: str = ""
    round: int
    acc_global: float | None
    acc_local: float | None = None
    down: int = 0
    up: int = 0


class Roc(BaseModel):
    """A membership attack's ROC curve, `fpr` ascending, both of the same length.

    A question is about `unit` records at once; `members` and `nonmembers` count questions.
    """

    model_config = ConfigDict(frozen=True)

    cell: str | None = None
    adversary: str = ""
    attack: str
    defence: str = "none"
    fpr: tuple[float, ...]
    tpr: tuple[float, ...]
    members: int
    nonmembers: int
    unit: int = 1


class Picture(BaseModel):
    """A private image beside what the adversary made of it, as paths inside the run folder."""

    model_config = ConfigDict(frozen=True)

    cell: str | None = None
    adversary: str = ""
    attack: str = ""
    defence: str = "none"
    caption: str = ""
    original: str
    result: str
    note: str = ""


class Risk(BaseModel):
    """A membership attack's AUC on one client's records or after one round, both counted from 0."""

    model_config = ConfigDict(frozen=True)

    defence: str = "none"
    attack: str
    adversary: str = ""
    kind: Literal["client", "round"]
    index: int
    value: float | None
    low: float | None = None
    high: float | None = None
    chance: float | None = 0.5
    n: int | None = None


class Robustness(BaseModel):
    """The accuracy an attack leaves where it may move an image by `eps`; `chance` is what noise leaves.

    `difference` is how much more the federated model keeps than the central one, on the same images.
    """

    model_config = ConfigDict(frozen=True)

    cell: str | None = None
    strategy: str = ""
    defence: str = "none"
    attack: str
    adversary: str = ""
    norm: str = "linf"
    eps: float
    value: float | None
    low: float | None = None
    high: float | None = None
    chance: float | None = None
    n: int | None = None
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None


class Series(BaseModel):
    """One line or set of bars, a value for each category; `printed` when it is the paper's.

    A line drawn `like` another has its colour, and is dashed.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    values: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    printed: bool = False
    like: str = ""


class Chart(BaseModel):
    """A figure of a study; `chance` is drawn as a dashed line.

    "curves" are lines through many points: no marks, and bands for intervals.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    title: str
    kind: Literal["lines", "curves", "bars"] = "lines"
    x: str = ""
    y: str = ""
    categories: tuple[str, ...]
    chance: float | None = None
    log_y: bool = False
    series: tuple[Series, ...]
    note: str = ""


class StudyTable(BaseModel):
    """A table as a study lays it out itself, usually as its paper does."""

    model_config = ConfigDict(frozen=True)

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | None, ...], ...]
    note: str = ""


class Exhibits(BaseModel):
    """What `curves.json` holds."""

    model_config = ConfigDict(frozen=True)

    training: tuple[TrainingPoint, ...] = ()
    roc: tuple[Roc, ...] = ()
    gallery: tuple[Picture, ...] = ()
    risk: tuple[Risk, ...] = ()
    robustness: tuple[Robustness, ...] = ()

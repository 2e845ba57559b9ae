"""The tables that turn families, adversaries and defences into plain words.

A new family is one entry here; what is not listed is shown under its own name.
"""

import re
from dataclasses import dataclass

from glasshouse.defences import split_defences
from glasshouse.report.metrics import metric_words

VETTING = "vetting"  # the family of what a client could have noticed
CURVATURE = "curvature"  # the family of what the weights say about robustness
CENTRAL = "central"  # the strategy of the baseline


@dataclass(frozen=True)
class Family:
    """What a kind of attack is after, which metric leads, and how its verdicts are worded.

    `judges` says what a question is about, one and many of them. Where answers are yes or no, or ranks, they
    can be turned round: an attack that does worse than a blind guess has found something.
    """

    label: str
    question: str
    headline: str
    found: str = "leaks"
    not_found: str = "no leak found"
    judges: tuple[str, str] = ("record", "records")
    turns_round: bool = True


@dataclass(frozen=True)
class Adversary:
    """Who an adversary is (`subject` opens sentences about it) and what it can touch."""

    label: str
    subject: str
    who: str
    touches: str


ADVERSARIES = {
    "outsider": Adversary(
        "Outsider",
        "An outsider who can only ask the model for predictions",
        "Anyone who can use the finished model: a customer, a competitor, a curious stranger.",
        "Asks the final model for predictions.",
    ),
    "owner": Adversary(
        "Owner of the model",
        "The owner of the model, who can read its weights,",
        "Whoever holds a copy of the finished model: every client, and anyone it is shipped to.",
        "Reads the final weights and computes gradients through them.",
    ),
    "client": Adversary(
        "Client",
        "A client that looks at what the server sends it beside the model",
        "Any participant, honest in what it does, but looking at what it receives.",
        "Reads, round by round, the model and whatever else the server sends to all.",
    ),
    "curious server": Adversary(
        "Curious server",
        "A curious server that follows the protocol but reads what every client sends",
        "The party that runs the federation, honest in what it does, but looking.",
        "Reads, round by round, the model it sent, the update of each client, unless only their sum arrives, "
        "and what the strategy has clients tell beside it.",
    ),
    "blind server": Adversary(
        "Blind server",
        "A server that sees only the sum of the updates",
        "The same server behind secure aggregation: no single update reaches it.",
        "Reads, round by round, the model it sent and the sum of the updates.",
    ),
    "blind crafting server": Adversary(
        "Blind crafting server",
        "A server that sends a model it has tampered with, and sees only the sum of what comes back,",
        "A server that does not keep to the protocol, behind secure aggregation that does its part.",
        "Chooses the parameters it sends, and reads the sum of the updates.",
    ),
    "crafting server": Adversary(
        "Crafting server",
        "A server that sends a model it has tampered with",
        "A server that does not keep to the protocol, and that clients trust.",
        "Chooses the parameters it sends, and reads what comes back.",
    ),
}

FAMILIES = {
    "utility": Family("Accuracy", "How good is the model?", "test-accuracy"),
    "membership": Family("Membership", "Was this record used for training?", "auc"),
    "batch-membership": Family(
        "Membership of batches",
        "Was this batch of records used for training?",
        "auc",
        judges=("batch", "batches"),
    ),
    "source": Family("Source", "Which client held this record?", "source-accuracy"),
    "labels": Family("Labels", "Which classes do the clients hold, and how many of each?", "label-overlap"),
    "disclosure": Family(
        "Samples",
        "Do the samples that the server sends lie nearer to training records than to others?",
        "nearest-member-share",
    ),
    "reconstruction": Family(
        "Reconstruction", "Can the server rebuild training images?", "recovery-rate", turns_round=False
    ),
    CURVATURE: Family("Curvature", "How sharp is the model's loss?", "top-eigenvalue"),
    VETTING: Family("Vetting", "Would a client have noticed?", "vet-alarm"),
    "evasion": Family(
        "Evasion",
        "Can changed images fool the model?",
        "robust-accuracy",
        "can be fooled",
        "no weakness found",
    ),
}


def adversary_words(name: str) -> Adversary:
    """The entry of an adversary, or one made from its name."""
    known = ADVERSARIES.get(name)
    return known or Adversary(name.capitalize(), f"The adversary called {name}", "", "")


def family_words(name: str) -> Family:
    """The entry of a family, or one made from its name (with no headline metric)."""
    return FAMILIES.get(name) or Family(name.capitalize(), "", "")


def sentence_words(metric: str, family: str) -> str:
    """What a metric `says`, about records or whatever else the family judges."""
    one, many = family_words(family).judges
    return re.sub(r"\brecord(s?)\b", lambda found: many if found[1] else one, metric_words(metric).says)


def defence_words(spec: str | None) -> str:
    """A short name: `pruning(fraction=0.95)` is "pruning 0.95", `none` is "undefended"."""
    if not spec or spec == "none":
        return "undefended"
    return " + ".join(_one_defence(part) for part in split_defences(spec))


def _one_defence(spec: str) -> str:
    name, _, inside = spec.strip().partition("(")
    options = [option.strip() for option in inside.rstrip(")").split(",") if option.strip()]
    if len(options) == 1:
        options = [options[0].partition("=")[2] or options[0]]
    return " ".join([name.replace("-", " ").strip(), *options])

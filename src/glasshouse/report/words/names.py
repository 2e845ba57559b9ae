"""Adversaries, defences and attacks in plain words."""

from collections.abc import Sequence
from dataclasses import dataclass

from glasshouse.spelling import defence_words as defence_words


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
        "and what the strategy has clients report beside it.",
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

_CALLED = {
    "i-fgsm": "I-FGSM",
    "mia-bad": "MIA-BAD",
    "r-gap": "R-GAP",
    "scale-mia": "Scale-MIA",
    "scale-mia-coded": "Scale-MIA, coded",
    "scale-mia-peeled": "Scale-MIA, peeled",
    "apgd-t": "APGD-T",
    "fab-t": "FAB-T",
    "strongest": "strongest evasion",
}
"""Attacks whose names are spelled otherwise than they are typed."""

_SPELLED = {
    "adam": "Adam",
    "apgd": "APGD",
    "april": "APRIL",
    "bavaria": "BaVarIA",
    "ce": "CE",
    "dlg": "DLG",
    "dlr": "DLR",
    "fgsm": "FGSM",
    "gradinversion": "GradInversion",
    "gradvit": "GradViT",
    "idlg": "iDLG",
    "l1": "L1",
    "l2": "L2",
    "lbfgs": "L-BFGS",
    "lira": "LiRA",
    "llr": "LLR",
    "pgd": "PGD",
    "rmia": "RMIA",
    "sgd": "SGD",
}
"""Parts of names that are spelled otherwise than they are typed."""


def adversary_words(name: str) -> Adversary:
    """The entry of an adversary, or one made from its name."""
    known = ADVERSARIES.get(name)
    return known or Adversary(name.capitalize(), f"The adversary called {name}", "", "")


def attack_words(spec: str | None) -> str:
    """What an attack is called in a text, without its options.

    >>> attack_words("strongest-inversion(seconds=2.0,adaptive=True)"), attack_words("lira")
    ('strongest inversion', 'LiRA')
    """
    name = (spec or "").partition("(")[0].strip()
    return _CALLED.get(name) or " ".join(_SPELLED.get(part, part) for part in name.split("-"))


def short_names(attacks: Sequence[str]) -> dict[str, str]:
    """Each attack without its options, where that still tells them apart."""
    bases = [attack.partition("(")[0] for attack in attacks]
    return {
        full: attack_words(full) if bases.count(base) == 1 else full for full, base in zip(attacks, bases)
    }

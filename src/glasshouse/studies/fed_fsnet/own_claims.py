"""What the study asks beyond the paper: what in Fed-FSNet matters, who does better, and what leaks."""

from collections.abc import Iterator

from glasshouse.studies.fed_fsnet.measured import MEMBERSHIP, REPORTED, Federations
from glasshouse.studies.fed_fsnet.parts import EQUAL, MORE, NO_MORE, gain, told
from glasshouse.studies.fed_fsnet.printed import OTHERS, WORDS
from glasshouse.verdicts.claims import Claim, Part

UNIMPORTANT = {
    "hidden-16": "a hidden model of 16 neurons",
    "mixture-single": "one Gaussian for all clients",
    "beta-constant": "a beta that stays 1",
}
"""Changes of Fed-FSNet that would make no difference if its mimic samples said little."""
TAUGHT = {
    "target-class": "the class that a mimic stands for",
    "target-global": "what the global model answers to it",
}
"""What clients learn about mimic samples instead of indecision."""
REPORTING = ("afl", "fedgen")
Question = tuple[str, list[Part]]


def own_claims(federations: Federations) -> Iterator[Claim]:
    """Ablations, features, other strategies and leaks, each with a letter."""
    questions = [*_ablations(federations), *_strategies(federations), *_leaks(federations)]
    for letter, (text, parts) in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", questions, strict=False):
        yield Claim(f"{letter}. {text}", parts, own=True)


def _ablations(federations: Federations) -> Iterator[Question]:
    for method, words in UNIMPORTANT.items():
        yield (
            f"Fed-FSNet does as well with {words}",
            [
                gain(federations, method, (where, "fed-fsnet"), holds=EQUAL, refuted=None)
                for where in federations.scenarios("ablation")
                if federations.has((where, method))
            ],
        )
    for method, words in TAUGHT.items():
        yield (
            f"Fed-FSNet does better where clients learn {words}",
            [
                gain(federations, method, (where, "fed-fsnet"))
                for where in federations.scenarios("ablation")
                if federations.has((where, method))
            ],
        )


def _strategies(federations: Federations) -> Iterator[Question]:
    yield (
        "Behind a pre-trained extractor Fed-FSNet is above FedAvg",
        [
            gain(federations, "extractor-fed-fsnet", (where, "extractor-fedavg"))
            for where in federations.scenarios("extractor")
        ],
    )
    compared = [(method, "fedavg") for method in OTHERS] + [("fedrecall", "fedgen")]
    for method, other in compared:
        yield (
            f"{WORDS[method]} has a higher Acc_global than {WORDS[other]}",
            [
                gain(federations, method, (where, other))
                for where in federations.scenarios()
                if federations.has((where, method))
            ],
        )


def _leaks(federations: Federations) -> Iterator[Question]:
    scenarios = federations.scenarios("leaks")
    yield (
        "Other strategies give away no more of their members than FedAvg",
        [
            gain(federations, method, (where, "fedavg"), MEMBERSHIP, holds=NO_MORE, refuted=MORE)
            for where in scenarios
            for method in federations.methods(where, "leaks")
            if method not in ("fedavg", "upper-bound", "fed-fsnet")
        ],
    )
    yield (
        "What AFL and FedGEN have clients report tells nothing of their labels",
        [
            told(federations, (where, method), REPORTED, "labels told")
            for where in scenarios
            for method in REPORTING
            if federations.has((where, method))
        ],
    )

"""Where on the ladder of realism a model falls, in words."""

from collections.abc import Sequence

from glasshouse.report.words.names import defence_words
from glasshouse.spelling import listed, number
from glasshouse.verdicts.ladder import AS_SENT, Ladder, Step

_NAMES = {
    "upper-bound": "upper bound",
    "labels-unknown": "labels unknown",
    "train-mode": "train mode",
    "batch": "a batch",
    "local-steps": "local steps",
    AS_SENT: "as clients sent them",
}


def rung_words(step: Step) -> str:
    """A rung's name; that of a defended one is its defence's."""
    return _NAMES.get(step.name, step.name) if step.defence == "none" else defence_words(step.defence)


def ladder_sentence(ladder: Ladder) -> str:
    """Up to which rung images are rebuilt better than anybody could guess, and which defences end it."""
    measured = [step for step in ladder.steps if step.psnr.value is not None]
    if not measured:
        return "No rung could be tried: " + ladder.steps[0].psnr.reason + "."
    return " ".join(filter(None, (_height(ladder, measured), _beyond_oracle(ladder), _defences(ladder))))


def _height(ladder: Ladder, measured: Sequence[Step]) -> str:
    last = ladder.last_beaten
    if last is None:
        return (
            f"Not even on the rung “{rung_words(measured[0])}” do reconstructions beat a blind guess, the "
            "mean of the images that the attacker had before."
        )
    reached = f"{number(last.psnr.value)} dB on average, the guess {number(last.blind)} dB"
    if last is measured[-1]:
        return f"Up to the top rung, “{rung_words(last)}”, reconstructions beat a blind guess: {reached}."
    following = measured[measured.index(last) + 1]
    return (
        f"This model falls on the rung “{rung_words(last)}”: the last on which reconstructions still beat a "
        f"blind guess ({reached}). From “{rung_words(following)}” on they do not, as far as this search got."
    )


def _beyond_oracle(ladder: Ladder) -> str:
    last = ladder.last_beyond_oracle
    if last is None:
        return "On none do they come nearer than the most similar image that the attacker had before."
    return (
        f"Up to “{rung_words(last)}” they come nearer than even the most similar image that the attacker had "
        "before, which only someone who knows the originals can pick."
    )


def _defences(ladder: Ladder) -> str:
    tried = [step for step in ladder.defended if step.psnr.value is not None]
    through = [rung_words(step) for step in tried if step.beats_blind]
    held = [rung_words(step) for step in tried if not step.beats_blind]
    said = []
    if through:
        said.append(f"The same local steps are still rebuilt under {listed(through)}.")
    if held:
        said.append(f"Under {listed(held)} nothing better than the blind guess is left of them.")
    return " ".join(said)

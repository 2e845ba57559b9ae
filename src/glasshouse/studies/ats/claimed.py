"""What the replication claims, when an attack shows something, and why a claim may stay open."""

from glasshouse.studies.ats import measured as reading
from glasshouse.studies.ats.measured import Exposure, estimated
from glasshouse.studies.ats.printed import PEARSON, REPLICATED_PEARSON
from glasshouse.verdicts.claims import Verdict

REHEARSAL = "digits"
"""The data of the scale `smoke`, about which the papers claim nothing."""

CLEAR = 1.0
"""An attack that comes no further than 1 dB above the blind guess shows nothing."""

NEGLIGIBLE = 0.02
"""A loss of accuracy under two points."""

LINEAR = 0.5
"""A correlation below explains less than a quarter of the variance."""

FEWEST = 10
"""Policies that a correlation takes."""

RELIABLE = 0.5
"""A PSNR that agrees less with itself, from images to other images, can be seen to correlate with nothing."""

UNDERTRAINED = f"the undefended model is less than {reading.FAR_ENOUGH} times as accurate as a blind guess"
UNLEARNED = (
    f"the undefended model has less than {100 * reading.LEARNED:g}% of the accuracy that the papers print"
)
POWERLESS = f"without a defence the search is not surely, or not {CLEAR:g} dB, above the blind guess"
MISSING = "too few cells are done"
REHEARSED = "the digits only show that it runs"

CLAIMS = {
    1: "1. Policies that a search chose make reconstruction infeasible",
    2: "2. They defeat several variants of the attack",
    3: "3. They transfer: policies searched on CIFAR-100 protect Fashion-MNIST",
    4: f"4. They cost less than {100 * NEGLIGIBLE:g} points of accuracy",
    5: "5. They distort details and keep the meaning: shallow layers' gradients lose more likeness than deep",
    6: "6. The five best transformations are 3, 15, 26, 18 and 1",
    7: f"7. S_pri and PSNR are linearly correlated (printed: {PEARSON}, replicated: {REPLICATED_PEARSON})",
}
EXTENSIONS = {
    1: "Extension 1. Policies searched on CIFAR-100 make reconstruction of Tiny-ImageNet infeasible",
    2: "Extension 2. The five best transformations are the same on Tiny-ImageNet",
}


def shows(exposure: Exposure) -> bool:
    """Whether an attack shows something at all."""
    excess = estimated(exposure.excess.values())
    return excess is not None and (excess.value or 0.0) > CLEAR and (excess.low or 0.0) > 0


def listed(words: list[str]) -> str:
    """Words with commas between them, each once."""
    return ", ".join(dict.fromkeys(words))


def left_open(claim: str, reasons: list[str]) -> Verdict:
    """A claim that nothing follows for, and why."""
    return Verdict(claim, "open", listed(reasons) or MISSING)

"""How far up the ladder of realism training images are still rebuilt."""

from collections.abc import Sequence
from dataclasses import dataclass

from glasshouse.findings import LADDER
from glasshouse.verdicts.measure import Measure, grouped

AS_SENT = "as-sent"
"""The rung of the federation's own updates, which the audit's ordinary findings are about."""

_CLIMBER = "strongest-inversion"
_READER = "curious server"


@dataclass(frozen=True)
class Step:
    """One rung: the mean PSNR, null with its reason where there is none, and that of the blind guess.

    The measure's own chance is what an oracle reaches, who knows the originals. `conditions` say how the
    clients trained and what the attacker was given.
    """

    name: str
    defence: str
    psnr: Measure
    blind: float | None
    conditions: str

    @property
    def beats_blind(self) -> bool:
        """Whether the interval lies above what the mean auxiliary image reaches."""
        return self.blind is not None and self.psnr.low is not None and self.psnr.low > self.blind

    @property
    def beats_oracle(self) -> bool:
        """Whether it lies above what the nearest auxiliary images reach."""
        return self.psnr.judged == "leak"


@dataclass(frozen=True)
class Ladder:
    """The rungs without a defence, from the easiest to the updates that were sent; and those `defended`."""

    steps: tuple[Step, ...]
    defended: tuple[Step, ...]

    @property
    def last_beaten(self) -> Step | None:
        """The last rung on which reconstructions still beat the blind guess."""
        return next((step for step in reversed(self.steps) if step.beats_blind), None)

    @property
    def last_beyond_oracle(self) -> Step | None:
        """The last rung on which they beat the oracle too."""
        return next((step for step in reversed(self.steps) if step.beats_oracle), None)


def ladder(measures: Sequence[Measure]) -> Ladder | None:
    """The ladder that an audit climbed; null where it did not."""
    made = [m for m in measures if m.row.family == LADDER and m.row.cell != LADDER]
    if not made:
        return None
    steps = [_step(rung.removeprefix(f"{LADDER}/"), found) for rung, found in _by_rung(made).items()]
    bare = [step for step in steps if step.defence == "none"]
    sent = [m for m in measures if _as_sent(m)]
    if sent:
        bare.append(_step(AS_SENT, sent))
    return Ladder(tuple(bare), tuple(step for step in steps if step.defence != "none"))


def _by_rung(measures: Sequence[Measure]) -> dict[str, list[Measure]]:
    return grouped(measures, lambda m: m.row.cell)


def _as_sent(measure: Measure) -> bool:
    row = measure.row
    named = (row.attack or "").partition("(")[0] == _CLIMBER
    return named and row.family != LADDER and row.adversary == _READER and (row.defence or "none") == "none"


def _step(name: str, measures: Sequence[Measure]) -> Step:
    by_metric = {m.row.metric: m for m in _furthest(measures)}
    psnr = by_metric.get("psnr", measures[0])
    blind = by_metric.get("mean-image-psnr")
    noted = next((m.row.note for m in by_metric.values() if m.row.note), "")
    return Step(
        name.partition("/")[0],
        psnr.row.defence or "none",
        psnr,
        None if blind is None else blind.value,
        noted.partition(";")[0],
    )


def _furthest(measures: Sequence[Measure]) -> Sequence[Measure]:
    """Those of the attack with the highest PSNR, where one knew the defence and another did not."""
    attacks = grouped(measures, lambda m: m.row.attack)

    def reached(attack: str | None) -> float:
        return max(
            (m.value for m in attacks[attack] if m.row.metric == "psnr" and m.value is not None), default=-1.0
        )

    return attacks[max(attacks, key=reached)]

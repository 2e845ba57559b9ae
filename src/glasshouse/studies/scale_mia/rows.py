"""From rounds that were judged to the findings of a cell."""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from glasshouse.access import BlindServerAccess
from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate, combined, mean, proportion
from glasshouse.measures.pictures import CAP, RECOVERED
from glasshouse.studies.scale_mia.stage import Judged, Stage
from glasshouse.verdicts.metrics import VETTING

ENOUGH = 4
"""From as many rounds on, an interval is over them: samples of one round succeed and fail together."""

OVER_ROUNDS = "the interval is over {} rounds with other victims (t)"
OVER_SAMPLES = "the interval takes the samples of the {} round(s) as independent"

BOUNDS = {"psnr": (0.0, CAP), "ssim": (-1.0, 1.0)}
EDGES = (0, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 100)
"""PSNRs, in dB, between which Figure 5 counts samples."""

BOUND = "single-occupancy"
RETURNED = "psnr-of-returned"


def reconstruction_rows(
    stage: Stage,
    attack: str,
    judged: Sequence[Judged],
    *,
    offline: float,
    assumes: tuple[str, ...],
    printed: Mapping[str, float],
) -> list[Finding]:
    """Every metric of one attack over all rounds."""
    found = over_rounds(judged)
    found["offline-seconds"] = (_seconds([offline]), None)
    found["online-seconds"] = (_seconds([own.evidence.online for own in judged]), None)
    notes = tuple(dict.fromkeys(own.evidence.note for own in judged if own.evidence.note))
    rows = []
    for metric, (estimate, chance) in found.items():
        said = (estimate.note,) if estimate.note else ()
        entries = _entries(metric, estimate, assumes + notes + said)
        rows.append(
            finding(
                stage,
                family="reconstruction",
                adversary=BlindServerAccess.adversary,
                attack=attack,
                chance=chance,
                printed=printed.get(metric),
                **entries,
            )
        )
    return rows


def over_rounds(judged: Sequence[Judged]) -> dict[str, tuple[Estimate, float | None]]:
    """Each metric with its blind guess, over the rounds; `n` counts samples."""
    made: dict[str, tuple[Estimate, float | None]] = {}
    named = [{score.metric: score for score in own.scores} for own in judged]
    for metric in ("recovery-rate", "near-exact-rate", "psnr", "ssim"):
        each = [scores[metric].estimate for scores in named]
        chances = [scores[metric].chance or 0.0 for scores in named]
        made[metric] = (pooled(each, BOUNDS.get(metric, (0.0, 1.0))), float(np.mean(chances)))
    psnr = np.concatenate([own.psnr for own in judged])
    returned = np.concatenate([own.returned for own in judged])
    made["psnr-of-recovered"] = (
        _mean_of(psnr[psnr >= RECOVERED], f"no image reached {RECOVERED:g} dB"),
        None,
    )
    made[RETURNED] = (_mean_of(psnr[returned], "no image was returned"), None)
    return made


def pooled(rounds: Sequence[Estimate], bounds: tuple[float, float]) -> Estimate:
    """The mean over rounds of equal size; see `ENOUGH` for what its interval is over."""
    n = sum(own.n for own in rounds)
    values = [own.value for own in rounds if own.value is not None]
    if len(values) >= ENOUGH and len(set(values)) > 1:
        return dataclasses.replace(mean(values, bounds=bounds), n=n, note=OVER_ROUNDS.format(len(values)))
    whole = combined(rounds, [1 / len(rounds)] * len(rounds))
    return dataclasses.replace(_cut(whole, bounds), note=OVER_SAMPLES.format(len(rounds)))


def distribution_rows(stage: Stage, attack: str, judged: Sequence[Judged]) -> list[Finding]:
    """How the PSNRs of all samples are distributed, for Figure 5."""
    psnr = np.concatenate([own.psnr for own in judged])
    rows = []
    for low, high in pairwise(EDGES):
        inside = (psnr >= low) & (psnr < high) if high < CAP else psnr >= low
        share = proportion(int(inside.sum()), len(psnr))
        entries = _entries(psnr_bin(low, high), share, ())
        rows.append(finding(stage, family="distribution", attack=attack, **entries))
    return rows


def psnr_bin(low: int, high: int) -> str:
    """The metric that counts samples between two PSNRs."""
    return f"psnr-{low}-to-{high}"


def bound_row(stage: Stage) -> Finding:
    """The share of samples that are alone in their bin if k neurons part a batch of m: (1 - 1/k)^(m-1)."""
    share = (1 - 1 / stage.prepared.neurons) ** (stage.group.batch - 1)
    said = (f"k = {stage.prepared.neurons} neurons and bins that are equally likely",)
    return finding(stage, family="bound", metric=BOUND, value=share, n=stage.group.batch, assumes=said)


def vetting_row(stage: Stage, attack: str, flagged: bool, honest: bool, reasons: tuple[str, ...]) -> Finding:
    """Whether a vetting client would have flagged what was sent; its chance is the untouched network."""
    return finding(
        stage,
        family=VETTING,
        adversary=BlindServerAccess.adversary,
        attack=attack,
        chance=float(honest),
        **_entries("vet-alarm", proportion(int(flagged), 1), reasons),
    )


def missing_row(stage: Stage, attack: str, reason: str) -> Finding:
    """An attack that could not run."""
    return finding(
        stage,
        family="reconstruction",
        adversary=BlindServerAccess.adversary,
        attack=attack,
        metric="not-applicable",
        value=None,
        assumes=(reason,),
    )


def finding(stage: Stage, **entries: Any) -> Finding:
    """A finding about a stage; the study stamps it with its source, cell and seed."""
    common: dict[str, Any] = {
        "source": "",
        "cell": "",
        "defence": stage.conditions.defence,
        "strategy": stage.conditions.strategy,
        "data": stage.prepared.target.data,
        "model": stage.prepared.target.network,
    }
    return Finding(**common | entries)


def _entries(metric: str, estimate: Estimate, assumes: tuple[str, ...]) -> dict[str, Any]:
    return estimate.entries() | {"metric": metric, "assumes": assumes}


def _mean_of(values: np.ndarray, otherwise: str) -> Estimate:
    if not len(values):
        return Estimate(None, None, None, 0, f"not estimable: {otherwise}")
    return mean(values.tolist(), bounds=(0.0, CAP))


def _seconds(values: Sequence[float]) -> Estimate:
    return Estimate(round(float(np.mean(values)), 5), None, None, len(values))


def _cut(estimate: Estimate, bounds: tuple[float, float]) -> Estimate:
    if estimate.low is None or estimate.high is None:
        return estimate
    return dataclasses.replace(estimate, low=max(bounds[0], estimate.low), high=min(bounds[1], estimate.high))

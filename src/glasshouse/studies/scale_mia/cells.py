"""What is measured in each cell: attacks on rounds of fresh victims, or the brightness of latents."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from glasshouse.attacks.attack import required
from glasshouse.auditing.case import Case
from glasshouse.auditing.examine import Examination, examine
from glasshouse.auditing.gallery import contact_sheet, save_png
from glasshouse.evidence.evidence import Score
from glasshouse.evidence.reconstruction import Reconstructions
from glasshouse.exhibits import Exhibits, Histogram
from glasshouse.findings import Finding, Subject
from glasshouse.learning.seeds import torch_rng
from glasshouse.measures.estimate import Estimate, combined, mean, proportion
from glasshouse.measures.pictures import CAP, RECOVERED, Match, match
from glasshouse.studies.address import Address
from glasshouse.studies.measured import Measured
from glasshouse.studies.scale_mia.printed import Printed
from glasshouse.studies.scale_mia.scenarios import Prepared, RoundPlan, cases
from glasshouse.studies.study import CellResult, Workplace
from glasshouse.verdicts.metrics import VETTING
from glasshouse.vetting.vet import vet

PUBLISHED = "scale-mia"
DRAWN = "scale-mia(last='drawn')"
CODED = "scale-mia-coded"
PEELED = "scale-mia-peeled(rounds=1)"
RATE, PSNR, RETURNED, BLIND = "recovery-rate", "psnr-of-recovered", "psnr-of-returned", "mean-image-psnr"
BOUND, ALARM, DISTANCE = "single-occupancy", "vet-alarm", "kolmogorov-smirnov"
HEADS = (PUBLISHED, DRAWN, CODED)
"""Heads of Scale-MIA: as the paper says, as its authors' code has it, and ours."""

IDEAL = "ideal"
"""The channel that delivers the exact sum."""

FAMILY = "scale-mia"
"""How the names of all attacks begin that an autoencoder is granted."""

LATENTS, LAWS = "auxiliary latents", ("normal", "laplace")

PICTURED = 64
"""The batch size of the paper's pictures."""

ENOUGH = 4
"""From as many rounds on, an interval is over them: samples of one round succeed and fail together."""

BOUNDS = {
    RATE: (0.0, 1.0),
    "near-exact-rate": (0.0, 1.0),
    "psnr": (0.0, CAP),
    BLIND: (0.0, CAP),
    "ssim": (-1.0, 1.0),
}
"""What is pooled over rounds, and the least and most it can be."""

PSNR_EDGES = (0, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 100)
"""PSNRs, in dB, between which Figure 5 counts samples."""
PSNR_BINS = tuple(f"{low}\N{EN DASH}{high}" for low, high in pairwise(PSNR_EDGES))

EDGES = np.arange(-3.0, 3.01, 0.5)
"""Standard deviations from the mean, between which Figure 6 counts latents; the outer bins have no end."""
BINS = (
    f"below {EDGES[0]:+.1f}",
    *(f"{low:+.1f} to {high:+.1f}" for low, high in pairwise(EDGES)),
    f"above {EDGES[-1]:+.1f}",
)


@dataclass(frozen=True)
class Table3Cell(Address):
    """A rival of Scale-MIA at one batch size."""

    pattern: ClassVar[str] = "table-3/{attack}/{batch}"
    attack: str
    batch: int


@dataclass(frozen=True)
class Table4Cell(Address):
    """One network, data set and batch size."""

    pattern: ClassVar[str] = "table-4/{network}/{data}/{batch}"
    network: str
    data: str
    batch: int


@dataclass(frozen=True)
class HeadsCell(Address):
    """The published head and ours at one batch size, through a `channel`: ideal, or bits of an entry."""

    pattern: ClassVar[str] = "heads/{channel}/{batch}"
    channel: str
    batch: int


@dataclass(frozen=True)
class StarvedCell(Address):
    """An attacker with less data: a share of the images (`table` 5, and 6), or some classes (7, and 8)."""

    pattern: ClassVar[str] = "table-{table}/{amount:g}/{batch}"
    table: int
    amount: float
    batch: int


@dataclass(frozen=True)
class Figure6Cell(Address):
    """The latents of one network and data set."""

    pattern: ClassVar[str] = "figure-6/{network}/{data}"
    network: str
    data: str


@dataclass(frozen=True)
class VariedCell(Address):
    """What the paper leaves open: one value of what a question varies."""

    pattern: ClassVar[str] = "{question}/{value}"
    question: str
    value: str


def table_4(measured: Measured) -> dict[tuple[str, str], dict[int, str]]:
    """For each network and data set of Table 4 that is begun its finished cells, by rising batch size."""
    rows: dict[tuple[str, str], dict[int, str]] = {}
    for cell in Table4Cell.matching(measured.cells):
        rows.setdefault((cell.network, cell.data), {})[cell.batch] = str(cell)
    return {row: dict(sorted(by_batch.items())) for row, by_batch in rows.items()}


def varied(measured: Measured, question: str) -> dict[str, str]:
    """The finished cells of a question, by what it varies."""
    cells = VariedCell.matching(measured.cells)
    return {cell.value: str(cell) for cell in cells if cell.question == question}


def attacks(measured: Measured, cells: Iterable[str]) -> list[str]:
    """The attacks that were measured in some cells."""
    return list(dict.fromkeys(attack for cell in cells for attack in measured.attacks(cell, "psnr")))


def attacked(
    prepared: Prepared,
    plan: RoundPlan,
    specs: Sequence[str],
    place: Workplace,
    printed: Mapping[str, Printed],
    *,
    pictures: bool = False,
    distribution: bool = False,
    vetting: bool = False,
) -> CellResult:
    """All metrics of some attacks on the same victims; `printed` are the paper's, by attack.

    A cell may also show pictures, the spread of PSNRs, and what a client notices.
    """
    rounds = cases(prepared, plan, place)
    findings = [] if prepared.surrogate is None else [_bound(prepared, plan, rounds[0].subject)]
    histograms = []
    for spec in specs:
        tracked = place.progress.track(rounds, f"{spec}, batches of {plan.batch}", len(rounds))
        examinations = [_examined(case, spec, plan, place.seed) for case in tracked]
        if failed := [examination for examination in examinations if examination.reason]:
            findings += failed[0].findings()
            continue
        matches = [match(_originals(seen), _rebuilt(seen).x) for seen in examinations]
        findings += over_rounds(examinations, matches, printed.get(spec, {}))
        if distribution:
            counts, _ = np.histogram(np.concatenate([matched.psnr for matched in matches]), PSNR_EDGES)
            histograms.append(Histogram.counted("psnr", dict(zip(PSNR_BINS, counts.tolist())), spec))
        if vetting:
            findings.append(_vetted(examinations[0], prepared.network))
        if pictures:
            for part, images in (("originals", _originals(examinations[0])), ("rebuilt", matches[0].guess)):
                save_png(contact_sheet(images), place.folder / sheet_name(spec, part))
    return CellResult(findings, Exhibits(histograms=tuple(histograms)))


def _examined(case: Case, spec: str, plan: RoundPlan, seed: int) -> Examination:
    """One attack on the victims of one round; it crafts the same model in every round."""
    granted = case if spec.startswith(FAMILY) else dataclasses.replace(case, surrogate=None)
    return examine(granted, spec, plan.adversary, rng=torch_rng(seed, "attack", spec), detailed=False)


def _rebuilt(examination: Examination) -> Reconstructions:
    assert isinstance(examination.evidence, Reconstructions)
    return examination.evidence


def _originals(examination: Examination) -> Tensor:
    """The images of the clients that the attack is about, shape (N, C, H, W)."""
    truth = examination.case.truth
    assert truth is not None
    return torch.cat([truth.held_by(part.clients).x for part in _rebuilt(examination).parts])


def over_rounds(
    examinations: Sequence[Examination], matches: Sequence[Match], printed: Printed
) -> list[Finding]:
    """Every metric of one attack over all rounds."""
    evidence = [_rebuilt(examination) for examination in examinations]
    by_metric = [{score.metric: score for score in examination.scores} for examination in examinations]
    scores = []
    for metric, bounds in BOUNDS.items():
        rounds = [of_round[metric] for of_round in by_metric]
        estimate = pooled([score.estimate for score in rounds], bounds)
        chances = [score.chance for score in rounds if score.chance is not None]
        scores.append(Score(metric, estimate, float(np.mean(chances)) if chances else None))
    psnr = np.concatenate([matched.psnr for matched in matches])
    returned = np.concatenate([matched.returned for matched in matches])
    offline, online = np.mean([(part.offline, part.online) for part in evidence], axis=0).tolist()
    scores += [
        Score(PSNR, _mean_psnr(psnr[psnr >= RECOVERED], f"no image reached {RECOVERED:g} dB")),
        Score(RETURNED, _mean_psnr(psnr[returned], "no image was returned")),
        Score("offline-seconds", Estimate(round(offline, 5), None, None, 1)),
        Score("online-seconds", Estimate(round(online, 5), None, None, len(evidence))),
    ]
    notes = dict.fromkeys(part.note for part in evidence if part.note)
    seconds = sum(examination.seconds or 0.0 for examination in examinations)
    whole = dataclasses.replace(examinations[0], note="; ".join(notes) or None, seconds=round(seconds, 3))
    return [whole.finding(score, printed=printed.get(score.metric)) for score in scores]


def pooled(rounds: Sequence[Estimate], bounds: tuple[float, float]) -> Estimate:
    """The mean over rounds of equal size; see `ENOUGH` for what its interval is over."""
    values = [estimate.value for estimate in rounds if estimate.value is not None]
    if len(values) >= ENOUGH and len(set(values)) > 1:
        note = f"the interval is over {len(values)} rounds with other victims (t)"
        samples = sum(estimate.n for estimate in rounds)
        return dataclasses.replace(mean(values, bounds=bounds), n=samples, note=note)
    whole = combined(rounds, [1 / len(rounds)] * len(rounds))
    least, most = bounds
    low, high = (None if end is None else min(max(end, least), most) for end in (whole.low, whole.high))
    note = f"the interval takes the samples of the {len(rounds)} round(s) as independent"
    return dataclasses.replace(whole, low=low, high=high, note=note)


def _mean_psnr(psnr: np.ndarray, otherwise: str) -> Estimate:
    return mean(psnr.tolist(), bounds=(0.0, CAP)) if len(psnr) else Estimate(None, None, None, 0, otherwise)


def _bound(prepared: Prepared, plan: RoundPlan, subject: Subject) -> Finding:
    """The share of samples that are alone in their bin if k neurons part a batch of m: (1 - 1/k)^(m-1)."""
    share = (1 - 1 / prepared.neurons) ** (plan.batch - 1)
    note = f"k = {prepared.neurons} neurons and bins that are equally likely"
    return subject.finding("bound", BOUND, Estimate(share, None, None, plan.batch, note))


def _vetted(examination: Examination, untouched: nn.Module) -> Finding:
    """Whether a client that vets would have flagged the first model sent; chance: the untouched network."""
    shape = examination.case.protocol.shape
    vetting = vet(examination.sent[0].model(), shape)
    return examination.case.subject.finding(
        VETTING,
        ALARM,
        proportion(int(vetting.crafted), 1),
        adversary=examination.adversary.adversary,
        attack=examination.spec,
        chance=float(vet(untouched, shape).crafted),
        note="; ".join(str(sign) for sign in vetting.signs if sign.alarming) or None,
    )


def brightness(prepared: Prepared) -> CellResult:
    """Figure 6: the share of latents in each bin, what each law gives it, and the largest gap of the CDFs."""
    values = required(prepared.surrogate).latents.double().mean(1).numpy()
    values = (values - values.mean()) / values.std()
    middle = float(np.median(values))
    laplace = stats.laplace(middle, float(np.abs(values - middle).mean()))
    subject = Subject(defence=None, data=prepared.scenario.data, model=prepared.scenario.network)
    counts = np.bincount(np.searchsorted(EDGES, values, side="right"), minlength=len(BINS))
    histograms = [Histogram.counted("brightness", dict(zip(BINS, counts.tolist())), LATENTS)]
    findings = []
    for law, cdf in zip(LAWS, (stats.norm.cdf, laplace.cdf)):
        shares = np.diff(np.concatenate([[0.0], cdf(EDGES), [1.0]])).tolist()
        histograms.append(Histogram(attack=law, quantity="brightness", bins=BINS, shares=tuple(shares)))
        gap = Estimate(float(stats.kstest(values, cdf).statistic), None, None, len(values))
        findings.append(subject.finding("distribution", DISTANCE, gap, attack=law))
    return CellResult(findings, Exhibits(histograms=tuple(histograms)))


def sheet_name(attack: str, part: str) -> str:
    """The file of one sheet of pictures in a cell's folder."""
    return f"{attack.partition('(')[0]}-{part}.png"

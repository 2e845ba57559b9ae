"""What is measured in each cell that attacks: rounds of fresh victims, by some attacks."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf

import numpy as np
import torch
from torch import Tensor, nn

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
from glasshouse.spelling import slug
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
BOUND, ALARM = "single-occupancy", "vet-alarm"
OFFLINE, ONLINE = "offline-seconds", "online-seconds"
HEADS = (PUBLISHED, DRAWN, CODED)
"""Heads of Scale-MIA: as the paper says, as its authors' code has it, and ours."""

ORIGINALS, REBUILT = "originals", "rebuilt"

FAMILY = "scale-mia"
"""How the names of all attacks begin that an autoencoder is granted."""

PICTURED = 64
"""The batch size of the paper's pictures."""

EXAMPLES = 8
"""As many images of it, its first, are examples like those of Figure 4."""

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
    histograms: list[Histogram] = []
    for spec in specs:
        tracked = place.progress.track(rounds, f"{spec}, batches of {plan.batch}", len(rounds))
        examinations = list(_examined(tracked, spec, plan, place.seed))
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
            for part, images in ((ORIGINALS, _originals(examinations[0])), (REBUILT, matches[0].guess)):
                save_png(contact_sheet(images), place.folder / sheet_name(spec, part))
                save_png(contact_sheet(images[:EXAMPLES]), place.folder / sheet_name(spec, part, EXAMPLES))
    return CellResult(findings, Exhibits(histograms=tuple(histograms)))


def _examined(rounds: Iterable[Case], spec: str, plan: RoundPlan, seed: int) -> Iterator[Examination]:
    """One attack on the victims of each round; it crafts the same model in all, of which one is kept."""
    for place, case in enumerate(rounds):
        granted = case if spec.startswith(FAMILY) else dataclasses.replace(case, surrogate=None)
        rng = torch_rng(seed, "attack", spec)
        examination = examine(granted, spec, plan.adversary, rng=rng, detailed=False)
        yield dataclasses.replace(examination, sent=() if place else examination.sent)


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
    offline = float(np.mean([part.offline for part in evidence]))
    online = mean([part.online for part in evidence], bounds=(0.0, inf))
    scores += [
        Score(PSNR, _mean_psnr(psnr[psnr >= RECOVERED], f"no image reached {RECOVERED:g} dB")),
        Score(RETURNED, _mean_psnr(psnr[returned], "no image was returned")),
        Score(OFFLINE, Estimate(round(offline, 5), None, None, 1)),
        Score(ONLINE, online),
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


def sheet_name(attack: str, part: str, first: int | None = None) -> str:
    """The file of one sheet of pictures in a cell's folder, of the whole batch or its first images."""
    return f"{slug(attack)}-{f'first-{first}-' if first else ''}{part}.png"

"""How far autoencoders were trained, and how the brightness of their latents is distributed."""

from copy import deepcopy
from itertools import pairwise

import numpy as np
import torch
from scipy import stats

from glasshouse.attacks.attack import required
from glasshouse.attacks.crafted.cut import encoder
from glasshouse.exhibits import Exhibits, Histogram
from glasshouse.findings import Subject
from glasshouse.learning.layout import write_vector
from glasshouse.measures.estimate import LEVEL, Estimate, mean, proportion
from glasshouse.measures.pictures import CAP, RECOVERED, paired_psnr
from glasshouse.studies.scale_mia.scenarios import SCENARIOS, Prepared, Scenario
from glasshouse.studies.study import CellResult, Workplace

DECODED, DECODABLE, SECONDS = "autoencoder-psnr", "autoencoder-rate", "offline-seconds"
"""What the autoencoder makes of images that it was not trained on: their PSNR, and the share at 18 dB."""

DISTANCE = "kolmogorov-smirnov"
LATENTS, LAWS = "auxiliary latents", ("normal", "laplace")

BATCH = 64
"""Images that the autoencoder sees at once where it is measured, as in its training: for batch norm."""

EDGES = np.arange(-3.0, 3.01, 0.5)
"""Standard deviations from the mean, between which Figure 6 counts latents; the outer bins have no end."""
BINS = (
    f"below {EDGES[0]:+.1f}",
    *(f"{low:+.1f} to {high:+.1f}" for low, high in pairwise(EDGES)),
    f"above {EDGES[-1]:+.1f}",
)


def schooled(scenario: Scenario, place: Workplace) -> CellResult:
    """Train an autoencoder where nobody has yet, and see what it makes of images that it does not know."""
    prepared = SCENARIOS.prepared(scenario, place)
    surrogate, network = required(prepared.surrogate), deepcopy(prepared.network).train()
    write_vector(network, surrogate.vector)
    encode = encoder(network, surrogate.cut)
    with torch.no_grad():
        rebuilt = [surrogate.decode(encode(batch)) for batch in prepared.held.x.split(BATCH)]
    psnr = paired_psnr(prepared.held.x, torch.cat(rebuilt))
    subject = Subject(defence=None, data=scenario.data, model=scenario.network)
    note = f"{surrogate.described}; on training images that it was not trained on"
    scores = {
        DECODED: mean(psnr.tolist(), bounds=(0.0, CAP)),
        DECODABLE: proportion(int((psnr >= RECOVERED).sum()), len(psnr)),
        SECONDS: Estimate(surrogate.seconds, None, None, 1),
    }
    return CellResult(
        [subject.finding("autoencoder", metric, score, note=note) for metric, score in scores.items()]
    )


def latents(scenario: Scenario, place: Workplace) -> CellResult:
    """What is seen of the latents of a scenario."""
    return brightness(SCENARIOS.prepared(scenario, place))


def brightness(prepared: Prepared) -> CellResult:
    """Figure 6: the share of latents in each bin, what each law gives it, and the largest gap of the CDFs.

    No distribution function of so many latents lies further from its law's than the reach of Kolmogorov's
    interval, in 95 of 100 cases.
    """
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
        gap, reach = float(stats.kstest(values, cdf).statistic), float(stats.kstwo.ppf(LEVEL, len(values)))
        apart = Estimate(gap, max(0.0, gap - reach), gap + reach, len(values))
        findings.append(subject.finding("distribution", DISTANCE, apart, attack=law))
    return CellResult(findings, Exhibits(histograms=tuple(histograms)))

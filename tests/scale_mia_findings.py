"""Findings as the cells of the study `scale-mia` would write them, made up for tests of its claims."""

from glasshouse.findings import Finding
from glasshouse.studies.scale_mia.autoencoders import DECODABLE, DECODED
from glasshouse.studies.scale_mia.cells import BOUND, PUBLISHED, RATE
from glasshouse.studies.scale_mia.grid import ScaleMIAStudy
from glasshouse.verdicts.metrics import NOT_RUN

ORACLE = 0.1
"""What the nearest auxiliary image recovers, where a test says nothing else."""
SPREAD = 0.002
SAMPLES = 100_000


def row(cell, attack, metric, value, spread=SPREAD, n=SAMPLES, chance=None, **more):
    """One finding, whose interval reaches as far as `spread` to either side."""
    ends = (None, None) if value is None or spread is None else (value - spread, value + spread)
    return Finding(
        source="scale-mia", cell=cell, family="reconstruction", attack=attack, metric=metric, value=value,
        low=ends[0], high=ends[1], n=n, chance=chance, seed=0, **more,
    )  # fmt: skip


def rate(cell, value, attack=PUBLISHED, spread=SPREAD, chance=ORACLE, **more):
    """A recovery rate beside the oracle's, and the mean PSNR without which no attack counts as tried."""
    return [
        row(cell, attack, RATE, value, spread, chance=chance, **more),
        row(cell, attack, "psnr", 20.0, **more),
    ]


def alone(cell, share):
    """The share of samples that are alone in their bin."""
    return [row(cell, None, BOUND, share, None)]


def trained(network="cnn", data="cifar10", granted="all", share=1.0, sharp=40.0):
    """An autoencoder that brings so many images to 18 dB, and all of them on average to `sharp` dB."""
    cell = f"autoencoder/{network}/{data}/{granted}"
    return [row(cell, None, DECODABLE, share), row(cell, None, DECODED, sharp)]


def refused(cell, attack=PUBLISHED):
    """That an attack could not run."""
    return [row(cell, attack, NOT_RUN, None, n=None, reason="no gradient")]


def verdict_on(findings, start):
    """The one verdict on a claim that begins so, whatever its number."""
    (found,) = [
        one for one in ScaleMIAStudy().conclude(findings) if one.claim.partition(". ")[2].startswith(start)
    ]
    return found

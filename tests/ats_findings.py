"""Made-up findings of the study ats, whose right verdicts are known."""

import numpy as np

from glasshouse.findings import Finding
from glasshouse.studies.ats.cells import (
    ACCURACY,
    COST,
    ORIGINAL,
    SCORE,
    TRANSFORMED,
    VISIBLE,
    after_epoch,
    gradsim,
    of_image,
)
from glasshouse.studies.ats.claimed import CLAIMS, KNOWING
from glasshouse.studies.ats.grid import ATSStudy

PLAIN, STRONG = "adam-cosine", "swift-inversion"
TOLD = "swift-inversion(adaptive=True)"
BLIND = 10.0
WOBBLE = np.array([-0.3, 0.1, 0.2, -0.1, 0.3, -0.2, 0.0, 0.0])
"""How the images differ around their mean."""


def row(cell, metric, value, attack=None, **more):
    return Finding(
        source="ats", cell=cell, family="made up", metric=metric, value=value, attack=attack, seed=0, **more
    )


def attacked(cell, attack, gain, spread=1.0):
    """Images rebuilt with this mean gain above the blind guess, in what the attack seeks."""
    seeks = (ORIGINAL,) if "adaptive" in attack else (TRANSFORMED, VISIBLE)
    findings = []
    for metric in (TRANSFORMED, VISIBLE, ORIGINAL):
        values = BLIND + spread * WOBBLE + (gain if metric in seeks else -5.0)
        findings.append(
            row(cell, metric, float(values.mean()), attack, low=0.0, high=20.0, chance=BLIND, n=len(values))
        )
        findings += [
            row(cell, of_image(metric, number), float(value), attack, chance=BLIND, n=1)
            for number, value in enumerate(values)
        ]
    return findings


def trained(group="training", data="cifar100", model="convnet-16", accuracy=0.75, **costs):
    """The accuracy without a policy, and what each arm costs, within a tenth of a point."""
    head = f"{group}/{data}/{model}"
    findings = [
        row(f"{head}/none", ACCURACY, accuracy, low=accuracy - 0.01, high=accuracy + 0.01, chance=0.01)
    ]
    for arm, cost in costs.items():
        cell = f"{head}/{arm.replace('_', '-')}"
        findings.append(row(cell, COST, cost, low=cost - 0.001, high=cost + 0.001, n=5000))
        findings.append(row(cell, after_epoch(ACCURACY, 1), 0.1 - cost))
        findings.append(row(f"{head}/none", after_epoch(ACCURACY, 1), 0.1))
    return findings


def table_1(none=4.0, hybrid=-2.0, known=-2.0, head="table-1/cifar100/convnet-16"):
    return [
        *attacked(f"{head}/none", PLAIN, none - 3),
        *attacked(f"{head}/none", STRONG, none),
        *attacked(f"{head}/hybrid", PLAIN, hybrid - 1),
        *attacked(f"{head}/hybrid", STRONG, hybrid),
        *attacked(f"{head}/hybrid", TOLD, known),
    ]


def accurate(arm, value):
    """A model of 10,000 test images."""
    cell = f"training/cifar100/convnet-16/{arm}"
    return row(cell, ACCURACY, value, low=value - 0.01, high=value + 0.01, chance=0.01, n=10_000)


def likeness(shallow, deep, whole=0.0):
    """Gradients of the hybrid's victims, which lose so much likeness in shallow, deep and all layers."""
    findings = []
    losses = {"none": (0.0, 0.0, 0.0), "hybrid": (shallow, deep, whole)}
    for arm, lost in losses.items():
        for number, wobble in enumerate(WOBBLE):
            cell = f"table-1/cifar100/convnet-16/{arm}"
            shaken = wobble / 10 if arm == "hybrid" else 0.0
            for part, loss, shake in zip(("shallow", "deep", "all"), lost, (shaken, 0.0, shaken)):
                value = 0.9 - loss - shake
                findings.append(row(cell, of_image(gradsim(part), number), value, STRONG, n=1))
    return findings


def drawn(slope, count=40, untouched=3.0, noise=0.1):
    """Policies whose PSNR follows their score, with noise of standard deviation 1.

    The PSNR of single images has more `noise`; without a policy the search is `untouched` dB above a guess.
    """
    rng = np.random.default_rng(2)
    scores = rng.uniform(0.2, 0.8, count)
    psnr = 10 + slope * (scores - 0.5) / scores.std() + rng.normal(size=count)
    head = "figure-4/cifar100/convnet-16"
    findings = [*trained("training-figure-4"), *attacked(f"{head}/none", STRONG, untouched)]
    for number, (score, reached) in enumerate(zip(scores, psnr)):
        cell = f"{head}/{number}-1-2"
        findings.append(row(cell, SCORE, float(score), low=0.0, high=1.0))
        for metric in (TRANSFORMED, VISIBLE, ORIGINAL):
            findings.append(row(cell, metric, float(reached), STRONG, chance=BLIND))
            findings += [
                row(
                    cell, of_image(metric, image), float(reached + noise * rng.normal()), STRONG, chance=BLIND
                )
                for image in range(4)
            ]
    return findings


def verdict(findings, number):
    """What is said to the claim of this number, or to the study's own question."""
    text = KNOWING.text if number == "A" else CLAIMS[number].text
    (found,) = [each for each in ATSStudy().conclude(findings) if each.claim == text]
    return found

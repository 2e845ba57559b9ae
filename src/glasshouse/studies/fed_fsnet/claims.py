"""The paper's claims against what was measured, each in every setting on its own.

Methods of one scenario and seed share the division of the images, the first weights and, but for AFL, the
draw of participants, so they are compared seed by seed. Accuracies are means over the last five rounds.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from math import inf
from statistics import fmean

from glasshouse.measures.estimate import Estimate, combined
from glasshouse.studies.fed_fsnet.cost_claims import cost_claims, privacy_claims
from glasshouse.studies.fed_fsnet.measured import (
    GLOBAL,
    JUMP,
    READINGS,
    SPEED,
    WOBBLE,
    Federations,
    Quantity,
    Scenario,
)
from glasshouse.studies.fed_fsnet.own_claims import own_claims
from glasshouse.studies.fed_fsnet.parts import NO_MORE, NOWHERE, above_rival, gain, part_of
from glasshouse.studies.fed_fsnet.printed import RIVALS, printed, printed_gains
from glasshouse.verdicts.claims import Claim, Part, Region, Verdict, settle

SIGNIFICANT: Region = (0.05, inf)
"""A margin that the paper might call significant: less than a fifth of the least that it prints."""
TOO_SMALL: Region = (-inf, 0.05)
HALF = 0.5
"""Who greatly narrows a gap closes half of it; the paper prints 67% to 83%."""
FRACTIONS = (0.1, 1.0)

UNDEFINED = "On which images devices' models are tested is not said, so nothing measured here can deny this."
LOWER = "The network is not named, and FedAvg on shards ends far above the printed lower bound. "
FAR = 0.1
"""By so much it is higher."""
TARGET = (
    "Devices learn to be undecided about the samples, which tells them nothing of the classes that they "
    "lack: see question D, where they learn the class instead."
)
GENERATOR = (
    "FedGEN's server is told how many images of each class every device has, and sees single models, which "
    "Fed-FSNet's is not and does not. What it sends stands for the classes that a device lacks."
)


def verdicts(federations: Federations) -> list[Verdict]:
    """A verdict on each claim of the paper, then on what the study asks of its own accord."""
    claims = [
        dataclasses.replace(claim, text=f"{number}. {claim.text}")
        for number, claim in enumerate(paper_claims(federations), 1)
    ]
    return settle([*claims, *own_claims(federations)])


def paper_claims(federations: Federations) -> Iterator[Claim]:
    """Accuracy, training, communication, computing, privacy."""
    for claims in (_accuracy, _training, cost_claims, privacy_claims):
        yield from claims(federations)


def _accuracy(federations: Federations) -> Iterator[Claim]:
    scenarios = federations.scenarios()
    yield Claim(
        "Fed-FSNet surpasses the lower bound, FedAvg on shards, by a significant margin in Acc_global",
        [
            _with_room(
                federations,
                where,
                gain(federations, "fed-fsnet", (where, "fedavg"), holds=SIGNIFICANT, refuted=TOO_SMALL),
            )
            for where in scenarios
        ],
        section="section 4.4.1, Table 1",
        printed=printed_gains("fed-fsnet", ["fedavg"], 0, FRACTIONS),
        why=dict.fromkeys(("refuted", "mixed"), _little_gained(federations)),
    )
    yield Claim(
        "Its margin in Acc_local is significant too, whichever of its readings is meant",
        [
            gain(federations, "fed-fsnet", (where, "fedavg"), reading, holds=SIGNIFICANT, refuted=NOWHERE)
            for where in scenarios
            for reading in READINGS
        ],
        section="section 4.4.1, Table 1",
        printed=printed_gains("fed-fsnet", ["fedavg"], 1, FRACTIONS),
        why=dict.fromkeys(("not shown", "mixed"), UNDEFINED),
    )
    yield Claim(
        "It constantly has the best Acc_global, above FedAvg, AFL, FedDF and FedGEN",
        list(_above_rivals(federations, (GLOBAL,), NO_MORE)),
        section="section 4.4.1, Table 2, and abstract",
        printed=printed_gains("fed-fsnet", RIVALS, 0, (0.1,)),
        why=dict.fromkeys(("refuted", "mixed"), GENERATOR),
    )
    yield Claim(
        "It constantly has the best Acc_local, whichever of its readings is meant",
        list(_above_rivals(federations, READINGS, NOWHERE)),
        section="section 4.4.1, Table 2",
        printed=printed_gains("fed-fsnet", RIVALS, 1, (0.1,)),
        why=dict.fromkeys(("not shown", "mixed"), UNDEFINED),
    )


def _with_room(federations: Federations, where: Scenario, part: Part) -> Part:
    """The part, barred where even IID data are not significantly better for FedAvg: nothing could be."""
    differences = federations.gains("upper-bound", (where, "fedavg"), GLOBAL)
    rooms = [one.value for one in differences if one.value is not None]
    room = fmean(rooms) if rooms else inf
    if part.barred or room >= SIGNIFICANT[0]:
        return part
    reason = f"no room: FedAvg is only {room:.3f} better on IID data, where {SIGNIFICANT[0]} is asked"
    return dataclasses.replace(part, barred=reason)


def _above_rivals(
    federations: Federations, quantities: Sequence[Quantity], refuted: Region
) -> Iterator[Part]:
    for where in federations.scenarios():
        if where.fraction < 1:
            for rival in RIVALS:
                for quantity in quantities:
                    yield above_rival(federations, (where, rival), quantity, refuted)


def _training(federations: Federations) -> Iterator[Claim]:
    scenarios = federations.scenarios()
    yield Claim(
        "It greatly narrows the gap between non-IID and IID: half of it or more is closed",
        [_half_closed(federations, where) for where in scenarios],
        section="section 4.4.2, introduction and conclusion",
        printed="67% to 83% of it",
        why=dict.fromkeys(("refuted", "mixed"), _little_gained(federations)),
    )
    yield Claim(
        "FedAvg on IID data stays above it: an upper bound",
        [gain(federations, "upper-bound", (where, "fed-fsnet")) for where in scenarios],
        section="sections 4.2 and 4.4.2, Table 1",
        printed=printed_gains("upper-bound", ["fed-fsnet"], 0, FRACTIONS),
    )
    yield Claim(
        "Its training converges faster than FedAvg's",
        [gain(federations, "fed-fsnet", (where, "fedavg"), SPEED) for where in scenarios],
        section="sections 4.4.1 and 4.4.2, Figure 2",
    )
    yield Claim(
        "Its training is more stable than FedAvg's",
        [
            gain(federations, "fed-fsnet", (where, "fedavg"), quantity, holds=(-inf, 0.0), refuted=(0.0, inf))
            for where in scenarios
            for quantity in (WOBBLE, JUMP)
        ],
        section="section 4.4.2, Figure 2",
        why={"not shown": "How much a curve moves is seen in few rounds, and differs from seed to seed."},
    )


def _half_closed(federations: Federations, where: Scenario) -> Part:
    """Fed-FSNet minus the middle between the bounds, at each seed that has all three."""
    names, weights = ("fed-fsnet", "upper-bound", "fedavg"), (1.0, -HALF, HALF - 1)
    found = [federations.at((where, name), GLOBAL) for name in names]
    seeds = [combined([one[seed] for one in found], weights) for seed in found[0] if _in_all(seed, found)]
    cells = [federations.cell((where, name)) for name in names]
    what = "Acc_global, Fed-FSNet minus the middle between FedAvg on shards and on IID data"
    return part_of(federations, where, what, seeds, cells, refuted=(-inf, 0.0))


def _in_all(seed: int, found: Sequence[dict[int, Estimate]]) -> bool:
    return all(seed in one for one in found)


def _little_gained(federations: Federations) -> str:
    """Why little is gained over FedAvg; that it starts higher is said where it does everywhere."""
    above = []
    for where in federations.scenarios():
        found = federations.of((where, "fedavg"), GLOBAL)
        paper, _ = printed(where.data, "fedavg", where.fraction)
        if found is not None and found.value is not None and paper is not None:
            above.append(found.value > paper + FAR)
    return (LOWER if above and all(above) else "") + TARGET

"""The paper's claims on what Fed-FSNet costs a device, and on what it gives away."""

from collections.abc import Iterator
from math import inf

from glasshouse.measures.estimate import Estimate
from glasshouse.studies.fed_fsnet import measured
from glasshouse.studies.fed_fsnet.measured import DOWN, ROUNDS_TO, SECONDS, Federations, Pair, Scenario
from glasshouse.studies.fed_fsnet.parts import MORE, NO_MORE, NOWHERE, gain, told
from glasshouse.studies.fed_fsnet.printed import printed
from glasshouse.verdicts.claims import Claim, Part, Region

LITTLE: Region = (-inf, 0.1)
MUCH: Region = (0.1, inf)
"""What is added counts as little up to a tenth of what is there."""
REDUCED: Region = (-inf, 0.5)
"""What is reduced significantly is halved."""

UNNAMED = "the paper names no quantity for it; question A asks whether what the samples show matters"


def cost_claims(federations: Federations) -> Iterator[Claim]:
    """Section 4.5."""
    scenarios = federations.scenarios()
    yield Claim(
        "The 60 mimic samples have a very limited impact on the communication",
        [_added(federations, where) for where in scenarios],
        section="section 4.5",
        why=dict.fromkeys(
            ("refuted", "mixed"),
            "60 grey images are 47,040 numbers and 60 of CIFAR-10 184,320; networks that are small enough "
            "for a device have 199,210 (mlp), 21,840 (lenet) and 90,826 (gn-cnn).",
        ),
    )
    yield Claim(
        "Features by a pre-trained extractor, sent instead of them, significantly reduce that",
        [_reduced(federations, where) for where in federations.scenarios("extractor")],
        section="section 4.5",
    )
    yield Claim(
        "It suits devices with little computing power: it comes as far as FedAvg with hardly more of it",
        [_computing(federations, where) for where in scenarios],
        section="sections 4.4.1 and 4.5",
        why=dict.fromkeys(
            ("refuted", "mixed"),
            "Every batch of 60 images comes with the 60 mimic samples, so that a round takes a device about "
            "twice the work, and it would have to come as far in half the rounds.",
        ),
    )


def privacy_claims(federations: Federations) -> Iterator[Claim]:
    """What the paper promises, as attacks find it."""
    scenarios = federations.scenarios("leaks")
    yield Claim(
        "It keeps the privacy of secure aggregation: who sees sums or models learns no more than with FedAvg",
        [
            gain(federations, "fed-fsnet", (where, "fedavg"), quantity, holds=NO_MORE, refuted=MORE)
            for where in scenarios
            for quantity in (measured.SUMMED, measured.MEMBERSHIP)
        ],
        section="abstract, introduction and section 3.2.1",
    )
    yield Claim(
        "The mean and variance that every device uploads do not violate its privacy",
        [
            told(federations, (where, "fed-fsnet"), measured.REPORTED, "share of labels told")
            for where in scenarios
        ],
        section="section 3.2.1",
        why=dict.fromkeys(
            ("refuted", "mixed"),
            "Images of one class are brighter than those of another: two numbers tell which a device holds.",
        ),
    )
    yield Claim(
        "The mimic samples give nobody's records away",
        [
            told(federations, (where, "fed-fsnet"), quantity, words)
            for where in scenarios
            for quantity, words in (
                (measured.MIMICKED, "AUC of the distance to mimics"),
                (measured.NEAREST, "share of mimics nearest to a member"),
            )
        ],
        section="introduction and section 3.2.2",
    )
    yield Claim(
        "The mimic samples carry information that points towards the global distribution",
        [Part("all settings", "not measured", [], [], barred=UNNAMED)],
        section="introduction and section 3.2",
    )


def _added(federations: Federations, where: Scenario) -> Part:
    """What Fed-FSNet adds to FedAvg's bytes, as a share of them, at each seed."""
    names = ("fed-fsnet", "fedavg")
    whole, base = (federations.by_seed(*federations.key((where, name), DOWN)) for name in names)
    shares = [sent / base[seed] - 1 for seed, sent in whole.items() if base.get(seed)]
    cells = [federations.cell((where, name), DOWN) for name in names]
    what = "added to FedAvg's bytes to a device, as a share of them"
    return _cost_part(where, what, shares, cells, holds=LITTLE, refuted=MUCH, counted=True)


def _computing(federations: Federations, where: Scenario) -> Part:
    """Core-seconds until Fed-FSNet reaches the last target that FedAvg does, beyond FedAvg's, at each seed.

    Where it does not reach it, all that it took are too few: what follows from them is a lower bound, which
    can deny the claim and not confirm it.
    """
    pair, base = (where, "fed-fsnet"), (where, "fedavg")
    rounds, base_rounds = _rounds_to(federations, pair), _rounds_to(federations, base)
    seconds, base_seconds = (federations.by_seed(*federations.key(one, SECONDS)) for one in (pair, base))
    shares, missed = [], False
    for seed in sorted(seconds.keys() & base_seconds.keys() & base_rounds.keys()):
        target, base_took = max(base_rounds[seed].items())
        took = rounds.get(seed, {}).get(target)
        missed |= took is None
        spent = (where.rounds if took is None else took) * seconds[seed]
        shares.append(spent / (base_took * base_seconds[seed]) - 1)
    what = "core-seconds beyond FedAvg's to come as far, as a share of them"
    what += " (at least: not reached at every seed)" if missed else ""
    cells = [federations.cell(one) for one in (pair, base)]
    holds = NOWHERE if missed else LITTLE
    return _cost_part(where, what, shares, cells, holds=holds, refuted=MUCH, counted=False)


def _rounds_to(federations: Federations, pair: Pair) -> dict[int, dict[float, float]]:
    """By seed, how many rounds each target took that was reached."""
    found: dict[int, dict[float, float]] = {}
    for target, quantity in ROUNDS_TO.items():
        for seed, took in federations.by_seed(*federations.key(pair, quantity)).items():
            found.setdefault(seed, {})[target] = took
    return found


def _reduced(federations: Federations, where: Scenario) -> Part:
    """What features add to a round's bytes, as a share of what mimic samples of the same images do."""
    beside = next(
        (one for one in federations.scenarios() if (one.data, one.fraction) == (where.data, where.fraction)),
        where,
    )
    pairs = [(where, "extractor-fed-fsnet"), (where, "extractor-fedavg")]
    pairs += [(beside, "fed-fsnet"), (beside, "fedavg")]
    sent = [federations.at(pair, DOWN) for pair in pairs]
    shares = []
    for seed in sent[0]:
        if all(seed in one for one in sent):
            features, model, samples, plain = (one[seed].value or 0.0 for one in sent)
            shares.append((features - model) / (samples - plain))
    what = "bytes of the features, as a share of those of the samples"
    cells = [federations.cell(pair) for pair in pairs]
    return _cost_part(where, what, shares, cells, holds=REDUCED, refuted=(REDUCED[1], inf), counted=True)


def _cost_part(
    where: Scenario,
    what: str,
    shares: list[float],
    cells: list[str],
    *,
    holds: Region,
    refuted: Region,
    counted: bool,
) -> Part:
    """What is counted has no interval but itself; costs do not depend on how far training went."""
    seeds = [
        Estimate(share, share, share, 1) if counted else Estimate(share, None, None, 1) for share in shares
    ]
    known, _ = printed(where.data, "fed-fsnet", where.fraction)
    reason = "" if known is not None else f"the paper has no {where.data} with f = {where.fraction}"
    return Part(str(where), what, seeds, cells, holds, refuted, reason)

"""Every claim of the replication, against what was measured: what attackers reach under policies.

Comparisons are paired over images, and intervals are over images (t). What an attack shows, its gain, is its
PSNR above that of a blind guess. A defence is judged by the attacker who is worst for it, be it one who does
not know it and seeks the transformed image (as in the papers; only pixels that come from the original count)
or one who does and seeks the original. A comparison counts where the undefended model was trained far enough,
and where the search shows something without defence.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import inf

from glasshouse.measures.estimate import mean, proportion
from glasshouse.studies.ats import measured as reading
from glasshouse.studies.ats.arms import PERTURBATIONS
from glasshouse.studies.ats.cells import ORIGINAL, ArmCell, gradsim
from glasshouse.studies.ats.claimed import ALIKE, ALONE, CLAIMS, CLEAR, CORRECTED, KNOWING, REHEARSAL, SOME
from glasshouse.studies.ats.comparisons import Comparison, barred, comparisons, observed
from glasshouse.studies.ats.layout import HALVED, plain_form
from glasshouse.studies.ats.measured import STRONGER, ByImage, Exposure, less
from glasshouse.studies.ats.printed import HYBRID, NONE, PAPERS, TABLE_2
from glasshouse.studies.ats.score_claims import best_five, correlated
from glasshouse.studies.ats.training_claims import augmented, costs, kept_by_hybrid
from glasshouse.studies.ats.victims import is_shortened, knows_defence
from glasshouse.studies.measured import Measured
from glasshouse.verdicts.claims import Part, Region, Verdict, settle

NOWHERE: Region = (inf, -inf)
DECIBELS = partial(Part, form="+.2f", unit="dB")
FALL = partial(DECIBELS, refuted=(-inf, CLEAR))
"""A fall of the PSNR: surely one, or surely less than one that shows."""


def verdicts(measured: Measured) -> list[Verdict]:
    """A verdict on each claim, and on what the study asks beyond them."""
    parts = {
        1: infeasible(measured, "table-1"),
        2: general(measured),
        3: transferable(measured),
        4: costs(measured),
        5: likeness_lost(measured, ("shallow", "deep")),
        6: best_five(measured, "cifar100"),
        7: correlated(measured),
        8: infeasible(measured, "table-5"),
        9: best_five(measured, "tiny-imagenet-20"),
        10: outdone(measured),
        11: likeness_lost(measured, ("all",)),
        12: vulnerable(measured),
        13: kept_by_hybrid(measured),
        14: augmented(measured),
        15: halved(measured),
    }
    claims = [replace(claim, parts=tuple(parts[number])) for number, claim in CLAIMS.items()]
    return settle([*claims, replace(KNOWING, parts=tuple(known(measured)))])


def infeasible(measured: Measured, group: str) -> Iterator[Part]:
    """The gain of the worse attacker: hardly any, and surely less than without a policy.

    What a search does not find in fewer steps than its default it may find in all of them, so a shortened one
    can deny the claim alone.
    """
    for compared, arm, exposure in _selected(measured, group):
        knows = "knows" if knows_defence(exposure.attack) else "does not know"
        gain = f"gain of an attacker who {knows} the policy"
        lowered = _surely_falls(less(compared.undefended.excess, exposure.excess))
        shortened = is_shortened(exposure.attack)
        shown = lowered and not shortened
        limit = ", by a shortened search" if shortened else ", not surely less than without it"
        yield DECIBELS(
            compared.where(arm),
            gain if shown else gain + limit,
            observed(exposure.excess),
            compared.cells(arm),
            holds=(-inf, CLEAR) if shown else NOWHERE,
            refuted=(CLEAR, inf),
            barred=compared.barred,
        )


def _surely_falls(drop: ByImage) -> bool:
    """Whether a fall is above nothing, at the level of the verdicts."""
    low = mean(list(drop.values()), level=CORRECTED).low if drop else None
    return low is not None and low > 0


def general(measured: Measured) -> list[Part]:
    """The hybrid on CIFAR-100, against each attack of Table 2 and ours; one that works is not several."""
    parts: list[Part] = []
    for name in (*TABLE_2[NONE], STRONGER):
        group = "table-1" if name in (PAPERS, STRONGER) else "table-2"
        parts += [
            _fall(compared, HYBRID, name)
            for compared in comparisons(measured, group, name)
            if HYBRID in compared.arms and compared.place.data in ("cifar100", REHEARSAL)
        ]
    working = [part for part in parts if not part.barred]
    return [replace(part, barred=part.barred or ALONE) for part in parts] if len(working) < 2 else parts


def transferable(measured: Measured) -> Iterator[Part]:
    """Table 4: policies on other data than those for which they were searched."""
    for compared, arm, _ in _selected(measured, "table-4"):
        yield _fall(compared, arm)


def _fall(compared: Comparison, arm: str, *more: str) -> Part:
    return FALL(
        compared.where(arm, *more),
        "gain without a policy minus with it",
        observed(less(compared.undefended.excess, compared.arms[arm].excess)),
        compared.cells(arm),
        barred=compared.barred,
    )


def outdone(measured: Measured) -> Iterator[Part]:
    """Table 6: how much more is gained under each other defence than under the hybrid, on the same images."""
    for compared in comparisons(measured, "table-1"):
        hybrid = compared.arms.get(HYBRID)
        for arm in PERTURBATIONS:
            other = compared.place.at(group="table-6", arm=arm)
            exposure = reading.exposure(measured, other)
            if hybrid is not None and exposure is not None:
                yield FALL(
                    compared.where(arm),
                    "gain under it minus under the hybrid",
                    observed(less(exposure.excess, hybrid.excess)),
                    [*compared.cells(HYBRID), other],
                    barred=compared.barred,
                )


def likeness_lost(measured: Measured, layers: tuple[str, ...]) -> Iterator[Part]:
    """What a policy takes from the likeness of gradients at the end of the search, in some layers.

    Of two kinds of layers, what the first loses beyond the second. The search is the one that shows most
    without a policy, and does not know it.
    """
    what = {
        ("all",): "likeness of gradients without a policy minus with it",
        ("shallow", "deep"): "likeness lost by the first third of the tensors beyond that of the last third",
    }[layers]
    for compared, arm, _ in _selected(measured, "table-1"):
        name = compared.undefended.attack.partition("(")[0]
        cells = str(compared.place), compared.place.at(arm=arm)
        losses = [less(*(_alike(measured, cell, name, layer) for cell in cells)) for layer in layers]
        lost = less(*losses) if len(losses) > 1 else losses[0]
        if lost:
            yield Part(
                compared.where(arm),
                what,
                observed(lost),
                compared.cells(arm),
                refuted=(-inf, ALIKE),
                barred=compared.barred,
            )


def _alike(measured: Measured, cell: str, name: str, layers: str) -> dict[int, float]:
    """By image, how alike the gradients of some layers are at the end of the search that knows nothing."""
    plain = plain_form(measured, cell, name)
    return reading.by_image(measured, cell, plain, gradsim(layers)) if plain else {}


def vulnerable(measured: Measured) -> Iterator[Part]:
    """The share of images that the worse attacker rebuilds although a policy defends them."""
    for compared, arm, exposure in _selected(measured, "table-1"):
        gains = list(exposure.excess.values())
        yield Part(
            compared.where(arm),
            f"share of images with a gain above {CLEAR:g} dB",
            [proportion(sum(gain > CLEAR for gain in gains), len(gains))],
            compared.cells(arm),
            holds=(SOME, 1.0),
            refuted=(0.0, SOME),
            barred=compared.barred,
            bounds=(0.0, 1.0),
            form=".2f",
        )


def halved(measured: Measured) -> Iterator[Part]:
    """What distances of gradients lose where the victim's loss is half; angles do not see a factor."""
    for data, model in reading.rows_of(measured, HALVED):
        half = ArmCell(HALVED, data, model, NONE)
        for spec in reading.forms(measured, str(half)):
            name, place = spec.partition("(")[0], replace(half, group="table-2")
            whole = reading.exposure(measured, str(place), name)
            if whole is None or name.endswith("-cosine"):
                continue
            yield FALL(
                f"{data}, {model}, {name}",
                "PSNR from the whole loss minus from half of it",
                observed(less(whole.psnr, reading.exposed_to(measured, str(half), spec).psnr)),
                [str(place), str(half)],
                barred=barred(measured, place, whole),
            )


def known(measured: Measured) -> Iterator[Part]:
    """By how much the same search comes nearer to the original under a policy if it is told it."""
    for compared, arm, _ in _selected(measured, "table-1"):
        cell = compared.place.at(arm=arm)
        told = [spec for spec in reading.forms(measured, cell) if knows_defence(spec)]
        reached = [reading.by_image(measured, cell, spec, ORIGINAL) for spec in told]
        plain = plain_form(measured, cell, told[0].partition("(")[0]) if told else None
        if plain is None:
            continue
        best = max(reached, key=lambda psnr: sum(psnr.values()))
        yield FALL(
            compared.where(arm),
            "PSNR to the original, told the policy minus not",
            observed(less(best, reading.by_image(measured, cell, plain, ORIGINAL))),
            compared.cells(arm),
            barred=compared.barred,
        )


def _selected(measured: Measured, group: str) -> Iterator[tuple[Comparison, str, Exposure]]:
    """Each arm with searched policies, in each setting of a table."""
    for compared in comparisons(measured, group):
        for arm, exposure in compared.arms.items():
            yield compared, arm, exposure

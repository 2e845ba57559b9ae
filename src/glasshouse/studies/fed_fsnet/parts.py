"""What one setting says to a claim: from which accuracy on, and how small a difference is none."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from glasshouse.measures.estimate import Estimate
from glasshouse.studies.fed_fsnet.measured import GLOBAL, Federations, Pair, Quantity, Scenario
from glasshouse.studies.fed_fsnet.printed import WORDS, printed
from glasshouse.verdicts.claims import ABOVE, Part, Region

NEGLIGIBLE = 0.01
"""A difference in accuracy, in AUC or in a share that is none: 8,000 test images tell no less."""
NO_MORE: Region = (-inf, NEGLIGIBLE)
"""Where something is not more."""
MORE: Region = (NEGLIGIBLE, inf)
EQUAL: Region = (-0.02, 0.02)
"""Where a change of Fed-FSNet makes no difference: its least printed lead over a rival is 0.032."""
DIFFERENCES: Region = (-1.0, 1.0)
"""Where differences of shares can lie."""
NOWHERE: Region = (inf, -inf)
"""Where a claim is false whose quantity the paper does not define: nothing measured can deny it."""


def barred(federations: Federations, scenario: Scenario, upper: str = "upper-bound") -> str:
    """Why nothing can be judged in a scenario; nothing where it can.

    Where FedAvg on IID data, its `upper` bound, does not reach what the paper prints for Fed-FSNet on non-IID
    data, network and rounds are not those in which the paper's claims could show.
    """
    asked, _ = printed(scenario.data, "fed-fsnet", scenario.fraction)
    if asked is None:
        return f"the paper has no {scenario.data} with f = {scenario.fraction}"
    reached = federations.of((scenario, upper), GLOBAL)
    if reached is None or reached.value is None:
        return "FedAvg on IID data, by which it is seen how far training went, is not done"
    if reached.value < asked:
        return (
            f"not trained far enough: FedAvg on IID data reaches {reached.value:.3f}, "
            f"below the {asked:.3f} that is printed for Fed-FSNet"
        )
    return ""


def part_of(
    federations: Federations,
    scenario: Scenario,
    what: str,
    seeds: Sequence[Estimate],
    cells: Iterable[str],
    *,
    holds: Region = ABOVE,
    refuted: Region | None = NO_MORE,
    upper: str = "upper-bound",
) -> Part:
    """A part about one scenario, by default of a claim that something is more."""
    reason = barred(federations, scenario, upper)
    named = list(dict.fromkeys(cells))
    return Part(str(scenario), what, seeds, named, holds, refuted, reason, bounds=DIFFERENCES)


def gain(
    federations: Federations,
    method: str,
    pair: Pair,
    quantity: Quantity = GLOBAL,
    *,
    holds: Region = ABOVE,
    refuted: Region | None = NO_MORE,
) -> Part:
    """By how much a method is above that of a pair."""
    scenario, other = pair
    cells = [federations.cell((scenario, name), quantity) for name in (method, other)]
    what = f"{quantity.name}, {WORDS[method]} minus {WORDS[other]}"
    seeds = federations.gains(method, pair, quantity)
    upper = "extractor-upper-bound" if method.startswith("extractor-") else "upper-bound"
    return part_of(federations, scenario, what, seeds, cells, holds=holds, refuted=refuted, upper=upper)


def above_rival(federations: Federations, pair: Pair, quantity: Quantity, refuted: Region) -> Part:
    """By how much Fed-FSNet is above a rival; a shortened FedDF counts only where it is ahead."""
    part = gain(federations, "fed-fsnet", pair, quantity, refuted=refuted)
    values = [one.value for one in part.seeds if one.value is not None]
    shortened = pair[1] == "feddf" and "steps=" in federations.strategy(pair)
    if shortened and not part.barred and sum(values) > 0:
        return replace(part, barred="FedDF takes fewer steps than published: being ahead of it says nothing")
    return part


def told(federations: Federations, pair: Pair, quantity: Quantity, words: str) -> Part:
    """By how much an attack on a method is above a blind guess, for a claim that it is not."""
    scenario, method = pair
    seeds, cells = federations.over_chance(pair, quantity), [federations.cell(pair, quantity)]
    what = f"{WORDS[method]}, {words}, over a blind guess"
    return part_of(federations, scenario, what, seeds, cells, holds=NO_MORE, refuted=MORE)

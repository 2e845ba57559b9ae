"""Who agrees on masks with whom and holds whose shares, and what a sparse graph of neighbours guarantees.

After Bell, Bonawitz, Gascon, Lepoint and Raykova (CCS 2020): clients stand in a circle in random order, and
each one's neighbours are the k / 2 next to it on either side.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from scipy.stats import hypergeom

from glasshouse.federation.secagg.messages import needed
from glasshouse.learning.seeds import numpy_rng

COLLUDING = 0.2  # of the clients, with the server
EXPOSED, FAILED = 2.0**-40, 2.0**-20  # the chances that enough neighbours leave


def neighbourhoods(clients: Sequence[int], neighbours: int | None, seed: int) -> dict[int, tuple[int, ...]]:
    """Each client's neighbours and itself, sorted; None, or too many neighbours, are all clients."""
    if neighbours is None or neighbours >= len(clients) - 1:
        return dict.fromkeys(clients, tuple(sorted(clients)))
    circle = [int(client) for client in numpy_rng(seed, "neighbours").permutation(clients)]
    half = neighbours // 2
    around = circle[-half:] + circle + circle[:half]
    return {client: tuple(sorted(around[at : at + neighbours + 1])) for at, client in enumerate(circle)}


@dataclass(frozen=True)
class Guarantee:
    """Upper bounds on what can go wrong in a round of `clients` with `neighbours` each.

    `exposed`: the colluding clients hold enough shares of some other client to open both its secrets.
    `parted`: the others that send a vector are not all linked by masks, so that parts of their sum show.
    `failed`: too few holders of some client's shares are left.
    """

    clients: int
    neighbours: int
    threshold: int
    colluding: float
    dropping: float
    exposed: float
    parted: float
    failed: float

    def __str__(self) -> str:
        """In words."""
        return (
            f"{self.neighbours} random neighbours of each of {self.clients:,} clients, shares of "
            f"{self.threshold} of {self.neighbours + 1} needed: if {self.colluding:.0%} of the clients "
            f"collude with the server and {self.dropping:.0%} drop out, it learns more than the sum over all "
            f"others with a chance of at most {_rounded_up(self.exposed + self.parted)}, and the round fails "
            f"with one of at most {_rounded_up(self.failed)}"
        )


def guarantee(
    clients: int, neighbours: int, share: float, *, colluding: float = COLLUDING, dropping: float = 0.0
) -> Guarantee:
    """What holds if a share `share` of the holders opens a secret.

    The colluding and the dropping clients may be any, but are the same whatever the order in the circle: then
    a client's neighbours are a uniform draw without replacement (hypergeometric tails, summed over clients).
    The circle without r clients falls apart only where k / 2 in a row are missing in two places: summed over
    all pairs of places, n (n - k + 1) / 2 of them, each with a chance of C(n - k, r - k) / C(n, r).

    >>> str(guarantee(1000, 64, 2 / 3, dropping=0.05)).split("chance of ")[1]
    'at most 2e-15, and the round fails with one of at most 5e-12'
    """
    neighbours = min(neighbours, clients - 1)
    threshold = needed(neighbours + 1, share)
    corrupt, gone = (math.ceil(part * clients - 1e-9) for part in (colluding, dropping))
    others = clients - 1
    exposed = (clients - corrupt) * hypergeom.sf(threshold - 1, others, min(corrupt, others), neighbours)
    spare = neighbours + 1 - threshold
    failed = (clients - gone) * hypergeom.sf(spare, others, min(gone, others), neighbours)
    if gone:  # the share that such a client keeps is gone with it
        failed += gone * hypergeom.sf(spare - 1, others, gone - 1, neighbours)
    return Guarantee(
        clients,
        neighbours,
        threshold,
        colluding,
        dropping,
        exposed=min(1.0, float(exposed)),
        parted=_parted(clients, neighbours, corrupt + gone),
        failed=min(1.0, float(failed)),
    )


@lru_cache(maxsize=64)
def enough_neighbours(
    clients: int, share: float, dropping: float, colluding: float = COLLUDING
) -> int | None:
    """The fewest neighbours, an even number, with a guarantee; None where it takes all clients.

    The chance of learning more than the sum is at most 2**-40, that of failing 2**-20.
    """
    if dropping and dropping >= 1 - share:
        return None
    for neighbours in range(2, clients - 1, 2):
        chances = guarantee(clients, neighbours, share, colluding=colluding, dropping=dropping)
        if chances.exposed + chances.parted <= EXPOSED and chances.failed <= FAILED:
            return neighbours
    return None


def _parted(clients: int, neighbours: int, missing: int) -> float:
    if neighbours >= clients - 1 or missing < neighbours:
        return 0.0
    places = clients * (clients - neighbours + 1) / 2
    rows = sum(math.log((missing - i) / (clients - i)) for i in range(neighbours))
    return min(1.0, places * math.exp(rows))


def _rounded_up(chance: float) -> str:
    """One digit, never less than the chance."""
    if not 0 < chance < 1:
        return f"{chance:g}"
    power = math.floor(math.log10(chance))
    digit = math.ceil(chance / 10.0**power)
    return f"{digit}e{power}" if digit < 10 else f"1e{power + 1}"

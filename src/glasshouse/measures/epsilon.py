"""What an attack's success says about the privacy loss: a lower bound on epsilon from one training run."""

import math

import numpy as np
from scipy import stats

from glasshouse.measures.estimate import LEVEL, Estimate, clopper_pearson

ONE_SIDED = "a one-sided bound: with 95% confidence epsilon is at least this"

# The part of the 5% that is spent on the chance that balancing asks for more records than there are.
BALANCING_ERROR = 0.001


def epsilon_lower_bound(scores: np.ndarray, member: np.ndarray, rng: np.random.Generator) -> Estimate:
    """The 95% lower confidence bound on the epsilon of the training that the scores attack; 0 says nothing.

    After Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run" (2023): call the r highest
    scores members and the r lowest non-members. Under epsilon-DP the number of right guesses among the 2r is
    at most (stochastically) Binomial(2r, e^eps / (1 + e^eps)). The best of a preset grid of r counts, each
    tested at its share of the error (Bonferroni). Ties are broken at random.

    It assumes that delta is 0, that chance alone, independently of the records, decided which are members,
    and that the scores do not depend on that choice. The numbers of members and non-members are fixed, so
    epsilon is that of replacing a record: at most twice that of adding or removing one. `n` counts the
    records used.
    """
    scores, member = fair_coins(scores, member, rng)
    right_high, right_low = right_guesses(scores, member, rng)
    grid = numbers_of_guesses(len(scores) // 2)
    tail = (1 - LEVEL - BALANCING_ERROR) / max(1, len(grid))
    shares = [clopper_pearson(int(right_high[r - 1] + right_low[r - 1]), 2 * r, tail)[0] for r in grid]
    share = max([0.5, *shares])
    bound = math.log(share / (1 - share))
    return Estimate(bound, bound, None, len(scores), ONE_SIDED)


def fair_coins(
    scores: np.ndarray, member: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A random part of the records in which membership is as if a fair coin had decided each.

    Equal numbers of both would not do: they make the last record's membership follow from the others', and
    full separation likelier than any coins do. So the number of members kept is itself drawn; the part is
    as large as leaves the draw almost surely within what there is.
    """
    m, n = int(member.sum()), int((~member).sum())
    sizes = np.arange(m + n + 1)
    beyond = stats.binom.sf(m, sizes, 0.5) + stats.binom.sf(n, sizes, 0.5)
    size = int(sizes[beyond <= BALANCING_ERROR][-1])
    inside = int(np.clip(rng.binomial(size, 0.5), size - n, m))
    kept = np.concatenate(
        [
            rng.choice(np.flatnonzero(member), inside, replace=False),
            rng.choice(np.flatnonzero(~member), size - inside, replace=False),
        ]
    )
    return scores[kept], member[kept]


def right_guesses(
    scores: np.ndarray, member: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """How many of the r highest are members and of the r lowest non-members, for every r from 1."""
    rising = member[np.lexsort((rng.random(len(scores)), scores))]
    return np.cumsum(rising[::-1]), np.cumsum(~rising)


def numbers_of_guesses(most: int) -> list[int]:
    """Guesses per side: from all, halving, down to the fewest whose full success could still say something.

    >>> numbers_of_guesses(100)
    [100, 50, 25, 12, 6]
    """
    return [most >> halvings for halvings in range(most.bit_length()) if most >> halvings >= 5]

"""A made-up world in which how models answer is known exactly, for the tests of membership attacks."""

import numpy as np
import torch

from glasshouse.access import QueryAccess
from glasshouse.attacks.attack import Knowledge
from glasshouse.data.images import Images
from glasshouse.evidence.batches import compose
from glasshouse.federation.shadows import Answers, Shadows

PROTOCOLS = ("sample-sample", "batch-sample", "batch-batch")


def rng():
    return torch.Generator().manual_seed(0)


def numbered(first, y):
    """Images of a single pixel, by which a made-up model knows them: number `first` and on."""
    x = (first + torch.arange(len(y), dtype=torch.float32)).reshape(-1, 1, 1, 1)
    return Images(x, torch.as_tensor(y), 2)


def logits_of(odds, y):
    """Two logits for each record with these log-odds of its label, shape (..., N, 2)."""
    logits = np.zeros((*np.shape(odds), 2))
    np.put_along_axis(logits, np.broadcast_to(y, np.shape(odds))[..., None], np.asarray(odds)[..., None], -1)
    return logits


def answering(logits):
    """Access to a model that answers about the numbered images with these logits, shape (N, 2)."""
    return QueryAccess(lambda x: torch.from_numpy(logits)[x.flatten().long()].softmax(1))


def knowing(
    aux_odds, aux_inside, odds, inside, *, y=None, aux_y=None, tested=None, online=False, batches=None
):
    """What an attack knows of candidates 0, 1, ... and auxiliary images after them.

    `aux_odds` and `odds`, shape (k, N), are the log-odds that shadow models give the records' labels, and
    the masks say which of them were trained on; the rest is for testing.
    """
    y = np.ones(np.shape(odds)[1], dtype=np.int64) if y is None else y
    aux_y = np.ones(np.shape(aux_odds)[1], dtype=np.int64) if aux_y is None else aux_y
    inside, aux_inside = np.asarray(inside), np.asarray(aux_inside)
    candidates, auxiliary = numbered(0, y), numbered(len(y), aux_y)
    shadows = Shadows(
        Answers(
            auxiliary,
            np.float32(logits_of(aux_odds, aux_y)),
            aux_inside,
            ~aux_inside if tested is None else tested,
        ),
        Answers(candidates, np.float32(logits_of(odds, y)), inside, ~inside),
        "made-up shadow models",
    )
    named = {"online_shadows" if online else "shadows": shadows}
    return Knowledge(candidates, auxiliary, batches, **named)


def planted(shift, *, count=300, shadows=4, batch=None, share=1.0, spread=0.0, offset=(0.0, 0.0), seed=0):
    """A world whose log-odds are Gaussian, `shift` higher where a model was trained on the record.

    Half of `count` candidates are members; `spread` is the deviation of the records' own difficulty and
    `offset` the mean log-odds of each of the two classes. Returns access, knowledge and who is a member.
    """
    draw = np.random.default_rng(seed)
    y, aux_y = draw.integers(0, 2, count), draw.integers(0, 2, count)
    member = draw.permutation(count) < count // 2
    aux_inside = np.stack([draw.permutation(count) < count // 2 for _ in range(shadows)])
    hard, aux_hard = (np.take(offset, own) + spread * draw.normal(size=count) for own in (y, aux_y))
    observed = hard + shift * member + draw.normal(size=count)
    odds = hard + draw.normal(size=(shadows, count))
    aux_odds = aux_hard + shift * aux_inside + draw.normal(size=(shadows, count))
    batches = None
    if batch is not None:
        sides = compose(np.flatnonzero(member), np.flatnonzero(~member), batch, share, draw)
        batches, member = np.concatenate(sides), np.repeat([True, False], [len(side) for side in sides])
    knowledge = knowing(
        aux_odds, aux_inside, odds, np.zeros_like(odds, dtype=bool), y=y, aux_y=aux_y, batches=batches
    )
    logits = logits_of(np.concatenate([observed, np.zeros(count)]), np.concatenate([y, aux_y]))
    return answering(logits), knowledge, member

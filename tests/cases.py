"""Small cases for attacks to work on, and questions whose answers the tests know."""

import dataclasses
from copy import deepcopy

import numpy as np
import torch
from conftest import CLASSES, SHAPE, make_plain_model, make_split
from torch import nn

from glasshouse.auditing.case import Case, protocol_of
from glasshouse.auditing.grants import grant
from glasshouse.data.images import Images
from glasshouse.defences import make_defences
from glasshouse.evidence.truth import Question, Truth
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import History, Record
from glasshouse.federation.live import LiveClients
from glasshouse.findings import Subject
from glasshouse.learning.layout import read_vector, write_vector
from glasshouse.learning.recipe import Recipe

ONE_STEP = Recipe(epochs=1, batch_size=0, lr=0.1)
SUBJECT = Subject(strategy="fedavg", data="stripes", model="plain", seed=0)


def truth_of(split):
    """What the auditor knows of a federation that holds `split`; members come first among the candidates."""
    holder = np.repeat(np.arange(len(split.clients)), [len(positions) for positions in split.clients])
    positions = np.concatenate([*split.clients, split.nonmembers])
    return Truth(
        split.pool,
        split.clients,
        split.pool[positions],
        np.concatenate([holder, np.full(len(split.nonmembers), -1)]),
        test=split.images("test"),
    )


def finished(
    engine,
    *,
    model=None,
    split=None,
    recipe=ONE_STEP,
    strategy=None,
    defence="none",
    channel=None,
    rounds=1,
    fraction=1.0,
):
    """A federation that trained for some rounds, all of which were seen, as a case."""
    network, split = model or make_plain_model(), split or make_split()
    federation = Federation(
        network,
        split,
        recipe,
        engine=engine,
        strategy=strategy,
        defences=make_defences(defence),
        channel=channel,
    )
    record, history = Record(), History(read_vector(network))
    if rounds:
        plan = Plan(rounds=rounds, fraction=fraction, observe=tuple(range(rounds)))
        history = federation.run(history.vector, plan, record=record)
    trained = make_copy(network, history.vector)
    return Case(
        subject=dataclasses.replace(SUBJECT, defence=defence),
        protocol=protocol_of(federation, network),
        model=trained,
        rounds=tuple(record.observed(number) for number in range(rounds)),
        sizes=tuple(federation.sizes),
        clients=LiveClients(federation, history.vector),
        truth=truth_of(split),
        auxiliary=split.images("auxiliary"),
        defence=make_defences(defence),
    )


def waiting(engine, **options):
    """A federation that has not trained yet: only its clients are there to exchange models with."""
    return finished(engine, rounds=0, **options)


def access_to(case, adversary, **options):
    """What the adversary gets of the case."""
    return grant(case, adversary, **options).access


def make_copy(network, vector):
    """The network with these weights, in eval mode."""
    model = deepcopy(network)
    write_vector(model, vector)
    return model.eval()


def question_about(
    images, holder=None, *, clients=None, model=None, auxiliary=None, batches=None, member=None
):
    """A question about `images`: who holds each, as a client's number or, of one client, as a truth value."""
    if holder is None:
        holder = np.full(len(images), -1)
    elif holder.dtype == bool:
        holder = np.where(holder, 0, -1)
    held = tuple(np.flatnonzero(holder == client) for client in range(int(holder.max()) + 1))
    return Question(
        truth=Truth(images, held, images, holder),
        candidates=images,
        holder=holder,
        member=holder >= 0 if member is None else member,
        model=model or nn.Identity(),
        auxiliary=images[:0] if auxiliary is None else auxiliary,
        rng=torch.Generator(),
        batches=batches,
    )


def question_about_labels(counts):
    """A question about clients that hold so many images of each class, shape (clients, classes)."""
    labels = [np.repeat(np.arange(CLASSES), row) for row in counts]
    y = torch.from_numpy(np.concatenate(labels))
    holder = np.repeat(np.arange(len(labels)), [len(row) for row in labels])
    return question_about(Images(torch.zeros(len(y), *SHAPE), y, CLASSES), holder)


def scores(evidence, question):
    """The scores of the evidence, by metric."""
    return {score.metric: score for score in evidence.judge(question).scores}

"""A round of secure aggregation, played message by message, for the tests to interfere with."""

import dataclasses

import numpy as np
import torch
from scipy import stats

from glasshouse.federation.secagg.client import Client
from glasshouse.federation.secagg.messages import Terms, needed
from glasshouse.federation.secagg.ring import Ring
from glasshouse.federation.secagg.server import Server

COUNT, LENGTH = 5, 12


def make_terms(count=COUNT, length=LENGTH, neighbours=None, bits=22, **changed):
    holders = count if neighbours is None else neighbours + 1
    terms = Terms(
        ring=Ring(clip=8.0, bits=bits, clients=count),
        length=length,
        holders=holders,
        threshold=needed(holders, 2 / 3),
        fewest=needed(count, 2 / 3),
        largest=10,
    )
    return dataclasses.replace(terms, **changed)


class Round:
    """A round of `count` clients, played up to the masked vectors of those in `sending`."""

    def __init__(self, sending=None, deltas=None, bits=22, count=COUNT, neighbours=None):
        self.deltas = torch.randn(count, LENGTH) if deltas is None else deltas
        self.terms = make_terms(count, self.deltas.shape[1], neighbours, bits)
        self.clients = [Client(k, 10, self.terms) for k in range(count)]
        self.server = Server(self.terms, neighbours, seed=0)
        self.server.collect(client.advertise() for client in self.clients)
        self.keys = [self.server.keys[k] for k in range(count)]
        self.shared = [client.share(self.server.directory(client.name)) for client in self.clients]
        self.server.route(self.shared)
        self.inboxes = [self.server.inbox(k) for k in range(count)]
        sending = range(count) if sending is None else sending
        self.masked = [self.clients[k].mask(self.inboxes[k], self.deltas[k]) for k in sending]
        self.vectors = [masked.words.copy() for masked in self.masked]
        for masked in self.masked:
            self.server.add(masked)

    def answers(self, staying=None):
        """What the clients in the sum reveal."""
        self.server.close()
        staying = self.server.masked if staying is None else staying
        return [self.clients[k].reveal(self.server.request(k)) for k in staying]

    def expected(self, names):
        """The sum of the quantised updates of `names`, modulo the ring."""
        return sum(self.terms.ring.quantise(self.deltas[k].numpy(), 1.0) for k in names)


def looks_uniform(words):
    """Kolmogorov-Smirnov on the words and chi-square on each of their bits, at one in a million."""
    width = 8 * words.dtype.itemsize
    spread = stats.kstest(words.astype(float) / 2.0**width, "uniform").pvalue
    bits = np.array(
        [np.count_nonzero(words >> words.dtype.type(bit) & words.dtype.type(1)) for bit in range(width)]
    )
    chi = (((bits - len(words) / 2) ** 2) / (len(words) / 4)).sum()
    return spread > 1e-6 and stats.chi2(width).sf(chi) > 1e-6

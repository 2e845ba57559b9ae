"""What the study asks beyond the paper: what federation costs, and whether training time is behind it all."""

from collections.abc import Iterator
from itertools import product

from glasshouse.studies.batch_robustness.measured import (
    CLEAN,
    TOP,
    WEAK_PGD,
    FederatedAddress,
    Models,
    Points,
    Quantity,
    explained,
)
from glasshouse.studies.batch_robustness.printed import network_words
from glasshouse.studies.measured import apart
from glasshouse.verdicts.claims import Claim, Part

ASKED = (CLEAN, WEAK_PGD, TOP)
ALIKE = {False: 0.02, True: 0.2}
"""Accuracies, and eigenvalues in doublings, that differ by no more are alike."""


def own_claims(models: Models) -> Iterator[Claim]:
    """Each with as many parts as there are federations, or networks with enough models."""
    divisions = {"iid": "A. IID clients", "shards": "B. Clients with two classes each"}
    for division, words in divisions.items():
        yield Claim(
            f"{words} end where one place ends whose batch is that of all clients together",
            [
                _beside_effective_batch(models, address, quantity)
                for address, quantity in product(models.federated, ASKED)
                if address.division == division
            ],
            own=True,
        )
    yield Claim(
        "C. Training time, lr x steps / (1 - m), explains the differences better than the batch size",
        [
            Part(
                f"{data}, {network_words(model)}",
                f"share of the variance of {quantity.name}, by time minus by batch",
                seeds,
                models.of_network(data, model),
            )
            for quantity in ASKED
            for (data, model), seeds in explained(models, quantity, Points.gain_of_time).items()
        ],
        own=True,
    )


def _beside_effective_batch(models: Models, address: FederatedAddress, quantity: Quantity) -> Part:
    """A federation minus the central model with its effective batch, trained for as many epochs."""
    central = address.line.at(address.clients * address.batch)
    seeds = apart(models.seeds_at(address, quantity), models.seeds_at(central, quantity))
    margin = ALIKE[quantity.logarithmic]
    network = network_words(address.model)
    return Part(
        f"{address.data}, {network}, {address.hands}, {address.line.words}",
        f"{quantity.name}{' in doublings' if quantity.logarithmic else ''}, federated minus central",
        seeds,
        [str(address), str(central)],
        holds=(-margin, margin),
        same_records=True,
    )

"""Federated algorithms, by the names users type."""

from glasshouse.registry import Registry

STRATEGIES = Registry(
    "strategy",
    {
        "fedavg": "glasshouse.federation.strategies.fedavg:FedAvg",
        "fedsgd": "glasshouse.federation.strategies.fedavg:FedSGD",
    },
    base="glasshouse.federation.strategies.strategy:Strategy",
)

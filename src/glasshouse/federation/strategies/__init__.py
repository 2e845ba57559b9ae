"""Federated algorithms, by the names users type."""

from glasshouse.registry import Registry

STRATEGIES = Registry(
    "strategy",
    {
        "fedavg": "glasshouse.federation.strategies.fedavg:FedAvg",
        "fedsgd": "glasshouse.federation.strategies.fedavg:FedSGD",
        "feddf": "glasshouse.federation.strategies.feddf:FedDF",
        "fedgen": "glasshouse.federation.strategies.recalling:FedGEN",
        "fedprox": "glasshouse.federation.strategies.fedprox:FedProx",
        "afl": "glasshouse.federation.strategies.afl:AFL",
        "fedavgm": "glasshouse.federation.strategies.stepping:FedAvgM",
        "scaffold": "glasshouse.federation.strategies.scaffold:SCAFFOLD",
        "fedadam": "glasshouse.federation.strategies.stepping:FedAdam",
        "fed-fsnet": "glasshouse.federation.strategies.fsnet:FedFSNet",
        "fedrecall": "glasshouse.federation.strategies.recalling:FedRecall",
    },
    base="glasshouse.federation.strategies.strategy:Strategy",
)

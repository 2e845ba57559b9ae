"""Attacks, by the names users type."""

from glasshouse.registry import Registry

ATTACKS = Registry(
    "attack",
    {
        "loss-threshold": "glasshouse.attacks.membership.threshold:LossThreshold",
        "gap": "glasshouse.attacks.membership.threshold:Gap",
        "fgsm": "glasshouse.attacks.evasion.fgsm:FGSM",
        "label-counts": "glasshouse.attacks.labels.counts:LabelCountsFromUpdates",
        "saturated-head": "glasshouse.attacks.crafted.saturated_head:SaturatedHead",
    },
    base="glasshouse.attacks.attack:Attack",
)

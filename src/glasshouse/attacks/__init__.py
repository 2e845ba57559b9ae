"""Attacks, by the names users type."""

from glasshouse.registry import Registry

ATTACKS = Registry(
    "attack",
    {
        "loss-threshold": "glasshouse.attacks.membership.threshold:LossThreshold",
        "gap": "glasshouse.attacks.membership.threshold:Gap",
        "mia-bad": "glasshouse.attacks.membership.bad:MIABad",
        "shokri": "glasshouse.attacks.membership.shokri:Shokri",
        "lira": "glasshouse.attacks.membership.lira:LiRA",
        "lira-online": "glasshouse.attacks.membership.lira:OnlineLiRA",
        "rmia": "glasshouse.attacks.membership.rmia:RMIA",
        "rmia-online": "glasshouse.attacks.membership.rmia:OnlineRMIA",
        "set-loss": "glasshouse.attacks.membership.sets:SetLoss",
        "set-vote": "glasshouse.attacks.membership.sets:SetVote",
        "set-llr": "glasshouse.attacks.membership.sets:SetLLR",
        "loss-trajectory": "glasshouse.attacks.membership.trajectory:LossTrajectory",
        "gradient-alignment": "glasshouse.attacks.membership.alignment:GradientAlignment",
        "source-inference": "glasshouse.attacks.membership.trajectory:SourceInference",
        "fgsm": "glasshouse.attacks.evasion.fgsm:FGSM",
        "i-fgsm": "glasshouse.attacks.evasion.pgd:IFGSM",
        "pgd": "glasshouse.attacks.evasion.pgd:PGD",
        "apgd-ce": "glasshouse.attacks.evasion.apgd:APGDCE",
        "apgd-dlr": "glasshouse.attacks.evasion.apgd:APGDDLR",
        "square": "glasshouse.attacks.evasion.square:Square",
        "strongest": "glasshouse.attacks.evasion.strongest:Strongest",
        "label-counts": "glasshouse.attacks.labels.counts:LabelCountsFromUpdates",
        "saturated-head": "glasshouse.attacks.crafted.saturated_head:SaturatedHead",
        "scale-mia": "glasshouse.attacks.crafted.scale_mia:ScaleMIA",
        "scale-mia-peeled": "glasshouse.attacks.crafted.scale_mia:PeeledScaleMIA",
        "fishing": "glasshouse.attacks.crafted.fishing:Fishing",
        "eluding": "glasshouse.attacks.crafted.eluding:Eluding",
        "robbing-the-fed": "glasshouse.attacks.crafted.robbing:RobbingTheFed",
        "mandrake": "glasshouse.attacks.crafted.loki:Loki",
    },
    base="glasshouse.attacks.attack:Attack",
)

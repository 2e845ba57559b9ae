"""The kinds of evidence, each under the name of the family of attacks that return it."""

from glasshouse.registry import Registry

KINDS = Registry(
    "family",
    {
        "membership": "glasshouse.evidence.membership:MembershipScores",
        "source": "glasshouse.evidence.source:Sources",
        "labels": "glasshouse.evidence.labels:LabelCounts",
        "disclosure": "glasshouse.evidence.nearness:Nearness",
        "reconstruction": "glasshouse.evidence.reconstruction:Reconstructions",
        "evasion": "glasshouse.evidence.evasion:AdversarialExamples",
        "canary-records": "glasshouse.evidence.canaries:CanaryRecordScores",
        "canary-clients": "glasshouse.evidence.canaries:CanaryClientScores",
    },
)

"""The paper's claims, and what the study asks beyond them, against what was measured."""

import dataclasses

from glasshouse.studies.measured import Measured
from glasshouse.studies.scale_mia.auxiliary_claims import auxiliary_claims
from glasshouse.studies.scale_mia.batch_claims import batch_claims
from glasshouse.studies.scale_mia.own_claims import own_claims
from glasshouse.studies.scale_mia.rival_claims import rival_claims
from glasshouse.studies.scale_mia.threat_claims import threat_claims
from glasshouse.verdicts.claims import Verdict, settle


def verdicts(measured: Measured) -> list[Verdict]:
    """A verdict on each claim of the paper, then on what the study asks beyond it."""
    makers = (batch_claims, auxiliary_claims, rival_claims, threat_claims)
    claims = [claim for make in makers for claim in make(measured)]
    numbered = [
        dataclasses.replace(claim, text=f"{number}. {claim.text}") for number, claim in enumerate(claims, 1)
    ]
    return settle([*numbered, *own_claims(measured)])

"""Defences, by the names users type."""

import re
from typing import TYPE_CHECKING

from glasshouse.registry import Registry, check_length

if TYPE_CHECKING:
    from glasshouse.defences.defence import Stack

DEFENCES = Registry(
    "defence",
    {
        "gaussian-noise": "glasshouse.defences.perturbation:GaussianNoise",
        "laplacian-noise": "glasshouse.defences.perturbation:LaplacianNoise",
        "pruning": "glasshouse.defences.perturbation:Pruning",
        "clipping": "glasshouse.defences.perturbation:Clipping",
        "adversarial-training": "glasshouse.defences.hardening:AdversarialTraining",
        "vet": "glasshouse.defences.vet:Vet",
        "transformation-policy": "glasshouse.defences.policies.defence:TransformationPolicy",
        "differential-privacy": "glasshouse.defences.privacy:DifferentialPrivacy",
    },
    base="glasshouse.defences.defence:Defence",
)


def make_defences(spec: str) -> "Stack":
    """Defences from `none`, `pruning(fraction=0.95)` or `clipping(norm=1.0)+gaussian-noise(std=0.01)`."""
    from glasshouse.defences.defence import Stack

    return Stack([DEFENCES.make(part) for part in split_defences(spec)], spec.strip())


def split_defences(spec: str) -> list[str]:
    """The parts of a composition; a plus sign inside brackets belongs to a number, as in `1e+5`."""
    check_length(spec, DEFENCES.kind)
    return [] if spec.strip() == "none" else [part.strip() for part in re.split(r"\+(?![^(]*\))", spec)]

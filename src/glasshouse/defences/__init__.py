"""Defences, by the names users type."""

import re
from typing import TYPE_CHECKING

from glasshouse.registry import Registry

if TYPE_CHECKING:
    from glasshouse.defences.defence import Stack

DEFENCES = Registry(
    "defence",
    {
        "gaussian-noise": "glasshouse.defences.perturbation:GaussianNoise",
        "laplacian-noise": "glasshouse.defences.perturbation:LaplacianNoise",
        "pruning": "glasshouse.defences.perturbation:Pruning",
        "clipping": "glasshouse.defences.perturbation:Clipping",
    },
)


def make_defences(spec: str) -> "Stack":
    """Defences from `none`, `pruning(fraction=0.95)` or `clipping(norm=1.0)+gaussian-noise(std=0.01)`."""
    from glasshouse.defences.defence import Stack

    parts = [] if spec.strip() == "none" else re.split(r"\+(?![^(]*\))", spec)
    return Stack([DEFENCES.make(part) for part in parts])

"""How sharp each trained model's loss is: the top eigenvalue of its Hessian, on the same images for all."""

from dataclasses import replace

import numpy as np

from glasshouse.auditing.experiment import Experiment
from glasshouse.auditing.target import Target
from glasshouse.errors import BadInput, fault_of
from glasshouse.findings import Finding
from glasshouse.learning.seeds import derive, numpy_rng
from glasshouse.measures.curvature import top_eigenvalues
from glasshouse.measures.estimate import Estimate
from glasshouse.runfolder import RunFolder


def sharpness(experiment: Experiment, target: Target, folder: RunFolder) -> list[Finding]:
    """The top eigenvalue of one model, read from the folder if it is there; none where none is wanted."""
    if not experiment.setting.audit.curvature:
        return []
    name = f"{target.variant.stem}/top-eigenvalue"
    finding = folder.kept(name, Finding)
    if finding is None:
        finding = _measured(experiment, target)
        folder.keep(name, finding)
    return [finding]


def measured_on(experiment: Experiment) -> np.ndarray:
    """Positions of the training images that all models are measured on, ascending."""
    members, most = experiment.split.members, experiment.setting.audit.curvature
    if len(members) <= most:
        return np.sort(members)
    return np.sort(numpy_rng(experiment.setting.seed, "curvature").choice(members, most, replace=False))


def _measured(experiment: Experiment, target: Target) -> Finding:
    chosen, members = measured_on(experiment), len(experiment.split.members)
    share = f"all {members}" if len(chosen) == members else f"{len(chosen)} of the {members}"
    return target.case.subject.finding(
        "curvature",
        "top-eigenvalue",
        _eigenvalue(experiment, target, chosen),
        cell=target.variant.cell,
        note=f"the mean loss over {share} training images, the same for every model",
    )


def _eigenvalue(experiment: Experiment, target: Target, chosen: np.ndarray) -> Estimate:
    """The eigenvalue, with a note of what it took, or why there is none.

    A model that diverged, or that cannot be differentiated twice, leaves the rest of the audit as it is.
    """
    assert target.case.model is not None
    seed = derive(experiment.setting.seed, "curvature", "start")
    try:
        top = top_eigenvalues(target.case.model, experiment.split.pool[chosen], seed=seed)
    except (BadInput, RuntimeError, np.linalg.LinAlgError) as error:
        if fault := fault_of(error):
            raise fault from error
        return Estimate(None, None, None, len(chosen), str(error).splitlines()[0])
    effort = f"{top.products} products with the Hessian, relative residual {top.residual:.1g}"
    return replace(top.estimate, note=top.estimate.note or effort)

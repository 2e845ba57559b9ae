"""How sharp each trained model's loss is: the top eigenvalue of its Hessian, on the same images for all."""

from typing import Any

import numpy as np

from glasshouse.auditing.experiment import Experiment
from glasshouse.auditing.trial import Trial
from glasshouse.errors import BadInput
from glasshouse.findings import Finding, from_row
from glasshouse.learning.seeds import derive, numpy_rng
from glasshouse.measures.curvature import top_eigenvalues
from glasshouse.measures.estimate import Estimate


def sharpness(trial: Trial) -> list[Finding]:
    """The top eigenvalue of one model, read from the folder if it is there; none where none is wanted."""
    if not trial.experiment.setting.audit.curvature:
        return []
    row: dict[str, Any] = trial.cached("top-eigenvalue", lambda: _finding(trial).row())
    return [from_row(row)]


def measured_on(experiment: Experiment) -> np.ndarray:
    """Positions of the training images that all models are measured on, ascending."""
    members, most = experiment.split.members, experiment.setting.audit.curvature
    if len(members) <= most:
        return np.sort(members)
    return np.sort(numpy_rng(experiment.setting.seed, "curvature").choice(members, most, replace=False))


def _finding(trial: Trial) -> Finding:
    experiment, chosen = trial.experiment, measured_on(trial.experiment)
    there = len(experiment.split.members)
    share = f"all {there}" if len(chosen) == there else f"{len(chosen)} of the {there}"
    estimate, effort = _measured(trial, chosen)
    return experiment.finding(
        cell=f"{trial.strategy}/{trial.defence}",
        family="curvature",
        defence=trial.defence,
        strategy=trial.strategy,
        metric="top-eigenvalue",
        **estimate.entries(),
        assumes=(f"the mean loss over {share} training images, the same for every model", effort),
    )


def _measured(trial: Trial, chosen: np.ndarray) -> tuple[Estimate, str]:
    """The eigenvalue, and what it took or why there is none.

    A model that diverged, or that cannot be differentiated twice, leaves the rest of the audit as it is.
    """
    experiment = trial.experiment
    seed = derive(experiment.setting.seed, "curvature", "start")
    try:
        found = top_eigenvalues(trial.grantor.model, experiment.split.pool[chosen], seed=seed)
    except (BadInput, RuntimeError, np.linalg.LinAlgError) as error:
        reason = f"not estimable: {str(error).splitlines()[0]}"
        return Estimate(None, None, None, len(chosen)), reason
    effort = f"{found.products} products with the Hessian, relative residual {found.residual:.1g}"
    return found.estimate, found.estimate.note or effort

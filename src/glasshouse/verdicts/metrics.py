"""Which direction of a metric is bad, and how metrics and families are spoken of.

A metric or family that is not listed is shown under its own name; high values of it count as a leak.
"""

from functools import cache
from typing import TYPE_CHECKING

from glasshouse.evidence import KINDS
from glasshouse.evidence.words import Family, Metric
from glasshouse.findings import LADDER

if TYPE_CHECKING:
    from glasshouse.evidence.evidence import Evidence

NOT_RUN = "not-applicable"  # the metric of an attack that could not run
VETTING = "vetting"  # the family of what a client could have noticed
PRIVACY = "privacy"  # the family of what differential privacy promises
CURVATURE = "curvature"  # the family of what the weights say about robustness
CENTRAL = "central"  # the strategy of the baseline


def metric_words(name: str) -> Metric:
    """The entry of a metric, or one made from its name: higher leaks more, scale unknown."""
    return metrics().get(name) or Metric(name, f"scores {{raw}} on {name}", span=None)


def family_words(name: str) -> Family:
    """The entry of a family, or one made from its name (with no headline metric)."""
    return families().get(name) or Family(name.capitalize(), "", "")


def _figure(label: str, unit: str = "", *, span: tuple[float, float] | None = None) -> Metric:
    """A figure of a model or its training that stands in tables and says nothing of an adversary."""
    return Metric(label, "has {raw}", leaks="none", span=span, unit=unit)


_SHARE = (0.0, 1.0)
MODEL_METRICS = {
    NOT_RUN: Metric("no result", "could not run", span=None),
    "test-accuracy": _figure("test accuracy", span=_SHARE),
    "bytes-down": _figure("bytes to a client in a round"),
    "bytes-up": _figure("bytes from a client in a round"),
    "training-seconds": _figure("core-seconds of training", "s"),
    "train-accuracy": _figure("training accuracy", span=_SHARE),
    "train-test-gap": _figure("gap between training and test accuracy"),
    "top-eigenvalue": _figure("top eigenvalue of the Hessian"),
    "vet-alarm": _figure("flagged by vet", span=_SHARE),
    "epsilon-spent-record": _figure("epsilon spent on a record"),
    "epsilon-spent-client": _figure("epsilon spent on a client"),
    "delta": _figure("delta of the epsilon spent"),
}
MODEL_FAMILIES = {
    "utility": Family("Accuracy", "How good is the model?", "test-accuracy"),
    PRIVACY: Family("Differential privacy", "What is promised?", "epsilon-spent-record"),
    CURVATURE: Family("Curvature", "How sharp is the model's loss?", "top-eigenvalue"),
    VETTING: Family("Vetting", "Would a client have noticed?", "vet-alarm"),
    LADDER: Family("Ladder of realism", "On which updates can images be rebuilt?", "psnr"),
}

UPDATE_METRICS = {
    "label-images": _figure("images behind the update"),
    "label-count": Metric("images of a class", "counts {raw}", leaks="none", span=None, detail=True),
    "gradient-mismatch": _figure("mismatch of gradients"),
}
"""What is said of one recorded update whether or not anybody knows what is behind it."""

STUDY_METRICS = {
    "null-auc": _figure("AUC of plain averaging", span=_SHARE),
    "auc-over-set-loss": _figure("AUC above that of the mean loss"),
    "permutation-p": _figure("p-value of the AUC", span=_SHARE),
    "input-eigenvalue": _figure("top eigenvalue in pixels"),
    "eigenvalue-residual": _figure("relative residual of the top eigenvalue"),
    "hessian-products": _figure("Hessian-vector products"),
    "train-loss": _figure("training loss"),
    "training-time": _figure("training time, lr x steps / (1 - m)"),
    "late-accuracy": _figure("test accuracy, mean of the last rounds"),
    "local-accuracy": _figure("test accuracy of participants' own models"),
    "late-local-accuracy": _figure("test accuracy of participants' own models, mean of the last rounds"),
    "local-accuracy-own-classes": _figure("accuracy of participants' own models on their own classes"),
    "late-local-accuracy-own-classes": _figure(
        "accuracy of participants' own models on their own classes, mean of the last rounds"
    ),
    "global-accuracy-own-classes": _figure("accuracy of the model on the participants' own classes"),
    "late-global-accuracy-own-classes": _figure(
        "accuracy of the model on the participants' own classes, mean of the last rounds"
    ),
    "rounds": _figure("rounds of training"),
    "mean-accuracy": _figure("test accuracy, mean of all rounds"),
    "wobble": _figure("standard deviation of the last rounds' test accuracy"),
    "jump": _figure("change of the test accuracy from round to round"),
    "seconds-per-round": _figure("core-seconds a round", "s"),
    "psnr-to-transformed": _figure("PSNR to the transformed image", "dB"),
    "psnr-to-visible": _figure("PSNR to what the transformed image shows of the original", "dB"),
    "psnr-to-original": _figure("PSNR to the original image", "dB"),
    "accuracy-cost": _figure("loss of test accuracy"),
    "privacy-score": _figure("S_pri, lower is better"),
    "autoencoder-psnr": _figure("PSNR of the autoencoder alone", "dB"),
    "autoencoder-rate": _figure("share that the autoencoder alone brings to 18 dB", span=_SHARE),
    "best-five-overlap": _figure("of the paper's best five transformations, found"),
}


@cache
def metrics() -> dict[str, Metric]:
    """Every metric with an entry, whichever kind of evidence it belongs to."""
    of_kinds = {name: metric for kind in _kinds() for name, metric in kind.metrics.items()}
    return of_kinds | MODEL_METRICS | UPDATE_METRICS | STUDY_METRICS


@cache
def families() -> dict[str, Family]:
    """Every family with an entry: those of attacks, by their kind of evidence, and those of models."""
    return {name: family for kind in _kinds() for name, family in kind.families.items()} | MODEL_FAMILIES


@cache
def about_the_model() -> frozenset[str]:
    """The families of attacks on test images: they fool a model, and learn nothing of its data."""
    return frozenset(name for kind in _kinds() if kind.about == "test images" for name in kind.families)


def _kinds() -> "list[type[Evidence]]":
    return [KINDS.load(name) for name in KINDS]

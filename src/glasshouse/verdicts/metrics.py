"""Which direction of a metric is bad, and how metrics and families are spoken of.

A metric or family that is not listed is shown under its own name; high values of it count as a leak.
"""

from glasshouse.evidence.words import Family, Metric

NOT_RUN = "not-applicable"  # the metric of an attack that could not run
VETTING = "vetting"  # the family of what a client could have noticed
CURVATURE = "curvature"  # the family of what the weights say about robustness
CENTRAL = "central"  # the strategy of the baseline


def metric_words(name: str) -> Metric:
    """The entry of a metric, or one made from its name: higher leaks more, scale unknown."""
    known = METRICS.get(name)
    return known or Metric(name, f"scores {{raw}} on {name}", span=None)


def family_words(name: str) -> Family:
    """The entry of a family, or one made from its name (with no headline metric)."""
    return FAMILIES.get(name) or Family(name.capitalize(), "", "")


def _lopsided(members: int) -> Metric:
    """Accuracy among `members` members for each non-member, as some papers report it."""
    return Metric(
        f"accuracy at {members}:1",
        f"is right in {{value}} cases where {members} of {members + 1} records are members",
        "always saying member would be right in {chance}",
        detail=True,
    )


def _figure(label: str, unit: str = "") -> Metric:
    """A figure of a training that stands in tables and says nothing of an adversary."""
    return Metric(label, "has {raw}", leaks="none", span=None, unit=unit)


def _seconds(phase: str, says: str) -> Metric:
    """How long a phase of an attack takes."""
    return Metric(phase, says, leaks="none", span=None, unit="s")


MEMBERSHIP_METRICS = {
    "auc": Metric(
        "AUC",
        "sees one record used for training and one that was not, and picks the right one in {value} cases",
        "a coin would get {chance}",
    ),
    "balanced-accuracy": Metric(
        "balanced accuracy",
        "tells members from non-members in {value} cases",
        "a coin would get {chance}",
    ),
    "tpr-at-1%-fpr": Metric(
        "TPR at 1% FPR",
        "points out {value} training records while wrongly accusing 1 of 100 others",
        "a blind guess would point out {chance}",
    ),
    "tpr-at-0.1%-fpr": Metric(
        "TPR at 0.1% FPR",
        "points out {value} training records while wrongly accusing 1 of 1000 others",
        "a blind guess would point out {chance}",
        detail=True,
    ),
    "tpr-at-0.01%-fpr": Metric(
        "TPR at 0.01% FPR",
        "points out {value} training records while wrongly accusing 1 of 10000 others",
        "a blind guess would point out {chance}",
        detail=True,
    ),
    "advantage": Metric(
        "advantage (TPR \N{MINUS SIGN} FPR)",
        "accuses members more often than others, by a rate of {raw}",
        "a blind guess would accuse both alike ({chance})",
        span=None,
        detail=True,
    ),
    "accuracy-at-5:1": _lopsided(5),
    "accuracy-at-6:1": _lopsided(6),
    "epsilon": Metric(
        "epsilon, lower bound",
        "shows, with 95% confidence, that training spends an epsilon of at least {raw}",
        "an attack that learns nothing shows {chance}",
        span=None,
    ),
}
MEMBERSHIP_FAMILIES = {
    "membership": Family("Membership", "Was this record used for training?", "auc"),
    "batch-membership": Family(
        "Membership of batches",
        "Was this batch of records used for training?",
        "auc",
        judges=("batch", "batches"),
    ),
}

SOURCE_METRICS = {
    "source-accuracy": Metric(
        "source accuracy",
        "names the client that held a training record, rightly in {value} cases",
        "always naming the largest client would be right in {chance}",
    ),
}
SOURCE_FAMILIES = {
    "source": Family("Source", "Which client held this record?", "source-accuracy"),
}

LABELS_METRICS = {
    "label-overlap": Metric(
        "label overlap",
        "counts {value} of the clients' labels right",
        "guessing all classes equally often would get {chance}",
    ),
    "exact-counts": Metric(
        "exact counts",
        "knows exactly how many images of every class a client holds, for {value} clients",
        "a blind guess would know it for {chance}",
    ),
}
LABELS_FAMILIES = {
    "labels": Family("Labels", "Which classes do the clients hold, and how many of each?", "label-overlap"),
}

NEARNESS_METRICS = {
    "nearest-member-share": Metric(
        "nearest record is a member",
        "receives samples whose nearest record was used for training in {value} cases",
        "with samples that say nothing of the training records it would be {chance}",
    ),
}
NEARNESS_FAMILIES = {
    "disclosure": Family(
        "Samples",
        "Do the samples that the server sends lie nearer to training records than to others?",
        "nearest-member-share",
    ),
}

RECONSTRUCTION_METRICS = {
    "recovery-rate": Metric(
        "recovery rate",
        "rebuilds {value} training images closely enough to count (18 dB or more)",
        "the most similar image it had before would do for {chance}",
    ),
    "near-exact-rate": Metric(
        "near-exact rate",
        "rebuilds {value} training images almost exactly (30 dB or more)",
        "the most similar image it had before would do for {chance}",
    ),
    "psnr": Metric(
        "PSNR",
        "comes as near to the training images as a mean signal-to-noise ratio of {raw}",
        "the most similar images it had before reach {chance}",
        span=None,
        unit="dB",
    ),
    "ssim": Metric(
        "SSIM",
        "returns images with a mean structural similarity of {raw} to the training images",
        "the most similar images it had before reach {chance}",
        span=None,
        detail=True,
    ),
    "psnr-of-recovered": Metric(
        "PSNR of recovered", "rebuilds those with {raw}", leaks="none", span=None, unit="dB"
    ),
    "psnr-of-returned": Metric("PSNR of returned", "returns {raw}", leaks="none", span=None, unit="dB"),
    "offline-seconds": _seconds("preparation", "prepares the attack in {raw}"),
    "online-seconds": _seconds("reconstruction", "rebuilds the images in {raw}"),
}
RECONSTRUCTION_FAMILIES = {
    "reconstruction": Family(
        "Reconstruction", "Can the server rebuild training images?", "recovery-rate", turns_round=False
    ),
}

EVASION_METRICS = {
    "robust-accuracy": Metric(
        "robust accuracy",
        "changes test images within a set limit, and the model then gets {value} right",
        "random noise of the same size leaves {chance}",
        leaks="low",
    ),
    "clean-accuracy": Metric("clean accuracy", "leaves {value} right without an attack", leaks="none"),
    "robust-accuracy-over-central": Metric(
        "robust accuracy over central",
        "leaves a share of the images right that differs from the central model's by {raw}",
        leaks="none",
        span=None,
    ),
    "clean-accuracy-over-central": Metric(
        "clean accuracy over central",
        "attacks a model whose share right differs from the central model's by {raw}",
        leaks="none",
        span=None,
        detail=True,
    ),
    "masked-share": Metric(
        "fell only without gradients",
        "needs no gradient to fool the model on {value} images on which attacks with gradients failed",
        leaks="none",
    ),
}
EVASION_FAMILIES = {
    "evasion": Family(
        "Evasion",
        "Can changed images fool the model?",
        "robust-accuracy",
        "can be fooled",
        "no weakness found",
    ),
}

MODEL_METRICS = {
    NOT_RUN: Metric("no result", "could not run", span=None),
    "test-accuracy": Metric("test accuracy", "gets {value} right", leaks="none"),
    "train-accuracy": Metric("training accuracy", "gets {value} of its training records right", leaks="none"),
    "train-test-gap": Metric(
        "gap between training and test accuracy",
        "does better on its training records than on others, by {raw}",
        leaks="none",
        span=None,
    ),
    "top-eigenvalue": Metric(
        "top eigenvalue of the Hessian", "finds a curvature of {raw} at its sharpest", leaks="none", span=None
    ),
    "vet-alarm": Metric(
        "flagged by vet", "sends models of which a vetting client flags {value}", leaks="none"
    ),
}
MODEL_FAMILIES = {
    "utility": Family("Accuracy", "How good is the model?", "test-accuracy"),
    CURVATURE: Family("Curvature", "How sharp is the model's loss?", "top-eigenvalue"),
    VETTING: Family("Vetting", "Would a client have noticed?", "vet-alarm"),
}

STUDY_METRICS = {
    "null-auc": Metric(
        "AUC of plain averaging", "averages each batch and reaches an AUC of {raw}", leaks="none"
    ),
    "auc-over-set-loss": Metric(
        "AUC above that of the mean loss",
        "gains {raw} over the mean loss of the batch",
        leaks="none",
        span=None,
    ),
    "permutation-p": Metric(
        "p-value of the AUC", "is reached by shuffled truth with a probability of {raw}", leaks="none"
    ),
    "input-eigenvalue": Metric(
        "top eigenvalue in pixels", "finds a curvature of {raw} in pixels", leaks="none", span=None
    ),
    "eigenvalue-residual": Metric(
        "relative residual of the top eigenvalue", "knows it to {raw}", leaks="none", span=None
    ),
    "hessian-products": Metric("Hessian-vector products", "takes {raw} products", leaks="none", span=None),
    "train-loss": Metric(
        "training loss", "has a loss of {raw} on its training records", leaks="none", span=None
    ),
    "training-time": Metric(
        "training time, lr x steps / (1 - m)", "was trained for {raw}", leaks="none", span=None
    ),
    "late-accuracy": _figure("test accuracy, mean of the last rounds"),
    "local-accuracy": _figure("test accuracy of participants' own models"),
    "late-local-accuracy": _figure("test accuracy of participants' own models, mean of the last rounds"),
    "mean-accuracy": _figure("test accuracy, mean of all rounds"),
    "wobble": _figure("standard deviation of the last rounds' test accuracy"),
    "jump": _figure("change of the test accuracy from round to round"),
    "bytes-down": _figure("bytes to a client in a round"),
    "bytes-up": _figure("bytes from a client in a round"),
    "seconds-per-round": _figure("core-seconds a round", "s"),
}

METRICS = {
    **MEMBERSHIP_METRICS,
    **SOURCE_METRICS,
    **LABELS_METRICS,
    **NEARNESS_METRICS,
    **RECONSTRUCTION_METRICS,
    **EVASION_METRICS,
    **MODEL_METRICS,
    **STUDY_METRICS,
}
FAMILIES = {
    **MEMBERSHIP_FAMILIES,
    **SOURCE_FAMILIES,
    **LABELS_FAMILIES,
    **NEARNESS_FAMILIES,
    **RECONSTRUCTION_FAMILIES,
    **EVASION_FAMILIES,
    **MODEL_FAMILIES,
}

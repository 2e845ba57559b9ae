"""How the metrics of rebuilt images are spoken of."""

from glasshouse.evidence.words import Family, Metric

_SIMILAR = "the most similar image it had before, which only someone who knows the original can pick,"
_SIMILAR_ONES = "the most similar images it had before, which only someone who knows the originals can pick,"


def _seconds(label: str, says: str) -> Metric:
    return Metric(label, says, leaks="none", span=None, unit="s")


def _guessed(label: str, how: str) -> dict[str, Metric]:
    """What a blind guess reaches: no leak, and no chance to compare it with."""
    name = label.replace(" ", "-")
    return {
        f"{name}-recovery-rate": Metric(
            f"recovery rate of the {label}",
            f"would rebuild {{value}} training images by showing {how}",
            leaks="none",
        ),
        f"{name}-psnr": Metric(
            f"PSNR of the {label}",
            f"would reach {{raw}} by showing {how}",
            leaks="none",
            span=None,
            unit="dB",
            detail=True,
        ),
    }


METRICS = {
    "recovery-rate": Metric(
        "recovery rate",
        "rebuilds {value} training images closely enough to count (18 dB or more)",
        f"{_SIMILAR} would do for {{chance}}",
    ),
    "near-exact-rate": Metric(
        "near-exact rate",
        "rebuilds {value} training images almost exactly (30 dB or more)",
        f"{_SIMILAR} would do for {{chance}}",
    ),
    "psnr": Metric(
        "PSNR",
        "comes as near to the training images as a mean signal-to-noise ratio of {raw}",
        f"{_SIMILAR_ONES} reach {{chance}}",
        span=None,
        unit="dB",
    ),
    "most-exposed-psnr": Metric(
        "PSNR of the most exposed image",
        "comes as near to one of the training images as {raw}",
        f"{_SIMILAR} comes as near to one as {{chance}}",
        span=None,
        unit="dB",
    ),
    "ssim": Metric(
        "SSIM",
        "returns images with a mean structural similarity of {raw} to the training images",
        f"{_SIMILAR_ONES} reach {{chance}}",
        span=None,
        detail=True,
    ),
    "psnr-of-recovered": Metric(
        "PSNR of recovered", "rebuilds those with {raw}", leaks="none", span=None, unit="dB"
    ),
    "psnr-of-returned": Metric("PSNR of returned", "returns {raw}", leaks="none", span=None, unit="dB"),
    # No leak of images: what labels leak is judged by attacks whose question it is.
    "label-accuracy": Metric(
        "label accuracy",
        "names the labels of {value} training images rightly",
        "the labels of the images it had before would do for {chance}",
        leaks="none",
    ),
    **_guessed("mean image", "the mean of the images it had before each time"),
    **_guessed("single guess", "one of the images it had before each time"),
    "offline-seconds": _seconds("preparation", "prepares the attack in {raw}"),
    "online-seconds": _seconds("reconstruction", "rebuilds the images in {raw}"),
}

FAMILIES = {
    "reconstruction": Family(
        "Reconstruction", "Can the server rebuild training images?", "recovery-rate", turns_round=False
    ),
}

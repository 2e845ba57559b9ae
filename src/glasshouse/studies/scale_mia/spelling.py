"""How the study's tables spell numbers and names."""

from glasshouse.spelling import DASH
from glasshouse.studies.scale_mia.measured import Measured
from glasshouse.studies.scale_mia.rows import RETURNED
from glasshouse.studies.showing import bracketed

RATE, PSNR = "recovery-rate", "psnr-of-recovered"
WORDS = {
    RATE: "recovery rate",
    PSNR: "PSNR of the recovered (dB)",
    RETURNED: "PSNR of the returned (dB)",
    "online-seconds": "seconds",
}
LINEAR = {"alexnet": 512, "resnet": 512, "vit": 512, "cnn": 1024, "vgg": 1024, "mlp": 200}
"""The neurons of the first linear layer, which the paper shows beside a network's name."""

INTERVALS = (
    "Intervals are 95%: over rounds with other victims where a cell has four or more, else as if "
    "samples were independent; those of the recovered or returned images alone always the latter."
)


def shown(measured: Measured, cell: str, attack: str, metric: str) -> str:
    """A value with its interval, as short as it can be."""
    return bracketed(measured.estimate(cell, attack, metric), _form(metric))


def number(value: float | None, metric: str = RATE) -> str:
    """One decimal for dB, three for all else."""
    return DASH if value is None else format(value, _form(metric))


def _form(metric: str) -> str:
    return ".1f" if metric.startswith("psnr") else ".3f"


def named(network: str) -> str:
    """A network with its k."""
    return f"{network} ({LINEAR[network]})" if network in LINEAR else network

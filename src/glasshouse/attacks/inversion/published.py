"""Published inversions, each as its authors set the common loop, in pixels that lie in [0, 1]."""

from dataclasses import dataclass

from glasshouse.access import Protocol
from glasshouse.attacks.inversion.matching import GradientMatching
from glasshouse.attacks.inversion.priors import check_batch_norm


@dataclass(frozen=True, kw_only=True)
class DLG(GradientMatching):
    """Deep leakage from gradients: images and labels together, by L-BFGS (Zhu et al. 2019)."""

    name = "dlg"
    most: int = 1
    labels: str = "joint"
    start: str = "normal"
    distance: str = "l2"
    optimiser: str = "lbfgs"
    lr: float = 1.0
    steps: int = 300
    schedule: str = "constant"
    signed: bool = False
    boxed: bool = False


@dataclass(frozen=True, kw_only=True)
class IDLG(DLG):
    """Improved DLG: the label is read from the head's gradient first (Zhao et al. 2020)."""

    name = "idlg"
    labels: str = "idlg"


@dataclass(frozen=True, kw_only=True)
class InvertingGradients(GradientMatching):
    """Inverting gradients: the angle between gradients, and smooth images (Geiping et al. 2020)."""

    name = "inverting-gradients"
    tv: float = 0.2


@dataclass(frozen=True, kw_only=True)
class GradInversion(GradientMatching):
    """See through gradients: batch norm statistics and a group of restarts that agree (Yin et al. 2021)."""

    name = "gradinversion"
    most: int = 48
    labels: str = "smallest"
    distance: str = "l2"
    steps: int = 20_000
    schedule: str = "cosine"
    warmup: int = 50
    signed: bool = False
    langevin: float = 0.2
    restarts: int = 4
    tv: float = 1e-4
    l2: float = 1e-6
    batch_norm: float = 0.1
    group: float = 0.01

    def check_protocol(self, protocol: Protocol, samples: int) -> None:
        super().check_protocol(protocol, samples)
        if self.batch_norm:
            check_batch_norm(protocol.architecture)


@dataclass(frozen=True, kw_only=True)
class AdamCosine(InvertingGradients):
    """Adam and the cosine, as the replication of automatic transformation search sets them."""

    name = "adam-cosine"
    most: int = 1
    labels: str = "given"
    tv: float = 1e-4


@dataclass(frozen=True, kw_only=True)
class AdamL1(AdamCosine):
    """Adam and the sum of absolute differences, as the replication of ATS sets them."""

    name = "adam-l1"
    distance: str = "l1"


@dataclass(frozen=True, kw_only=True)
class AdamL2(AdamCosine):
    """Adam and the sum of squared differences, as the replication of ATS sets them."""

    name = "adam-l2"
    distance: str = "l2"


@dataclass(frozen=True, kw_only=True)
class SGDCosine(AdamCosine):
    """SGD with Nesterov's momentum and the cosine, as the replication of ATS sets them."""

    name = "sgd-cosine"
    optimiser: str = "sgd"
    lr: float = 0.01


@dataclass(frozen=True, kw_only=True)
class LBFGSL2(AdamCosine):
    """L-BFGS and the sum of squared differences, as the replication of ATS sets them."""

    name = "lbfgs-l2"
    distance: str = "l2"
    optimiser: str = "lbfgs"
    lr: float = 1e-4
    steps: int = 50
    schedule: str = "constant"
    signed: bool = False
    restarts: int = 2
    tv: float = 1e-3


@dataclass(frozen=True, kw_only=True)
class LBFGSCosine(LBFGSL2):
    """L-BFGS and the cosine, as the replication of ATS sets them."""

    name = "lbfgs-cosine"
    distance: str = "cosine"
    steps: int = 300
    restarts: int = 16
    tv: float = 1e-4

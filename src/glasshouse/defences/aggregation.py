"""Secure aggregation as a defence: the server receives the sum of the updates and no single one."""

from dataclasses import asdict, dataclass

from glasshouse.defences.defence import Defence
from glasshouse.options import check_number, check_whole
from glasshouse.registry import write_spec


@dataclass(frozen=True, kw_only=True)
class SecureAggregation(Defence):
    """Sends the updates through the channel `secure`, of which the server learns nothing but the sum.

    It takes the place of the setting's channel. Options are the channel's: entries are cut to [-clip, clip]
    and rounded to one of 2**bits levels, a share `threshold` of the clients must stay, `neighbours` limits
    who shares masks with whom, and clients may drop out before and after they send.
    """

    clip: float = 8.0
    bits: int = 22
    threshold: float = 2 / 3
    neighbours: int | str | None = None
    dropout_before: float = 0.0
    dropout_after: float = 0.0

    def __post_init__(self) -> None:
        name = "secure-aggregation"
        check_number(name, "clip", self.clip, 0, open_low=True)
        check_whole(name, "bits", self.bits, 2, 32)
        check_number(name, "threshold", self.threshold, 0.5, 1, open_low=True)
        check_number(name, "dropout_before", self.dropout_before, 0, 1, open_high=True)
        check_number(name, "dropout_after", self.dropout_after, 0, 1, open_high=True)

    def channel(self) -> str:
        defaults = asdict(SecureAggregation())
        return write_spec("secure", {k: v for k, v in asdict(self).items() if v != defaults[k]})

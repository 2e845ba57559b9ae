"""Wrong names are refused before anything heavy is imported: a typing error costs no wait."""

from pathlib import Path
from typing import TYPE_CHECKING

from glasshouse.attacks import ATTACKS
from glasshouse.data.registry import DATA, PARTITIONS
from glasshouse.defences import DEFENCES, split_defences
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.models.signature import check_named

if TYPE_CHECKING:
    from glasshouse.auditing.setting import Setting


def refuse_unknown(setting: "Setting") -> None:
    """Refuse a setting that names what there is not; what is the user's own is looked at later."""
    check_data(setting.data.name)
    check_named(setting.model.name)
    if setting.data.partition is not None:
        PARTITIONS.check(setting.data.partition)
    STRATEGIES.check(setting.training.strategy)
    CHANNELS.check(setting.training.channel)
    for attack in setting.audit.attacks:
        ATTACKS.check(attack)
    for defence in setting.audit.named_defences:
        for part in split_defences(defence):
            DEFENCES.check(part)


def check_data(name: str) -> None:
    """Refuse a bare word that is neither a named set nor a file."""
    if name.replace("-", "").isalnum() and not Path(name).exists():
        DATA.check(name)

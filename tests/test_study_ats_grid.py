"""What the study ats varies, and the printed numbers that stand beside it."""

import pytest

from glasshouse.studies.ats import cells, victims
from glasshouse.studies.ats.arms import PERTURBATIONS
from glasshouse.studies.ats.grid import SCALES, ATSStudy
from glasshouse.studies.ats.printed import (
    HYBRID,
    NONE,
    TABLE_2,
    TABLES,
    beside,
    of_attack,
    printed,
    printed_accuracy,
    searched,
)


def test_printed_numbers_agree_where_tables_repeat_them():
    table_1 = TABLES["table-1", "cifar100", "resnet20-4"]
    for arm in (NONE, HYBRID):
        assert (table_1[arm].psnr, table_1[arm].spread) == (
            TABLE_2[arm]["adam-cosine"].psnr,
            TABLE_2[arm]["adam-cosine"].spread,
        )
    assert TABLES["table-1", "fashion-mnist", "resnet20-4"][NONE] == printed(
        "table-4", "fashion-mnist", "resnet20", NONE
    )
    assert set(TABLE_2[NONE]) == set(TABLE_2[HYBRID])
    assert set(TABLES["table-6", "cifar100", "resnet20-4"]) == set(PERTURBATIONS)
    assert set(searched("cifar100", "resnet20")) <= set(table_1)
    assert all(row.psnr < table_1[NONE].psnr for arm, row in table_1.items() if arm != NONE)


def test_only_the_papers_attack_stands_beside_their_numbers():
    assert of_attack("table-1", "cifar100", "resnet20", NONE, "adam-cosine").psnr == 12.15
    assert of_attack("table-1", "cifar100", "resnet20", NONE, "inverting-gradients") is None
    assert of_attack("table-2", "cifar100", "resnet20", HYBRID, "adam-l1").psnr == 6.43
    assert beside("table-1", "cifar100", "convnet-16", NONE, "adam-cosine")[1] is False
    assert beside("table-4", "fashion-mnist", "convnet-16", NONE, "adam-cosine")[1] is True
    assert beside("table-1", "cifar100", "convnet-16", "21-13-3", "adam-cosine") is None


def test_printed_numbers_are_found_for_the_network_that_a_narrow_one_stands_for():
    assert printed("table-1", "cifar100", "resnet20", "3-1-7").psnr == 6.77
    assert printed("table-4", "fashion-mnist", "convnet-16", HYBRID).psnr == 11.50
    assert printed("table-1", "fashion-mnist", "resnet20", HYBRID) is None
    assert printed_accuracy(("table-4", "table-5"), "fashion-mnist", "resnet20", HYBRID) == 0.9449
    assert printed_accuracy(("table-1", "table-6"), "cifar100", "resnet20", "gaussian-0.01") == 0.3625


@pytest.mark.parametrize("scale", SCALES)
def test_policies_meet_an_attacker_who_knows_them_and_one_who_does_not(scale):
    tasks = [entry.run.args[0] for entry in ATSStudy().cells(scale) if entry.name.startswith("table-1/")]
    assert tasks
    for task in tasks:
        knowing = [spec for spec in task.specs if victims.knows_defence(spec)]
        assert len(task.specs) > len(knowing)
        assert bool(knowing) == (task.address.arm != NONE)
        assert task.trained_under == task.defence


@pytest.mark.parametrize("scale", SCALES)
def test_only_where_there_is_a_policy_somebody_averages_over_it(scale):
    tables = [entry for entry in ATSStudy().cells(scale) if entry.name.startswith("table-")]
    tasks = [entry.run.args[0] for entry in tables]
    averaged = [task for task in tasks if any(map(victims.averages, task.specs))]
    assert {task.address.arm for task in averaged} >= {HYBRID}
    assert all("transformation-policy" in task.defence for task in averaged)


@pytest.mark.parametrize("scale", SCALES)
def test_every_arm_that_is_attacked_is_trained_first(scale):
    names = [entry.name for entry in ATSStudy().cells(scale)]
    for before, name in enumerate(names):
        address = cells.ArmCell.parse(name)
        if address.group not in ("figure-4", "figure-8") and not address.group.startswith("training"):
            assert str(cells.training_of(address)) in names[:before]

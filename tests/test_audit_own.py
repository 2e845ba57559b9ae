"""What users bring themselves, data, models and attacks, is audited like what has a name."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from conftest import make_images, make_plain_model
from torch import nn

from glasshouse import BadInput, Dataset, Images, Setting, audit
from glasshouse.attacks.membership.threshold import Gap
from glasshouse.auditing.run import run_audit
from glasshouse.auditing.setting import make_setting

SMALL = {
    "data": {"clients": 4, "members": 240, "nonmembers": 160, "auxiliary": 240, "test": 160},
    "model": {"name": "mlp"},
    "training": {"rounds": 3, "fraction": 0.5, "batch_size": 16, "lr": 0.1},
}


def test_objects_without_a_name_can_be_audited(tmp_path):
    images = make_images(240)
    setting = Setting(
        data={"clients": 3},
        training={"rounds": 1},
        audit={"attacks": ("gap",), "defences": (), "central": False},
    )
    results = audit(
        setting,
        dataset=Dataset("stripes", Images(images.x, images.y, images.classes)),
        model=make_plain_model(),
        out=tmp_path / "run",
        workers=1,
        quiet=True,
    )
    assert {row.data for row in results.findings} == {"stripes"}
    assert {row.model for row in results.findings} == {"Sequential"}


def test_plain_arrays_can_be_audited_and_are_checked(tmp_path):
    images = make_images(240)
    setting = Setting(
        data={"clients": 3, "nonmembers": 0},
        training={"rounds": 1},
        audit={"attacks": ["gap"], "defences": []},
    )
    x, y = images.x.numpy(), images.y.numpy()
    results = audit(
        setting, dataset=(x, y), model=make_plain_model(), out=tmp_path / "run", workers=1, quiet=True
    )
    (gap,) = (row for row in results.findings if row.attack == "gap")
    assert gap.value is None
    assert gap.reason == "there is nobody to compare members with; set data.nonmembers above 0"
    assert gap.assumes == ()
    for wrong, words in (
        ((x * np.nan, y), "NaN"),
        ((x, y + 3), "class 0 has no image"),
        ((x[:5], y), "label"),
    ):
        with pytest.raises(BadInput, match=words):
            audit(setting, dataset=wrong, model=make_plain_model(), out=tmp_path / "wrong", quiet=True)
    with pytest.raises(BadInput, match="return logits of shape"):
        audit(setting, dataset=(x, y), model=nn.Flatten(), out=tmp_path / "wrong", quiet=True)


class Recorder(Gap):
    """The gap attack, which remembers whom it was asked about."""

    asked: ClassVar[list] = []

    def run(self, access, knowledge, rng):
        self.asked.append(knowledge.candidates.x)
        return super().run(access, knowledge, rng)


def test_a_users_own_attack_meets_the_same_records_under_every_defence(tmp_path):
    Recorder.asked.clear()
    own = {"attacks": ["test_audit_own:Recorder"], "defences": ["clipping(norm=1.0)"], "central": False}
    results = run_audit(make_setting(SMALL | {"audit": own}), out=tmp_path / "run", workers=1, quiet=True)
    assert {row.attack for row in results.findings if row.attack} == {"test_audit_own:Recorder"}
    first, second = Recorder.asked
    assert torch.equal(first, second)


def test_other_data_under_the_same_name_do_not_mix(tmp_path):
    setting = Setting(training={"rounds": 1}, audit={"attacks": ("gap",), "defences": (), "central": False})
    for seed in (0, 1):
        images = make_images(400, seed)
        arguments = {
            "dataset": Dataset("stripes", images),
            "model": make_plain_model(),
            "out": tmp_path / "run",
        }
        if seed == 0:
            run_audit(setting, **arguments, workers=1, quiet=True)
        else:
            with pytest.raises(BadInput, match="a run of other data"):
                run_audit(setting, **arguments, workers=1, quiet=True)

"""What many clients send is streamed to disk, mapped where it is read, and kept only for attacks that ask."""

import errno
import json
import pickle
import re
import shutil
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_images, make_model, make_plain_model, make_split
from safetensors import safe_open
from timeless import timeless

from glasshouse import audit
from glasshouse.access import AggregateAccess, QueryAccess, UpdateAccess
from glasshouse.auditing.experiment import prepare
from glasshouse.auditing.grants import grant
from glasshouse.auditing.setting import make_setting
from glasshouse.auditing.target import Variant, train_target
from glasshouse.data.dataset import Dataset
from glasshouse.errors import CannotRun, Fault
from glasshouse.federation import federation as federations
from glasshouse.federation import rows as row_files
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.federation import Federation, Plan
from glasshouse.federation.history import Record
from glasshouse.federation.rows import Rows, RowWriter
from glasshouse.federation.strategies import STRATEGIES
from glasshouse.federation.updates import StoredUpdate, Update
from glasshouse.learning.engine import Engine
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.progress import Progress
from glasshouse.runfolder import RunFolder

RECIPE = Recipe(epochs=1, batch_size=8, lr=0.1)
MANY = (3, 1, 2) * 100


def written(path, table, parts=3):
    with RowWriter(path) as writer:
        for part in np.array_split(table, parts):
            writer.add(part)
        return writer.finish()


def table_of(count=20, length=30):
    return np.random.default_rng(0).normal(size=(count, length)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("named", [True, False])
def test_rows_are_read_as_they_were_written(tmp_path, named, dtype):
    table = table_of().astype(dtype)
    rows = written(tmp_path / "below" / "rows.safetensors" if named else None, table)
    copies = {"itself": rows, "copied": deepcopy(rows), "elsewhere": pickle.loads(pickle.dumps(rows))}
    for name, copy in copies.items():
        assert len(copy) == len(table), name
        assert np.array_equal(torch.stack([copy[place] for place in range(len(copy))]), table), name


def test_a_file_of_rows_is_one_of_safetensors(tmp_path):
    path, table = tmp_path / "rows.safetensors", table_of()
    written(path, table)
    with safe_open(path, framework="np") as file:
        assert np.array_equal(file.get_tensor("rows"), table)
        assert len(file.metadata()["checksum"]) == 32


def test_what_is_written_into_a_row_stays_with_its_holder(tmp_path, monkeypatch):
    monkeypatch.setattr(row_files, "WINDOW", 100)  # so that memory is handed back at every row
    path, table = tmp_path / "rows.safetensors", table_of()
    rows = written(path, table)
    other = deepcopy(rows)
    rows[3].zero_()
    for place in range(len(rows)):
        expected = 0 * table[place] if place == 3 else table[place]
        assert np.array_equal(rows[place], expected)
        assert np.array_equal(other[place], table[place])
    Rows(path).check()


def test_a_full_disk_is_a_fault_and_leaves_no_file(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(row_files.os, "fsync", full)
    with pytest.raises(Fault, match=r"rows cannot be written \(No space left on device\); free some space"):
        written(tmp_path / "rows", table_of())
    assert not list(tmp_path.iterdir())


def test_a_copy_of_an_update_holds_its_own_row_alone():
    table = torch.zeros(300, 1000)
    updates = [Update(client, 1, row) for client, row in enumerate(table)]
    assert len(pickle.dumps(updates)) < 1.1 * table.nbytes
    assert deepcopy(updates[7]).delta.untyped_storage().nbytes() == 4000


def observed(engine, record, *, channel="plain", strategy="fedavg", sizes=(30, 20, 10, 9, 7), model=None):
    model = model or make_model()
    federation = Federation(
        model,
        make_split(sizes),
        RECIPE,
        engine=engine,
        strategy=STRATEGIES.make(strategy),
        channel=CHANNELS.make(channel),
    )
    history = federation.run(read_vector(model), Plan(rounds=2, observe=(0, 1)), record=record)
    return history, [record.observed(number) for number in (0, 1)]


@pytest.mark.parametrize("strategy", ["fedavg", "scaffold", "fedrecall", "afl"])
@pytest.mark.parametrize("channel", ["plain", "plain(dropout=0.3)"])
def test_a_mapped_round_equals_the_one_in_memory_bit_by_bit(engine, tmp_path, channel, strategy):
    held, in_memory = observed(engine, Record(), channel=channel, strategy=strategy)
    stored, mapped = observed(engine, Record(tmp_path), channel=channel, strategy=strategy)
    assert torch.equal(held.vector, stored.vector)
    assert held.rounds == stored.rounds
    for one, other in zip(in_memory, mapped, strict=True):
        assert torch.equal(one.sent, other.sent)
        assert torch.equal(one.delivery.mean, other.delivery.mean)
        assert one.delivery.clients == other.delivery.clients
        for update, read in zip(one.delivery.updates, other.delivery.updates, strict=True):
            assert isinstance(read, StoredUpdate)
            assert (update.client, update.samples) == (read.client, read.samples)
            assert torch.equal(update.delta, read.delta)


@pytest.mark.parametrize("channel", ["plain", "plain(dropout=0.3)", "ideal", "secure"])
@pytest.mark.parametrize("strategy", ["fedavg", "scaffold"])
def test_numbers_do_not_depend_on_where_updates_wait(engine, monkeypatch, channel, strategy):
    expected, _ = observed(engine, Record(), channel=channel, strategy=strategy)
    monkeypatch.setattr(federations, "IN_MEMORY", 0)
    monkeypatch.setattr(federations, "IN_TRANSIT", 1)
    with Engine(2) as two:
        spooled, _ = observed(two, Record(), channel=channel, strategy=strategy)
    assert torch.equal(spooled.vector, expected.vector)
    assert spooled.rounds == expected.rounds


def test_updates_reach_the_disk_in_pieces_and_other_processes_as_a_name(engine, tmp_path, monkeypatch):
    model = make_plain_model()
    size = 4 * Layout.of(model).size
    monkeypatch.setattr(federations, "IN_TRANSIT", 10 * size)
    pieces = []
    add = RowWriter.add
    monkeypatch.setattr(RowWriter, "add", lambda self, rows: (pieces.append(rows.nbytes), add(self, rows)))
    _, rounds = observed(engine, Record(tmp_path), sizes=MANY, model=model)
    assert sum(pieces) == 2 * len(MANY) * size
    assert max(pieces) <= 10 * size
    assert len(pickle.dumps(rounds)) < 0.1 * sum(pieces)


@pytest.mark.parametrize("channel", ["plain", "plain(dropout=0.3)"])
def test_a_plan_without_single_updates_keeps_their_mean(engine, tmp_path, channel):
    model = make_plain_model()
    federation = Federation(model, make_split(), RECIPE, engine=engine, channel=CHANNELS.make(channel))
    seen = []
    for name, every in (("all", True), ("mean", False)):
        record = Record(tmp_path / name)
        plan = Plan(rounds=1, observe=(0,), observe_updates=every)
        federation.run(read_vector(model), plan, record=record)
        seen.append(record.observed(0).delivery)
    assert seen[0].updates is not None
    assert seen[1].updates is None
    assert torch.equal(seen[0].mean, seen[1].mean)
    assert not list((tmp_path / "mean").glob("*updates*"))


def the_setting(*attacks, clients=5, rounds=2):
    return make_setting({
        "data": {"clients": clients, "members": 40, "nonmembers": 20, "auxiliary": 20, "test": 20},
        "training": {"rounds": rounds, "local_test": 0, "lr": 0.1},
        "audit": {
            "attacks": attacks, "defences": (), "observe": 2, "central": False, "curvature": 0, "shadows": 0,
        },
    })  # fmt: skip


def audited(folder, *attacks):
    results = audit(
        the_setting(*attacks),
        dataset=Dataset("stripes", make_images(100)),
        model=make_plain_model(),
        out=folder,
        workers=1,
        quiet=True,
    )
    return timeless(results.findings)


@pytest.mark.parametrize(
    ("attacks", "rounds", "updates"),
    [(("loss-threshold",), 0, 0), (("mandrake", "saturated-head"), 0, 0), (("label-counts",), 2, 2)],
)
def test_a_run_keeps_what_one_of_its_attacks_reads(tmp_path, attacks, rounds, updates):
    audited(tmp_path, *attacks)
    assert len(list(tmp_path.rglob("round-*-updates.*"))) == updates
    assert len(list(tmp_path.rglob("round-????.*"))) == rounds


def test_where_only_sums_are_read_nobody_gets_single_updates(tmp_path):
    experiment = prepare(the_setting(), Dataset("stripes", make_images(100)), make_plain_model())
    folder, variant = RunFolder(tmp_path, "x"), Variant("fedavg", "none")
    with Engine(1) as engine, Progress(quiet=True) as progress:
        case = train_target(
            experiment, folder, engine, progress, variant, [AggregateAccess, QueryAccess]
        ).case
    assert len(grant(case, AggregateAccess).access.rounds) == 2
    with pytest.raises(CannotRun, match="of round 1 the sum was kept, and no single update"):
        grant(case, UpdateAccess)


def test_what_one_adversary_writes_into_mapped_updates_reaches_no_other(tmp_path):
    experiment = prepare(the_setting(), Dataset("stripes", make_images(100)), make_plain_model())
    folder, variant = RunFolder(tmp_path, "x"), Variant("fedavg", "none")
    with Engine(1) as engine, Progress(quiet=True) as progress:
        case = train_target(experiment, folder, engine, progress, variant, [UpdateAccess]).case
    before = [update.delta.clone() for update in grant(case, UpdateAccess).access.rounds[0].updates]
    assert any(delta.abs().sum() > 0 for delta in before)
    vandal = grant(case, UpdateAccess).access
    for update in vandal.rounds[0].updates:
        update.delta.zero_()
    assert all(update.delta.abs().sum() == 0 for update in vandal.rounds[0].updates)
    updates = grant(case, UpdateAccess).access.rounds[0].updates
    assert all(torch.equal(update.delta, delta) for update, delta in zip(updates, before, strict=True))


def truncated(path):
    path.write_bytes(path.read_bytes()[:-5])


def scrambled(path):
    path.write_bytes(b"\xff" * 200)


def flipped(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 16
    path.write_bytes(content)


def renamed(path):
    """Another program's file of the same kind."""
    from safetensors.torch import save_file

    save_file({"other": torch.zeros(3)}, path)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("round-0000.safetensors", Path.unlink),
        ("round-0000.safetensors", truncated),
        ("round-0001.safetensors", renamed),
        ("round-0000-updates.safetensors", Path.unlink),
        ("round-0000-updates.safetensors", truncated),
        ("round-0000-updates.safetensors", scrambled),
        ("round-0001-updates.safetensors", renamed),
        ("round-0001-updates.safetensors", flipped),
        ("latest.safetensors", truncated),
        ("latest.safetensors", renamed),
    ],
)
def test_the_remedy_for_a_damaged_record_works_and_gives_the_same_numbers(tmp_path, file, damage):
    expected = audited(tmp_path / "run", "label-counts")
    damage(tmp_path / "run" / "work" / "none" / file)
    for kept in (tmp_path / "run" / "work" / "none").glob("label-counts*.json"):
        kept.unlink()
    with pytest.raises(Fault, match=f"{file} is damaged .*; delete the folder") as fault:
        audited(tmp_path / "run", "label-counts")
    folder = re.search(r"delete the folder (\S+): its training begins anew", str(fault.value))[1]
    assert Path(folder) == tmp_path / "run" / "work" / "none"
    assert "delete it" not in str(fault.value)
    shutil.rmtree(folder)
    assert audited(tmp_path / "run", "label-counts") == expected


def test_a_client_that_remembers_is_part_of_the_record(engine, tmp_path):
    observed(engine, Record(tmp_path), strategy="scaffold")
    truncated(next(tmp_path.glob("client-0001-*.safetensors")))
    with pytest.raises(Fault, match=r"client-0001-0002\.safetensors is damaged .*; delete the folder"):
        Record(tmp_path).load()


def test_a_round_that_was_interrupted_is_done_again_over_its_remains(engine, tmp_path):
    expected, _ = observed(engine, Record(tmp_path / "whole"))
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / ".round-0000-updates.safetensors.partial").write_bytes(b"x" * 10_000)
    resumed, _ = observed(engine, Record(broken))
    assert torch.equal(resumed.vector, expected.vector)
    files = {path.name for path in (tmp_path / "whole").iterdir()}
    assert {path.name for path in broken.iterdir()} == files


def test_the_notes_of_a_round_name_what_was_delivered_and_not_who_dropped_out(engine, tmp_path):
    observed(engine, Record(tmp_path), channel="plain(dropout=0.4)")
    with safe_open(tmp_path / "round-0000.safetensors", framework="np") as file:
        notes = json.loads(file.metadata()["round"])
    assert len(notes["updates"]) == len(notes["clients"]) == 3

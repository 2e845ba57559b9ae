"""What was made of the data: told in the terminal, kept in the run and shown on the page."""

import json
import re
import sys

import numpy as np
import pytest
from conftest import make_images, make_plain_model
from report_runs import a_row, a_run, text_of

from glasshouse import Dataset, Setting, Split, cli
from glasshouse.auditing.division import division_of
from glasshouse.auditing.experiment import prepare
from glasshouse.data.split import split
from glasshouse.errors import BadInput
from glasshouse.exhibits import Division
from glasshouse.report import write_report
from glasshouse.verdicts.division import division_lines

WARDS = np.repeat(["ward 2", "ward 10", "ward 1"], [100, 60, 40])


def wards(**more) -> Dataset:
    return Dataset("wards", make_images(200), clients=WARDS, **more)


def prepared(dataset, **tables):
    return prepare(Setting(**tables), dataset, make_plain_model())


def test_the_terminal_says_clients_sizes_hold_outs_and_classes():
    parts = split(wards())
    clients, held_out, classes = division_lines(division_of(parts))
    assert clients == (
        "3 clients as the data name them, with 20 (ward 1) to 50 (ward 2) training images, "
        "median 30; 100 in all."
    )
    assert held_out == "Held out within each client: 40 non-members, 20 auxiliary images and 40 test images."
    counts = parts.images("members").label_counts().tolist()
    rarest, most = f"({min(counts)}.0%)", f"({max(counts)}.0%)"
    spread = rf"Their classes: from class . {re.escape(rarest)} to class . {re.escape(most)}; .*"
    assert re.fullmatch(spread, classes)
    assert classes.endswith("a client has 4 of the 4.")


def test_a_division_says_whether_each_seed_draws_another():
    assert prepared(wards()).division.redrawn
    marks = np.resize(["member", "non-member", "auxiliary", "test"], 200)
    assert not prepared(wards(parts=marks)).division.redrawn
    assert not prepared(split(wards())).division.redrawn  # drawn once, and handed over


@pytest.mark.parametrize(
    ("data", "asked", "says"),
    [
        (Dataset("d", make_images(200)), {}, "10 clients by iid, with 10 training images each; 100 in all."),
        (
            Dataset("d", make_images(200)),
            {"clients": 1},
            "1 client by iid, with 100 training images; 100 in all.",
        ),
        (Dataset("d", make_images(200)), {}, "Held out at random: 40 non-members"),
        (
            Dataset("d", make_images(200)),
            {"members": 50, "test": 50},
            "50 test images; 40 images are in no part.",
        ),
        (wards(test=make_images(30, seed=1)), {}, "tested on 30 official test images"),
        (wards(test=make_images(30, seed=1)), {"test": 10}, "official test images; 20 images are in no part"),
        (Dataset("d", make_images(200), users=np.arange(200) // 4), {}, "Held out by whole users: "),
        (wards(users=np.arange(200) // 4), {}, "Held out within each client, by whole users: "),
        (
            Dataset("d", make_images(200), clients=np.arange(200) // 20),
            {"holdout": "whole-clients"},
            "Held out as 5 whole clients of 10: 40 non-members, 20 auxiliary images and 40 test images.",
        ),
    ],
)
def test_the_lines_say_how_it_was_done(data, asked, says):
    assert says in " ".join(division_lines(division_of(split(data, **asked))))


def test_a_division_counts_what_every_client_has_in_every_part():
    data = wards()
    parts = split(data)
    told = division_of(parts)
    for holder, client in zip(told.holders, parts.clients, strict=True):
        assert holder.members == len(client)
        for part in ("nonmembers", "auxiliary", "test"):
            assert getattr(holder, part) == (WARDS[getattr(parts, part)] == holder.name).sum()
    for part, counts in told.labels.items():
        assert list(counts) == parts.images(part).label_counts().tolist()


def test_the_configuration_that_is_kept_says_what_was_made_and_reads_back():
    first = prepared(wards(), data={"nonmembers": 30})
    assert (first.setting.data.clients, first.setting.data.partition) == (3, "by-client")
    again = prepare(first.setting, wards(), make_plain_model())
    assert again.config() == first.config()
    assert all(map(np.array_equal, again.split.clients, first.split.clients))
    plain = prepared(Dataset("d", make_images(200)))
    assert (plain.setting.data.clients, plain.setting.data.partition) == (10, "iid")


def test_a_split_from_python_is_taken_as_it_is():
    pool = make_images(100)
    own = Split(
        pool, (np.arange(9), np.arange(9, 40)), np.arange(40, 60), np.arange(60, 80), np.arange(80, 100)
    )
    experiment = prepared(own)
    assert [len(client) for client in experiment.split.clients] == [9, 31]
    assert np.array_equal(experiment.split.nonmembers, own.nonmembers)
    assert division_lines(experiment.division)[1].startswith("Held out as the data say: 20 non-members")
    with pytest.raises(BadInput, match=r"data.members = 20, but the split says who holds what; leave it out"):
        prepared(own, data={"members": 20})


def test_the_auditor_knows_clients_by_their_names_and_whose_non_members_are():
    truth = prepared(wards()).truth
    assert truth.names == ("ward 1", "ward 2", "ward 10")
    assert np.array_equal(truth.origin[truth.holder >= 0], truth.holder[truth.holder >= 0])
    assert np.bincount(truth.origin[truth.holder < 0]).tolist() == [8, 20, 12]
    assert prepared(Dataset("d", make_images(200))).truth.names == ()
    whole = Dataset("d", make_images(200), clients=np.arange(200) // 20)
    truth = prepared(whole, data={"holdout": "whole-clients"}).truth
    assert np.array_equal(truth.origin, truth.holder)  # others come from no client that takes part


@pytest.mark.parametrize("channel", ["secure", "flower"])
def test_a_sum_of_one_client_is_refused_before_training(channel):
    with pytest.raises(BadInput, match=f"the channel '{channel}' sums the updates of at least 2 clients"):
        prepared(Dataset("d", make_images(200)), data={"clients": 1}, training={"channel": channel})
    alone = Dataset("d", make_images(200), clients=np.full(200, "only"))
    with pytest.raises(BadInput, match="1 of 1 takes part in a round"):
        prepared(alone, training={"channel": channel})


def page_with(folder, division):
    a_run(folder, [a_row()], full=False)
    (folder / "curves.json").write_text(json.dumps({"division": [division]}))
    return write_report(folder).read_text()


def test_the_page_shows_who_holds_what_and_escapes_their_names(tmp_path):
    data = Dataset("d", make_images(200), clients=np.repeat(["<b>bold</b>", "plain"], [150, 50]))
    page = page_with(tmp_path, division_of(split(data)).model_dump(mode="json"))
    text = text_of(page)
    assert "<b>bold" not in page
    assert "held out within each client" in text
    assert "2 (25 to 75 images)" in text
    assert "<b>bold</b> 0 75 30 15 30 4" in text
    assert "plain 1 25 10 5 10 4" in text


def test_many_clients_fold_away_and_the_page_says_how_many_it_leaves_out(tmp_path):
    made = split(Dataset("d", make_images(3000)), clients=1200)
    page = page_with(tmp_path, division_of(made).model_dump(mode="json"))
    assert "The first 1,000 of 1,200; curves.json has all of them." in page
    assert '<details class="long"><summary>What each client holds</summary>' in page


@pytest.mark.parametrize(
    "change", [{"holders": []}, {"labels": {}}, {"labels": {"members": [1, 2]}}, {"holders": [{"name": "x"}]}]
)
def test_a_division_that_is_none_is_refused(tmp_path, change):
    sound = division_of(split(wards())).model_dump(mode="json")
    Division.model_validate(sound)
    with pytest.raises(BadInput, match=r"curves\.json"):
        page_with(tmp_path, sound | change)


DOORS = {
    "ids of the wrong length": (
        {"client": np.arange(99)},
        "",
        "client of shape (99,) for 100 training images",
    ),
    "ids with NaN": ({"client": np.full(100, np.nan)}, "", "client ids of type float64, which may hold NaN"),
    "ids that are objects": ({"client": np.array([None] * 100)}, "", "client holds objects"),
    "an unknown part": ({"part": np.full(100, "train")}, "", "unknown part 'train' of image 0"),
    "a client that trains on nothing": (
        {"part": np.repeat(["member", "test"], 50)},
        "",
        "client '1' has 50 images, none of them marked member",
    ),
    "another number of clients": ({}, "clients = 3", "3 clients asked for, but the data name 2"),
    "another partition": ({}, "partition = 'iid'", "partition 'iid', but the data name 2 clients"),
    "an unknown way to hold out": ({}, "holdout = 'none'", "data.holdout = 'none' does not fit"),
    "no clients": ({}, "clients = 0", "data.clients = 0 does not fit"),
}


@pytest.mark.parametrize("what", DOORS)
def test_bad_clients_are_one_line_and_exit_code_2(monkeypatch, capsys, tmp_path, what):
    arrays, key, says = DOORS[what]
    images = make_images(100)
    good = {"x": images.x.numpy(), "y": images.y.numpy(), "client": np.repeat(["0", "1"], 50)}
    np.savez(tmp_path / "d.npz", **(good | arrays))
    (tmp_path / "c.toml").write_text(f"[data]\n{key}\n")
    words = ["audit", tmp_path / "c.toml", "--data", tmp_path / "d.npz", "--out", tmp_path / "run"]
    monkeypatch.setattr(sys, "argv", ["glasshouse", *map(str, words)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    out, err = capsys.readouterr()
    assert (stopped.value.code, out, err.count("\n")) == (2, "", 1)
    assert says in err

"""Folders of images whose clients stand in `clients.csv`."""

import numpy as np
import pytest
from PIL import Image

from glasshouse.data import pictures
from glasshouse.data.sources import load
from glasshouse.data.split import split
from glasshouse.errors import BadInput

FILES = [f"{label}/{number}.png" for label in ("cat", "dog") for number in range(8)]
CLIENTS = ["north", "south"] * 8


@pytest.fixture
def folder(tmp_path):
    """Sixteen pictures of two classes, each with pixels of its own."""
    place = tmp_path / "data" / "pets"
    for shade, file in enumerate(FILES):
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), shade, np.uint8)).save(place / file)
    return place


def table(rows, head="file,client"):
    return "\n".join([head, *(",".join(row) for row in rows), ""])


GOOD = list(zip(FILES, CLIENTS))


def test_the_clients_of_a_folder_are_those_of_its_table_in_whatever_order(folder):
    (folder / "clients.csv").write_text(table(GOOD[::-1]))
    data = load(str(folder))
    assert data.clients.tolist() == CLIENTS
    assert split(data).names == ("north", "south")


@pytest.mark.parametrize("prefix", ["", "pets/", "./pets/../pets/"])
def test_the_table_may_lie_beside_the_folder_and_name_files_as_seen_from_either(folder, prefix):
    (folder.parent / "clients.csv").write_text(table([(prefix + file, client) for file, client in GOOD]))
    assert load(str(folder)).clients.tolist() == CLIENTS


def test_a_table_as_a_spreadsheet_writes_it_is_read(folder):
    marks = ["member", "member", "member", "member", "non-member", "auxiliary", "test", "test"] * 2
    rows = [(f'"{file}"', client, mark) for (file, client), mark in zip(GOOD, marks)]
    text = "\N{ZERO WIDTH NO-BREAK SPACE}" + table(rows, "file, client ,part").replace("\n", "\r\n")
    (folder / "clients.csv").write_bytes(text.encode())
    parts = split(load(str(folder)))
    assert np.array_equal(parts.nonmembers, [4, 12])
    assert [client.tolist() for client in parts.clients] == [[0, 2, 8, 10], [1, 3, 9, 11]]


def test_official_test_pictures_need_no_client_and_may_have_a_row(folder, tmp_path):
    for part in ("train", "test"):
        for number, file in enumerate(FILES):
            (tmp_path / part / file).parent.mkdir(parents=True, exist_ok=True)
            shade = number + 20 * (part == "test")
            Image.fromarray(np.full((4, 4), shade, np.uint8)).save(tmp_path / part / file)
    rows = [(f"train/{file}", client) for file, client in GOOD] + [("test/cat/0.png", "")]
    (tmp_path / "clients.csv").write_text(table(rows))
    data = load(str(tmp_path))
    assert data.clients.tolist() == CLIENTS
    assert len(data.test) == 16


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (table([*GOOD, ("cat/9.png", "north")]), "line 18 names 'cat/9.png', which is no picture of"),
        (table([*GOOD, ("../../etc/passwd", "north")]), "which is no picture of"),
        (table(GOOD[:-2]), "no row for"),
        (table(GOOD[:-2]), "dog/6.png and 1 more"),
        (table([*GOOD, GOOD[3]]), "line 18 names 'cat/3.png' again"),
        (table([(FILES[0], ""), *GOOD[1:]]), "line 2 names no client"),
        (table([(FILES[0],), *GOOD[1:]]), "line 2 names no client"),
        (table(GOOD, "name,client"), "no column 'file'"),
        (table(GOOD, "file;client"), "no column 'file'"),
        ("", "no column 'file'"),
        (table([(*row, "train") for row in GOOD], "file,client,part"), "unknown part 'train' of image 0"),
        (table([(*GOOD[0], "test"), *GOOD[1:]], "file,client,part"), "line 3 names no part"),
    ],
)
def test_a_table_that_does_not_fit_its_folder_is_refused_before_a_picture_is_opened(
    folder, monkeypatch, text, says
):
    (folder / "clients.csv").write_text(text)
    monkeypatch.setattr(pictures, "opened", lambda files: pytest.fail("opened a picture"))
    with pytest.raises(BadInput) as refused:
        load(str(folder))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00f", b'file,client\ncat/0.png,"' + b"x" * 200_000])
def test_what_is_no_table_is_refused(folder, content):
    (folder / "clients.csv").write_bytes(content)
    with pytest.raises(BadInput, match="not a table"):
        load(str(folder))

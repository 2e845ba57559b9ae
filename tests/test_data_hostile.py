"""Data that lie about their size, wait for ever or are no data: refused in one line, before they do harm."""

import io
import os
import struct
import sys
import types
import zipfile
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from test_data_sources import GOOD, refusal, save

from glasshouse.data import formats
from glasshouse.data.dataset import Dataset
from glasshouse.data.formats import read_bytes, read_hmnist
from glasshouse.data.images import Images
from glasshouse.data.sources import as_dataset, load
from glasshouse.errors import BadInput

X, Y = np.zeros((6, 5, 5), np.uint8), np.arange(6) % 2


def npy(shape, descr="|u1", body=b"", version=1) -> bytes:
    """An .npy file whose header says what it is told to."""
    file = io.BytesIO()
    write = getattr(np.lib.format, f"write_array_header_{version}_0")
    write(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue() + body


def archive(path, **members: bytes):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (npy((2**40, 28, 28)), "its header promises 862,017,116,176,384 bytes"),
        (npy((2**40, 28, 28), version=2), "its header promises 862,017,116,176,384 bytes"),
        (npy((10**18, 10**18)), "its header promises"),
        (npy((-6, 5, 5)), "its header promises -150 bytes"),
        (
            npy((6, 5, 5), body=bytes(149)),
            "promises 150 bytes for shape (6, 5, 5), and 149 follow",
        ),
        (npy((6, 5, 5), body=bytes(151)), "and 151 follow"),
        (npy((6,), "|O", b"\x80\x04cos\nsystem\n."), "x holds objects, and loading them could run code"),
        (b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 200, "cannot be read"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\x7f" + b"-" * 9999, "cannot be read"),
        (b"\x93NUMPY\x03\x00\x10\x00" + b"-" * 9999, "for tables, not for arrays"),
        (b"hello", "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_an_array_whose_header_lies_is_refused_before_there_is_room_for_it(tmp_path, x, says):
    assert says in refusal(archive(tmp_path / "d.npz", x=x, y=npy((6,), "<i8", Y.tobytes())))


def test_an_archive_that_unpacks_to_more_than_the_memory_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "available_memory", lambda: 100)
    np.savez_compressed(tmp_path / "d.npz", **GOOD)
    assert "give fewer or smaller images" in refusal(tmp_path / "d.npz")


def test_images_that_would_not_fit_as_floats_are_refused_before_they_are_made():
    many = np.broadcast_to(np.uint8(0), (10**7, 1000, 1000))
    with pytest.raises(BadInput, match=r"37,252.9 GiB in memory, with .* GiB available"):
        as_dataset("mine", (many, np.arange(10**7) % 2), "mine")


def test_arrays_beside_those_that_are_used_do_no_harm(tmp_path):
    np.savez(tmp_path / "d.npz", **GOOD, notes=np.array([None]))
    assert len(load(str(tmp_path / "d.npz")).train) == len(GOOD["x"])


def test_an_array_in_another_order_is_the_same(tmp_path):
    np.savez(tmp_path / "c.npz", **GOOD)
    np.savez(tmp_path / "f.npz", **GOOD | {"x": np.asfortranarray(GOOD["x"])})
    assert torch.equal(load(str(tmp_path / "c.npz")).train.x, load(str(tmp_path / "f.npz")).train.x)


def test_a_cut_archive_is_refused_wherever_it_was_cut(tmp_path):
    np.savez(tmp_path / "d.npz", **GOOD)
    whole = (tmp_path / "d.npz").read_bytes()
    for length in (*range(0, len(whole), 50), len(whole) - 1):
        (tmp_path / "d.npz").write_bytes(whole[:length])
        assert "cannot be read" in refusal(tmp_path / "d.npz")


def test_hmnist_whose_header_lies_is_refused(tmp_path):
    (tmp_path / "x.npy").write_bytes(npy((2**40, 28, 28, 3)))
    with pytest.raises(BadInput, match=r"not a whole NumPy file .its header promises"):
        read_hmnist(tmp_path / "x.npy", tmp_path / "none.csv")


def test_a_gzip_file_is_unpacked_only_so_far(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "UNPACKED", 1000)
    packer = zlib.compressobj(wbits=formats.GZIP)
    (tmp_path / "x.gz").write_bytes(packer.compress(bytes(10**6)) + packer.flush())
    assert len(read_bytes(tmp_path / "x.gz")) == 1000


@pytest.fixture
def folder(tmp_path):
    save(tmp_path / "cat" / "a.png")
    save(tmp_path / "dog" / "b.png")
    return tmp_path


def bomb(side: int) -> bytes:
    """A PNG file of a few bytes that says it unpacks to side x side pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [10_000, 100_000])
def test_a_picture_that_unpacks_to_a_hundred_million_pixels_is_refused(folder, side, recwarn):
    (folder / "cat" / "c.png").write_bytes(bomb(side))
    assert "could be decompression bomb" in refusal(folder)
    assert not recwarn


def test_a_pipe_a_device_or_a_folder_that_is_named_like_a_picture_is_refused(folder):
    os.mkfifo(folder / "cat" / "c.png")
    assert "c.png is a pipe; give a file" in refusal(folder)
    (folder / "cat" / "c.png").unlink()
    (folder / "cat" / "c.png").symlink_to("/dev/zero")
    assert "c.png is a device; give a file" in refusal(folder)
    (folder / "cat" / "c.png").unlink()
    (folder / "cat" / "c.png").mkdir()
    assert "c.png is a folder; give a file" in refusal(folder)


def test_links_that_lead_in_circles_are_not_followed(folder):
    (folder / "cat" / "up").symlink_to(folder)
    assert len(load(str(folder)).train) == 2
    (folder / "cat" / "c.png").symlink_to(folder / "cat" / "c.png")
    assert "Too many levels of symbolic links" in refusal(folder)


def test_a_file_in_a_format_that_starts_programs_is_no_picture_whatever_its_name(folder, monkeypatch):
    from PIL import EpsImagePlugin

    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: started.append(1))
    page = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 3\n%%EndComments\nshowpage\n%%EOF"
    (folder / "cat" / "c.png").write_bytes(page)
    assert "not a sound image" in refusal(folder)
    assert not started


def test_class_names_with_newlines_stay_on_one_line(tmp_path):
    save(tmp_path / "a\nb" / "a.png")
    assert "a\\nb" in refusal(tmp_path / "a\nb")
    save(tmp_path / "c" / "b.png")
    assert load(str(tmp_path)).train.names == ("a\nb", "c")


def test_every_cut_of_a_picture_is_refused_or_read(folder):
    whole = (folder / "cat" / "a.png").read_bytes()
    for length in range(0, len(whole) - 20, 3):
        (folder / "cat" / "a.png").write_bytes(whole[:length])
        assert "not a sound image" in refusal(folder)


class Wordless(Exception):
    def __str__(self):
        raise RuntimeError


class NoArray:
    def __array__(self, *_, **__):
        raise RuntimeError("no array\nat all")


def a_meta_tensor():
    return torch.zeros(6, 5, 5, device="meta")


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (lambda: sys.exit(0), "failed with SystemExit: 0"),
        (lambda: exec("raise error", {"error": Wordless()}), "failed with Wordless;"),
        (lambda: (pair for pair in ()), "returned a generator"),
        (lambda: ((x for x in X), Y), "pixels of type object"),
        (lambda: (NoArray(), Y), "not an array (no array)"),
        (lambda: (a_meta_tensor(), Y), "not an array"),
        (lambda: (torch.zeros(6, 5, 5).to_sparse(), Y), "not an array"),
        (lambda: (torch.zeros(6, 5, 5, dtype=torch.bfloat16), Y), "not an array"),
        (lambda: (X, Y > 0), "labels of type bool"),
        (lambda: (X, -1 - Y), "class; a classifier needs"),
        (lambda: (X, [2**70] * 6), "labels of type object"),
        (lambda: (X, np.full(6, 2**64 - 1, np.uint64)), "class; a classifier needs"),
        (lambda: (X, np.full(6, 2**63 - 1)), "for only 6 images"),
        (lambda: (X / np.nan, Y), "NaN or infinite pixels"),
        (lambda: Images(1, 2, 3), "give two dense tensors"),
        (lambda: Images(torch.zeros(6, 1, 5, 5), torch.from_numpy(Y), "2"), "give two dense tensors"),
        (lambda: Images(torch.zeros(6, 1, 5, 5), torch.from_numpy(Y), 2**70), "for only 6 images"),
        (lambda: Images(a_meta_tensor()[:, None], torch.from_numpy(Y), 2), "give two dense tensors"),
        (lambda: Dataset("mine", 3), "returned a Dataset"),
    ],
)
def test_a_users_function_that_gives_up_or_gives_no_images_is_refused(monkeypatch, returned, says):
    module = types.ModuleType("my_data")
    module.get = returned
    monkeypatch.setitem(sys.modules, "my_data", module)
    assert says in refusal("my_data:get")


@pytest.mark.parametrize("spec", ["~nobody/x", "~nobody/x.npz", "a\0b", "a\0b.npz", "a\nb", "\udce9"])
def test_names_that_no_file_can_have_are_refused(spec):
    assert refusal(spec).isprintable()


def test_pictures_of_every_format_are_still_read(tmp_path):
    for number, suffix in enumerate(("bmp", "gif", "jpeg", "pgm", "png", "tiff", "webp")):
        save(tmp_path / str(number) / f"a.{suffix}")
    Image.new("P", (4, 3)).save(tmp_path / "0" / "p.png")
    assert len(load(str(tmp_path)).train) == 8

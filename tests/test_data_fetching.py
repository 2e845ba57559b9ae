import contextlib
import functools
import gzip
import hashlib
import http.server
import io
import tarfile
import threading
from pathlib import Path

import pytest

from glasshouse.data import fetching
from glasshouse.data.fetching import PUBLISHED, Published
from glasshouse.data.registry import DATA
from glasshouse.data.sources import fetch
from glasshouse.errors import BadInput


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def tar(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSHOUSE_DATA", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "home"


@pytest.fixture
def web(tmp_path):
    """A folder served on this machine, its address, and the requests it got."""
    folder = tmp_path / "web"
    folder.mkdir()
    requests = []

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words):
            requests.append(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    with contextlib.closing(server.socket):
        yield folder, f"http://127.0.0.1:{server.server_address[1]}", requests
        server.shutdown()
        thread.join()


def publish(monkeypatch, name: str, downloads: dict[str, str], contents: dict[str, str]) -> None:
    monkeypatch.setattr(fetching, "PUBLISHED", {**PUBLISHED, name: Published(downloads, contents)})


def files_under(folder: Path) -> set[str]:
    return {str(place.relative_to(folder)) for place in folder.rglob("*") if place.is_file()}


@pytest.fixture
def small_mnist(web, monkeypatch):
    folder, address, requests = web
    packed = {f"{part}.gz": gzip.compress(part.encode() * 100) for part in ("images", "labels")}
    for file, data in packed.items():
        (folder / file).write_bytes(data)
    publish(
        monkeypatch,
        "mnist",
        {f"{address}/{file}": md5(data) for file, data in packed.items()},
        {file: md5(gzip.decompress(data)) for file, data in packed.items()},
    )
    return folder, requests


def test_files_are_downloaded_once_and_then_checked(home, small_mnist):
    _, requests = small_mnist
    assert fetch("mnist") == home / "mnist"
    assert files_under(home) == {"mnist/images.gz", "mnist/labels.gz"}
    assert fetch("mnist") == home / "mnist"
    assert len(requests) == 2


def test_only_missing_files_are_downloaded(home, small_mnist):
    _, requests = small_mnist
    (home / "mnist").mkdir(parents=True)
    # Packed in another way, with the same contents.
    (home / "mnist" / "images.gz").write_bytes(gzip.compress(b"images" * 100, 1, mtime=5))
    fetch("mnist")
    assert requests == ["/labels.gz"]


def test_a_file_with_a_wrong_checksum_is_named_with_the_remedy(home, small_mnist):
    fetch("mnist")
    (home / "mnist" / "images.gz").write_bytes(gzip.compress(b"other"))
    with pytest.raises(
        BadInput, match=r"images\.gz: its contents have md5 .* delete it and run `glasshouse data mnist`"
    ):
        fetch("mnist")


def test_a_download_with_a_wrong_checksum_is_refused_and_not_kept(home, small_mnist):
    folder, _ = small_mnist
    (folder / "labels.gz").write_bytes(b"altered on the way")
    with pytest.raises(BadInput, match="cannot be downloaded") as caught:
        fetch("mnist")
    assert "\n" not in str(caught.value)
    assert files_under(home) == {"mnist/images.gz"}


def test_an_archive_is_unpacked_and_not_kept(home, web, monkeypatch):
    folder, address, _ = web
    files = {"cifar/one.bin": b"1", "cifar/names.txt": b"cat"}
    (folder / "c.tar.gz").write_bytes(tar(files))
    sums = {f"{address}/c.tar.gz": md5((folder / "c.tar.gz").read_bytes())}
    publish(monkeypatch, "cifar10", sums, {"cifar/one.bin": md5(b"1")})
    assert fetch("cifar10") == home / "cifar10"
    assert files_under(home) == {"cifar10/cifar/one.bin", "cifar10/cifar/names.txt"}


def test_an_archive_cannot_write_outside_its_folder(home, web, monkeypatch):
    folder, address, _ = web
    (folder / "c.tar.gz").write_bytes(tar({"../../../outside.bin": b"1"}))
    sums = {f"{address}/c.tar.gz": md5((folder / "c.tar.gz").read_bytes())}
    publish(monkeypatch, "cifar10", sums, {"outside.bin": md5(b"1")})
    with pytest.raises(BadInput, match="cannot be unpacked"):
        fetch("cifar10")
    assert not list(home.parent.rglob("outside.bin"))


@pytest.mark.parametrize("file", ["absent.gz", "gone"])
def test_a_failed_download_is_one_line(home, web, monkeypatch, file):
    _, address, _ = web
    address = address if file == "absent.gz" else "http://127.0.0.1:9"
    publish(monkeypatch, "mnist", {f"{address}/{file}": md5(b"")}, {file: md5(b"")})
    with pytest.raises(BadInput, match="cannot be downloaded") as caught:
        fetch("mnist")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["hmnist", "tiny-imagenet-20"])
def test_a_set_without_an_address_says_what_to_put_where(home, name):
    with pytest.raises(BadInput, match="cannot be downloaded") as caught:
        fetch(name)
    assert str(home / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GLASSHOUSE_DATA", str(tmp_path / "file"))
    with pytest.raises(BadInput, match="GLASSHOUSE_DATA"):
        fetch("mnist")


def test_the_embedded_digits_are_always_there(home):
    assert (fetch("digits") / "digits.csv.gz").is_file()


def test_an_unknown_set_is_refused_with_a_hint(home):
    with pytest.raises(BadInput, match="did you mean 'cifar10'"):
        fetch("cifar-10")


def test_without_a_chosen_folder_the_sets_lie_in_the_users_cache(monkeypatch):
    monkeypatch.delenv("GLASSHOUSE_DATA", raising=False)
    assert fetching.home().name == "glasshouse"


def test_every_set_can_be_had_in_some_way():
    assert set(DATA) == {"digits", *PUBLISHED, *fetching.BY_HAND}
    for published in PUBLISHED.values():
        assert all(
            len(value) == 32 for value in [*published.downloads.values(), *published.contents.values()]
        )

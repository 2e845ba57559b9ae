"""Where the named sets lie on disk, and how to get and check them."""

import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from glasshouse.data.formats import first_line, read_bytes
from glasshouse.data.registry import DATA
from glasshouse.errors import BadInput
from glasshouse.registry import unknown


@dataclass(frozen=True)
class Published:
    """A set that can be downloaded.

    `downloads` maps addresses to the md5 of what lies there; `contents` maps the files under the set's
    folder to the md5 of their bytes, unpacked where they are gzipped.
    """

    downloads: Mapping[str, str]
    contents: Mapping[str, str]


def home() -> Path:
    """The folder that holds the named sets: GLASSHOUSE_DATA, or the user's cache folder."""
    if chosen := os.environ.get("GLASSHOUSE_DATA"):
        return Path(chosen).expanduser()
    import pooch  # only here, as importing it takes long

    return Path(pooch.os_cache("glasshouse"))


def folder_of(name: str, files: Sequence[str]) -> Path:
    """The folder of the set `name`, which must hold `files`, each as named or without its .gz."""
    folder = home() / name
    remedy = f"{BY_HAND[name]} there" if name in BY_HAND else f"run `glasshouse data {name}`"
    for file in files:
        if not (folder / file).exists() and not (folder / file.removesuffix(".gz")).exists():
            raise BadInput(
                f"data set {name!r}: {file} not found under {folder}; {remedy} or set "
                f"GLASSHOUSE_DATA to the folder that holds {name}/"
            )
    return folder


def fetch(name: str) -> Path:
    """Get the named set if it is not there, check it and return its folder."""
    if name not in DATA.places:
        raise BadInput(unknown(DATA.kind, name, DATA))
    folder = home() / name
    try:
        if name in PUBLISHED:
            _download(name, folder)
            _verify(name, folder)
        elif name in BY_HAND:
            DATA.load(name)()  # no sums are published, but loading finds whatever is missing or broken
        else:
            import sklearn

            return Path(sklearn.__file__).parent / "datasets" / "data"
    except OSError as error:
        raise BadInput(
            f"data set {name!r}: {error}; choose a folder you can write with GLASSHOUSE_DATA"
        ) from error
    return folder


def _download(name: str, folder: Path) -> None:
    published = PUBLISHED[name]
    if all((folder / file).exists() for file in published.contents):
        return
    folder.mkdir(parents=True, exist_ok=True)
    # Beside its goal, so that a file appears there only when it is whole.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as workplace:
        for address, md5 in published.downloads.items():
            file = address.rpartition("/")[2]
            if file in published.contents and (folder / file).exists():
                continue
            _retrieve(name, address, md5, Path(workplace))
            if file in published.contents:
                (Path(workplace) / file).replace(folder / file)
            else:
                _unpack(Path(workplace) / file, folder)


def _retrieve(name: str, address: str, md5: str, into: Path) -> None:
    import pooch

    try:
        pooch.retrieve(address, known_hash=f"md5:{md5}", fname=address.rpartition("/")[2], path=into)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"data set {name!r}: {address} cannot be downloaded ({first_line(error)}); try again later, "
            f"or put the file's contents in {into.parent} yourself"
        ) from error


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar file and move each file to its place under `folder`."""
    unpacked = archive.parent / "unpacked"
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(unpacked, filter="data")
    except tarfile.TarError as error:
        raise BadInput(
            f"{archive.name} cannot be unpacked ({first_line(error)}); unpack it yourself in {folder}"
        ) from error
    for file in sorted(place for place in unpacked.rglob("*") if place.is_file()):
        goal = folder / file.relative_to(unpacked)
        if not goal.exists():
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(file, goal)


def _verify(name: str, folder: Path) -> None:
    for file, expected in PUBLISHED[name].contents.items():
        md5 = hashlib.md5(read_bytes(folder / file), usedforsecurity=False).hexdigest()
        if md5 != expected:
            raise BadInput(
                f"{folder / file}: its contents have md5 {md5}, not the published {expected}; "
                f"delete it and run `glasshouse data {name}` again"
            )


# The sums of the downloads are those that the authors publish; MNIST's are those of the original files.
PUBLISHED: Mapping[str, Published] = {
    "mnist": Published(
        {
            f"https://ossci-datasets.s3.amazonaws.com/mnist/{file}": md5
            for file, md5 in {
                "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
                "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
                "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
            }.items()
        },
        {
            "train-images-idx3-ubyte.gz": "6bbc9ace898e44ae57da46a324031adb",
            "train-labels-idx1-ubyte.gz": "a25bea736e30d166cdddb491f175f624",
            "t10k-images-idx3-ubyte.gz": "2646ac647ad5339dbf082846283269ea",
            "t10k-labels-idx1-ubyte.gz": "27ae3e4e09519cfbb04c329615203637",
        },
    ),
    "fashion-mnist": Published(
        {
            f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{file}": md5
            for file, md5 in {
                "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
                "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
                "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
            }.items()
        },
        {
            "train-images-idx3-ubyte.gz": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "train-labels-idx1-ubyte.gz": "9018921c3c673c538a1fc5bad174d6f9",
            "t10k-images-idx3-ubyte.gz": "8181f5470baa50b63fa0f6fddb340f0a",
            "t10k-labels-idx1-ubyte.gz": "15d484375f8d13e6eb1aabb0c3f46965",
        },
    ),
    "cifar10": Published(
        {"https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        {
            "cifar-10-batches-bin/data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
            "cifar-10-batches-bin/data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
            "cifar-10-batches-bin/data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
            "cifar-10-batches-bin/data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
            "cifar-10-batches-bin/data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
            "cifar-10-batches-bin/test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
        },
    ),
    "cifar100": Published(
        {"https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
        {
            "cifar-100-binary/train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
            "cifar-100-binary/test.bin": "4499cfba6c016c1be1438163640a0898",
        },
    ),
}

BY_HAND: Mapping[str, str] = {
    "hmnist": (
        "it cannot be downloaded: make it from HAM10000 (doi.org/10.7910/DVN/DBW86T) and put "
        "hmnist_28_28_RGB.npy (uint8, N x 28 x 28 x 3) and labels.csv (lesion_id, label and dx of each image)"
    ),
    "tiny-imagenet-20": (
        "it cannot be downloaded: take twenty classes of Tiny-ImageNet and put wnids.txt, words.txt, train/ "
        "and val/ with val_annotations.txt"
    ),
}

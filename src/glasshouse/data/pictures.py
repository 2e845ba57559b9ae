"""Read picture files with Pillow: folders of images by class, and Tiny-ImageNet's layout."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from glasshouse.data.clients_table import read_clients
from glasshouse.data.dataset import Dataset, from_pool, unit_pixels
from glasshouse.data.formats import first_line
from glasshouse.errors import BadInput
from glasshouse.reading import check_regular

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What a file may be, whatever its name says: for others Pillow may start programs, as for PostScript."""

GREY_MODES = frozenset({"1", "L", "LA", "La"})
DEEP_MODES = frozenset({"I", "F", "I;16", "I;16L", "I;16B", "I;16N"})


def read_folder(folder: Path, *, every_class: bool = True) -> Dataset:
    """A data set from `folder/CLASS/picture`, or from the same under `train/` and `test/` or `val/`.

    Classes are numbered in the order of their names. Grey pictures become RGB if any picture is RGB. Who
    holds them may stand in a `clients.csv`. Folders may be empty where not `every_class` needs an image.
    """
    train, test = folder, None
    if subfolders(folder / "train"):
        train = folder / "train"
        test = next((folder / name for name in ("test", "val") if subfolders(folder / name)), None)
    names = tuple(place.name for place in subfolders(train))
    if not names:
        raise BadInput(f"{folder}: no folders of images; put the images of each class in {folder}/CLASS/")
    files, labels = pictures_by_class(train, names, every_class=every_class)
    if not files:
        raise BadInput(f"{folder}: no images; put those of each class in {folder}/CLASS/")
    test_files: list[Path] = []
    test_labels: list[int] = []
    if test is not None:
        test_files, test_labels = pictures_by_class(test, names, every_class=False)
    clients, parts = read_clients(folder, files, test_files)
    return from_pool(
        folder.resolve().name,
        stack(opened(files + test_files)),
        np.array(labels + test_labels),
        source=str(folder),
        tests=len(test_files),
        every_class=every_class,
        names=names,
        clients=clients,
        parts=parts,
    )


def read_tiny_imagenet(folder: Path) -> Dataset:
    """A data set in Tiny-ImageNet's layout; its validation images are the test images.

    That is `wnids.txt`, `train/WNID/images/*.JPEG`, `val/images/*.JPEG`, `val/val_annotations.txt` and
    `words.txt`. Classes are numbered as in `wnids.txt`.
    """
    wnids = tuple((folder / "wnids.txt").read_text().split())
    words = dict(_table(folder / "words.txt"))
    files, labels = pictures_by_class(folder / "train", wnids)
    train_size = len(files)
    for picture, wnid in _table(folder / "val" / "val_annotations.txt"):
        if wnid not in wnids:
            raise BadInput(f"{folder}/val/val_annotations.txt: class {wnid} of {picture} is not in wnids.txt")
        files.append(folder / "val" / "images" / picture)
        labels.append(wnids.index(wnid))
    return from_pool(
        folder.name,
        stack(opened(files)),
        np.array(labels),
        source=str(folder),
        tests=len(files) - train_size,
        names=tuple(words.get(wnid, wnid).split(",")[0] for wnid in wnids),
    )


def stack(pictures: Iterable[tuple[str, Image.Image]]) -> Tensor:
    """One or more named pictures of one size as (N, C, H, W) float32: RGB if any of them is in colour."""
    arrays: list[np.ndarray] = []
    for name, picture in pictures:
        pixels = _pixels(name, picture)
        if arrays and pixels.shape[:2] != arrays[0].shape[:2]:
            height, width = arrays[0].shape[:2]
            raise BadInput(
                f"{name}: {picture.width}x{picture.height} pixels, the first image has {width}x{height}; "
                "bring all images to one size"
            )
        arrays.append(pixels)
    if any(pixels.ndim == 3 for pixels in arrays):
        return unit_pixels([_colour(pixels)[None] for pixels in arrays])
    return unit_pixels([pixels[None, None] for pixels in arrays])


def opened(files: Sequence[Path]) -> Iterator[tuple[str, Image.Image]]:
    """Each file's path and its picture, with a clear error for a file that is not one."""
    for file in files:
        try:
            check_regular(file)
            with warnings.catch_warnings():
                warnings.simplefilter("error", Image.DecompressionBombWarning)
                with Image.open(file, formats=FORMATS) as picture:
                    picture.load()
        except BadInput:
            raise
        except FileNotFoundError as error:
            raise BadInput(f"{file}: no such image; put it there or take it off the list") from error
        except Exception as error:  # over a damaged file Pillow raises errors of many kinds
            raise BadInput(f"{file}: not a sound image ({first_line(error)}); remove or repair it") from error
        yield str(file), picture


def pictures_by_class(
    folder: Path, names: Sequence[str], *, every_class: bool = True
) -> tuple[list[Path], list[int]]:
    """The picture files of each class folder, at any depth and in order, and their class numbers."""
    unknown = [place.name for place in subfolders(folder) if place.name not in names]
    if unknown:
        raise BadInput(f"{folder}/{unknown[0]}: no training class has this name; remove or rename the folder")
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        pictures = [file for file in sorted((folder / name).rglob("*")) if _is_picture(file)]
        if every_class and not pictures:
            raise BadInput(
                f"{folder / name}: no images; put the images of this class there, or remove the folder"
            )
        files += pictures
        labels += [label] * len(pictures)
    return files, labels


def subfolders(folder: Path) -> list[Path]:
    """The folders in `folder`, hidden ones left out, by name; none if it does not exist."""
    if not folder.is_dir():
        return []
    return sorted(place for place in folder.iterdir() if place.is_dir() and not place.name.startswith("."))


def _is_picture(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".")


def _pixels(name: str, picture: Image.Image) -> np.ndarray:
    if picture.mode in DEEP_MODES:
        raise BadInput(
            f"{name}: pixels of more than 8 bits (mode {picture.mode}); save it with 8 bits a channel"
        )
    return np.asarray(picture.convert("L" if picture.mode in GREY_MODES else "RGB"))


def _colour(pixels: np.ndarray) -> np.ndarray:
    return pixels.transpose(2, 0, 1) if pixels.ndim == 3 else np.stack([pixels] * 3)


def _table(path: Path) -> list[tuple[str, str]]:
    """The first two tab-separated columns of a text file."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    short = [number for number, row in enumerate(rows) if len(row) < 2]
    if short:
        raise BadInput(
            f"{path}: line {short[0] + 1} has no tab; expected a name, a tab and what it stands for"
        )
    return [(row[0], row[1]) for row in rows]

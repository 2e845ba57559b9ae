"""The data sets that Glasshouse knows by name; the first line of each says what it holds."""

import numpy as np

from glasshouse.data.dataset import Dataset, from_pool, unit_pixels
from glasshouse.data.fetching import folder_of
from glasshouse.data.formats import check_labels, read_cifar, read_hmnist, read_idx
from glasshouse.data.pictures import read_tiny_imagenet
from glasshouse.data.stratify import stratified
from glasshouse.errors import BadInput

HMNIST_TEST_SHARE = 0.2
HMNIST_SEED = 0  # fixed, as the division belongs to the set and not to an experiment
FASHION = "T-shirt/top, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag, ankle boot"


def digits() -> Dataset:
    """1,797 handwritten digits, 8x8 grey, 10 classes; embedded (scikit-learn), CC BY 4.0."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x, names = unit_pixels([bunch.images[:, None] / 16]), tuple("0123456789")
    return from_pool("digits", x, bunch.target, source="digits", names=names)


def mnist() -> Dataset:
    """60,000 + 10,000 handwritten digits, 28x28 grey, 10 classes; CC BY-SA 3.0 as usually stated."""
    return _idx_set("mnist", ", ".join("0123456789"))


def fashion_mnist() -> Dataset:
    """60,000 + 10,000 articles of clothing, 28x28 grey, 10 classes; MIT."""
    return _idx_set("fashion-mnist", FASHION)


def cifar10() -> Dataset:
    """50,000 + 10,000 objects and animals, 32x32 RGB, 10 classes; no licence stated."""
    batches = [f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6)]
    files = [*batches, "cifar-10-batches-bin/test_batch.bin"]
    return _cifar_set("cifar10", files, 1, 10, "cifar-10-batches-bin/batches.meta.txt")


def cifar100() -> Dataset:
    """50,000 + 10,000 objects and animals, 32x32 RGB, 100 (fine) classes; no licence stated."""
    files = ["cifar-100-binary/train.bin", "cifar-100-binary/test.bin"]
    return _cifar_set("cifar100", files, 2, 100, "cifar-100-binary/fine_label_names.txt")


def hmnist() -> Dataset:
    """10,015 skin lesions (HAM10000), 28x28 RGB, 7 classes; by lesion, about 20% test; CC BY-NC 4.0.

    The authors publish no division. Here the test images are those of a fixed choice of whole lesions, with
    the classes in proportion; `users` names the lesion of each training image.
    """
    folder = folder_of("hmnist", ["hmnist_28_28_RGB.npy", "labels.csv"])
    x, y, lesions, names = read_hmnist(folder / "hmnist_28_28_RGB.npy", folder / "labels.csv")
    size = round(HMNIST_TEST_SHARE * len(y))
    (test,) = stratified(y, [size], np.random.default_rng(HMNIST_SEED), lesions)
    train = np.setdiff1d(np.arange(len(y)), test)
    return from_pool(
        "hmnist",
        unit_pixels([x[train], x[test]]),
        np.concatenate([y[train], y[test]]),
        source=str(folder),
        tests=len(test),
        names=names,
        users=lesions[train],
    )


def tiny_imagenet_20() -> Dataset:
    """10,000 + 1,000 photographs, 64x64 RGB, 20 classes of Tiny-ImageNet; ImageNet research terms."""
    files = ["wnids.txt", "words.txt", "train", "val/images", "val/val_annotations.txt"]
    return read_tiny_imagenet(folder_of("tiny-imagenet-20", files))


def _idx_set(name: str, classes: str) -> Dataset:
    names, parts = tuple(classes.split(", ")), ("train", "t10k")
    files = [f"{part}-{kind}-ubyte.gz" for part in parts for kind in ("images-idx3", "labels-idx1")]
    folder = folder_of(name, files)
    images, labels = [], []
    for images_file, labels_file in zip(files[::2], files[1::2]):
        pair = [folder / file for file in (images_file, labels_file)]
        pixels, listed = (path if path.exists() else path.with_suffix("") for path in pair)
        x, y = read_idx(pixels, 3), read_idx(listed, 1)
        if len(x) != len(y):
            raise BadInput(
                f"{listed}: {len(y)} labels for the {len(x)} images of {pixels.name}; get both again"
            )
        check_labels(listed, y, len(names))
        images.append(x[:, None])
        labels.append(y)
    return from_pool(
        name,
        unit_pixels(images),
        np.concatenate(labels),
        source=str(folder),
        tests=len(labels[1]),
        names=names,
    )


def _cifar_set(name: str, files: list[str], label_bytes: int, classes: int, names_file: str) -> Dataset:
    """The last of `files` holds the test images."""
    folder = folder_of(name, files)
    parts = [read_cifar(folder / file, label_bytes, classes) for file in files]
    has_names = (folder / names_file).exists()
    names = tuple((folder / names_file).read_text(encoding="utf-8").split()) if has_names else ()
    return from_pool(
        name,
        unit_pixels([x for x, _ in parts]),
        np.concatenate([y for _, y in parts]),
        source=str(folder),
        tests=len(parts[-1][1]),
        classes=classes,
        names=names,
    )

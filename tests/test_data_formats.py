import gzip
import struct

import numpy as np
import pytest
import torch

from glasshouse.data.sources import load
from glasshouse.errors import BadInput

IDX_FILES = [
    f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
]


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def zipped(content: bytes) -> bytes:
    """The same bytes whenever it is called: they are part of the names of tests."""
    return gzip.compress(content, mtime=0)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSHOUSE_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def tiny_mnist(home):
    """Twenty training and ten test images of 4x5 pixels, in MNIST's files."""
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(0, 256, (20, 4, 5)),
        np.arange(20) % 10,
        rng.integers(0, 256, (10, 4, 5)),
        np.arange(10),
    ]
    folder = home / "mnist"
    folder.mkdir()
    for name, array in zip(IDX_FILES, arrays):
        (folder / name).write_bytes(zipped(idx(array)))
    return folder, arrays


@pytest.fixture
def tiny_cifar10(home):
    """Two images of each class in the five training files together, ten test images."""
    rng = np.random.default_rng(0)
    folder = home / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    pixels = rng.integers(0, 256, (30, 3072), dtype=np.uint8)
    labels = (np.arange(30) % 10).astype(np.uint8)
    records = np.concatenate([labels[:, None], pixels], axis=1)
    for number in range(5):
        (folder / f"data_batch_{number + 1}.bin").write_bytes(records[4 * number : 4 * number + 4].tobytes())
    (folder / "test_batch.bin").write_bytes(records[20:].tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(f"class{label}" for label in range(10)) + "\n\n")
    return folder, pixels, labels


@pytest.fixture
def tiny_hmnist(home):
    """Two hundred images of ninety lesions in two classes."""
    rng = np.random.default_rng(0)
    folder = home / "hmnist"
    folder.mkdir()
    lesions = rng.integers(0, 90, 200)
    pixels = rng.integers(0, 256, (200, 28, 28, 3), dtype=np.uint8)
    np.save(folder / "hmnist_28_28_RGB.npy", pixels)
    rows = [f"IMG_{row},HAM_{lesion},{lesion % 2},{'ab'[lesion % 2]},1" for row, lesion in enumerate(lesions)]
    (folder / "labels.csv").write_text("\n".join(["image_id,lesion_id,label,dx,from_original_jpeg", *rows]))
    return folder, pixels, lesions


def refusal(spec: str) -> str:
    """The single line with which loading fails."""
    with pytest.raises(BadInput) as caught:
        load(spec)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_idx_files_give_the_pixels_and_labels_written_to_them(tiny_mnist):
    _, (x, y, x_test, y_test) = tiny_mnist
    data = load("mnist")
    assert data.train.shape == (1, 4, 5)
    assert torch.equal(data.train.x[:, 0], torch.from_numpy(x).float() / 255)
    assert torch.equal(data.test.x[:, 0], torch.from_numpy(x_test).float() / 255)
    assert data.train.y.tolist() == y.tolist()
    assert data.test.y.tolist() == y_test.tolist()
    assert data.train.x.dtype == torch.float32
    assert data.train.y.dtype == torch.int64


def test_idx_files_may_be_unzipped(tiny_mnist):
    folder, arrays = tiny_mnist
    (folder / IDX_FILES[0]).unlink()
    (folder / IDX_FILES[0].removesuffix(".gz")).write_bytes(idx(arrays[0]))
    assert len(load("mnist").train) == 20


def test_loaded_train_and_test_images_share_one_piece_of_memory(tiny_mnist):
    data = load("mnist")
    assert data.pool.x.data_ptr() == data.train.x.data_ptr()
    assert torch.equal(data.pool.x, torch.cat([data.train.x, data.test.x]))


@pytest.mark.parametrize("file", IDX_FILES)
def test_a_cut_short_idx_file_is_named_with_its_sizes(tiny_mnist, file):
    folder, arrays = tiny_mnist
    whole = idx(arrays[IDX_FILES.index(file)])
    (folder / file).write_bytes(zipped(whole[:-3]))
    assert f"{file}: {len(whole) - 3} bytes found, {len(whole)} expected" in refusal("mnist")


def test_a_cut_short_gzip_file_is_named_with_its_sizes(tiny_mnist):
    folder, arrays = tiny_mnist
    packed = (folder / IDX_FILES[0]).read_bytes()
    (folder / IDX_FILES[0]).write_bytes(packed[: len(packed) // 2])
    said = refusal("mnist")
    assert f"{len(idx(arrays[0]))} expected by its header" in said
    assert "cut short" in said


@pytest.mark.parametrize(
    ("contents", "says"),
    [
        (b"", "starts with nothing, not the idx magic number 00000803"),
        (b"no gzip file", "not a sound gzip file"),
        (zipped(idx(np.zeros(20)))[:-1] + b"x", "not a sound gzip file"),
        (zipped(idx(np.zeros(20))), "starts with 00000801, not the idx magic number 00000803"),
        (zipped(b"\0\0\x08\x03\0\0"), "6 bytes found, 16 expected"),
        (zipped(idx(np.zeros((20, 4, 5))) + b"x"), "too long"),
        (zipped(idx(np.zeros((19, 4, 5)))), "20 labels for the 19 images"),
        (zipped(b"\0\0\x08\x03" + b"\xff" * 12), "expected by its header"),
    ],
)
def test_a_broken_idx_file_is_refused(tiny_mnist, contents, says):
    folder, _ = tiny_mnist
    (folder / IDX_FILES[0]).write_bytes(contents)
    assert says in refusal("mnist")


def test_a_label_byte_out_of_range_is_named(tiny_mnist):
    folder, (_, y, _, _) = tiny_mnist
    (folder / IDX_FILES[1]).write_bytes(zipped(idx(np.where(np.arange(20) == 7, 10, y))))
    assert "train-labels-idx1-ubyte.gz: label 10 of image 7 is out of range" in refusal("mnist")


def test_a_class_without_training_images_is_named(tiny_mnist):
    folder, (_, y, _, _) = tiny_mnist
    (folder / IDX_FILES[1]).write_bytes(zipped(idx(np.minimum(y, 8))))
    assert "class 9 has no image" in refusal("mnist")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "cifar100"])
def test_a_set_that_is_not_there_says_how_to_get_it(home, name):
    said = refusal(name)
    assert f"not found under {home / name}" in said
    assert f"`glasshouse data {name}`" in said
    assert "GLASSHOUSE_DATA" in said


@pytest.mark.parametrize("name", ["hmnist", "tiny-imagenet-20"])
def test_a_set_without_an_address_says_which_files_to_put_where(home, name):
    said = refusal(name)
    assert f"not found under {home / name}" in said
    assert "labels.csv" in said or "wnids.txt" in said


def test_cifar_records_give_the_pixels_and_labels_written_to_them(tiny_cifar10):
    _, pixels, labels = tiny_cifar10
    data = load("cifar10")
    assert (len(data.train), len(data.test), data.train.shape) == (20, 10, (3, 32, 32))
    x = torch.from_numpy(pixels).reshape(-1, 3, 32, 32).float() / 255
    assert torch.equal(data.pool.x, x)
    assert data.pool.y.tolist() == labels.tolist()
    assert data.train.names[:2] == ("class0", "class1")


def test_cifar100_labels_are_the_fine_ones(home):
    folder = home / "cifar100" / "cifar-100-binary"
    folder.mkdir(parents=True)
    fine = np.arange(100, dtype=np.uint8)
    records = np.zeros((100, 3074), np.uint8)
    records[:, 0], records[:, 1] = fine % 20, fine
    for part in ("train", "test"):
        (folder / f"{part}.bin").write_bytes(records.tobytes())
    data = load("cifar100")
    assert data.train.y.tolist() == fine.tolist()
    assert data.train.classes == 100


@pytest.mark.parametrize("length", [0, 1, 3072, 4 * 3073 - 1])
def test_a_cut_short_cifar_file_is_named_with_its_size(tiny_cifar10, length):
    folder, _, _ = tiny_cifar10
    (folder / "data_batch_3.bin").write_bytes((folder / "data_batch_3.bin").read_bytes()[:length])
    said = refusal("cifar10")
    assert f"data_batch_3.bin: {length} bytes found, expected a multiple of 3073" in said


def test_a_cifar_label_out_of_range_is_named(tiny_cifar10):
    folder, _, _ = tiny_cifar10
    records = bytearray((folder / "test_batch.bin").read_bytes())
    records[3073] = 255
    (folder / "test_batch.bin").write_bytes(records)
    assert "test_batch.bin: label 255 of image 1 is out of range; labels must lie in 0..9" in refusal(
        "cifar10"
    )


def test_hmnist_keeps_a_lesion_on_one_side_and_its_images_with_their_labels(tiny_hmnist):
    _, pixels, lesions = tiny_hmnist
    data = load("hmnist")
    trained = {int(user.removeprefix("HAM_")) for user in data.users}
    in_train = np.isin(lesions, list(trained))
    assert 30 <= len(data.test) <= 40
    assert len(data.train) == in_train.sum()
    assert len(data.test) == (~in_train).sum()
    expected = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    assert torch.equal(data.train.x, expected[in_train])
    assert torch.equal(data.test.x, expected[~in_train])
    assert data.test.y.tolist() == (lesions[~in_train] % 2).tolist()
    assert data.train.names == ("a", "b")


def test_hmnist_is_divided_the_same_way_each_time(tiny_hmnist):
    assert torch.equal(load("hmnist").test.x, load("hmnist").test.x)


def test_broken_hmnist_files_are_refused(tiny_hmnist):
    folder, pixels, _ = tiny_hmnist
    table = (folder / "labels.csv").read_text()
    (folder / "labels.csv").write_text(table.rpartition("\n")[0])
    assert "199 rows for 200 images" in refusal("hmnist")
    (folder / "labels.csv").write_text(table.replace("lesion_id", "lesion"))
    assert "columns lesion_id, label and dx" in refusal("hmnist")
    (folder / "labels.csv").write_text(table.replace(",0,a", ",zero,a", 1))
    assert "label 'zero'" in refusal("hmnist")
    (folder / "labels.csv").write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in refusal("hmnist")
    (folder / "labels.csv").write_text(table)
    whole = (folder / "hmnist_28_28_RGB.npy").read_bytes()
    (folder / "hmnist_28_28_RGB.npy").write_bytes(whole[:-5])
    assert "not a whole NumPy file" in refusal("hmnist")
    np.save(folder / "hmnist_28_28_RGB.npy", pixels[..., 0])
    assert "shape (N, H, W, 3)" in refusal("hmnist")
    np.save(folder / "hmnist_28_28_RGB.npy", np.array([{}]), allow_pickle=True)
    assert "not a whole NumPy file" in refusal("hmnist")


def test_digits_need_no_files_and_lie_between_zero_and_one(home):
    data = load("digits")
    assert (len(data.train), data.train.shape, data.train.classes) == (1797, (1, 8, 8), 10)
    assert data.test is None
    assert data.users is None
    assert data.train.x.min() == 0
    assert data.train.x.max() == 1
    # Sixteen grey levels above black, so every pixel is a whole number of sixteenths.
    assert torch.equal((data.train.x * 16).round(), data.train.x * 16)

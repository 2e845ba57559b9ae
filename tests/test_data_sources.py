import sys
import types

import numpy as np
import pytest
import torch
from PIL import Image

from glasshouse.data.dataset import Dataset
from glasshouse.data.images import Images
from glasshouse.data.registry import DATA
from glasshouse.data.sources import load
from glasshouse.errors import BadInput


def refusal(spec) -> str:
    """The single line with which loading fails."""
    with pytest.raises(BadInput) as caught:
        load(str(spec))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def save(path, mode: str = "L", size: tuple[int, int] = (4, 3), shade: int = 100) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, shade if mode == "L" else (shade, 0, 255)).save(path)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((6, 5, 4), None),
        ((6, 3, 5, 4), (0, 1, 2, 3)),
        ((6, 5, 4, 3), (0, 3, 1, 2)),
        ((6, 5, 4, 1), (0, 3, 1, 2)),
    ],
)
def test_an_npz_may_have_its_channels_first_last_or_not_at_all(tmp_path, shape, axes):
    x = pixels(*shape)
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(6) % 2)
    data = load(str(tmp_path / "mine.npz"))
    expected = x[:, None] if axes is None else x.transpose(axes)
    assert torch.equal(data.train.x, torch.from_numpy(expected / np.float32(255)))
    assert data.name == "mine"
    assert data.test is None


def test_an_npz_may_have_floats_test_images_and_users(tmp_path):
    x = np.random.default_rng(0).random((6, 5, 5))
    np.savez(tmp_path / "d.npz", x=x, y=[[0], [1], [2]] * 2, x_test=x[:2], y_test=[2, 2], user=list("aabbcc"))
    data = load(str(tmp_path / "d.npz"))
    assert torch.equal(data.train.x[:, 0], torch.from_numpy(x.astype(np.float32)))
    assert data.train.classes == data.test.classes == 3
    assert data.test.y.tolist() == [2, 2]
    assert data.users.tolist() == list("aabbcc")


GOOD = {"x": pixels(6, 5, 5), "y": np.arange(6) % 2}


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": GOOD["x"]}, "no array 'y' beside x"),
        (GOOD | {"x_test": GOOD["x"]}, "no array 'y_test'"),
        (GOOD | {"y": np.arange(5)}, "labels of shape (5,)"),
        (GOOD | {"y": np.arange(6) / 2}, "labels of type float64"),
        (GOOD | {"y": np.array([0, 1, 3, 0, 1, 3])}, "class 2 has no image"),
        (GOOD | {"y": np.array([0, 1, -1, 0, 1, 0])}, "label -1 of image 2 is out of range"),
        (GOOD | {"y": np.array([0, 1, 10**15, 0, 1, 0])}, "for only 6 images"),
        (GOOD | {"y": np.zeros(6, int)}, "at least two classes"),
        (GOOD | {"x": GOOD["x"].astype(int)}, "pixels of type int64"),
        (GOOD | {"x": GOOD["x"].astype(float)}, "floats must lie in [0, 1]"),
        (GOOD | {"x": np.full((6, 5, 5), np.nan)}, "image 0 has NaN or infinite pixels"),
        (GOOD | {"x": np.full((6, 5, 5), 1e300)}, "image 0 has NaN or infinite pixels"),
        (GOOD | {"x": pixels(6, 25)}, "images of shape (6, 25)"),
        (GOOD | {"x": pixels(6, 5, 5, 4)}, "one (grey) or three (RGB) channels"),
        ({"x": pixels(0, 5, 5), "y": np.zeros(0, int)}, "images of shape (0, 5, 5)"),
        (GOOD | {"x_test": pixels(2, 4, 4), "y_test": [0, 1]}, "differ in shape"),
        (GOOD | {"x_test": pixels(2, 5, 5), "y_test": [0, 2]}, "label 2 of image 1 is out of range"),
        (GOOD | {"user": np.arange(5)}, "user of shape (5,) for 6 training images"),
        (GOOD | {"y": np.array([None] * 6)}, "no objects"),
    ],
)
def test_an_npz_that_breaks_the_rules_is_refused(tmp_path, arrays, says):
    np.savez(tmp_path / "d.npz", **arrays)
    assert says in refusal(tmp_path / "d.npz")


def test_a_file_that_is_no_npz_is_refused(tmp_path):
    assert "no such file" in refusal(tmp_path / "d.npz")
    (tmp_path / "d.npz").write_text("hello")
    assert "cannot be read" in refusal(tmp_path / "d.npz")
    np.savez(tmp_path / "d.npz", **GOOD)
    (tmp_path / "d.npz").write_bytes((tmp_path / "d.npz").read_bytes()[:-40])
    assert "cannot be read" in refusal(tmp_path / "d.npz")
    with (tmp_path / "d.npz").open("wb") as file:
        np.save(file, GOOD["x"])
    assert "holds one array" in refusal(tmp_path / "d.npz")


def test_a_folder_of_grey_images_has_a_class_for_each_subfolder(tmp_path):
    for number, name in enumerate(
        ["cat/a.png", "cat/b.PNG", "dog/deep/c.png", "dog/._c.png", "dog/notes.txt"]
    ):
        if "._" in name or name.endswith("txt"):
            (tmp_path / name).write_text("no image")
        else:
            save(tmp_path / name, shade=10 * number)
    (tmp_path / ".hidden").mkdir()
    data = load(str(tmp_path))
    assert data.train.names == ("cat", "dog")
    assert data.train.y.tolist() == [0, 0, 1]
    assert data.train.shape == (1, 3, 4)
    assert torch.equal(data.train.x[:, 0, 0, 0], torch.tensor([0.0, 10.0, 20.0]) / 255)
    assert data.name == tmp_path.name


def test_grey_images_become_rgb_beside_an_rgb_image(tmp_path):
    save(tmp_path / "cat" / "a.png")
    save(tmp_path / "dog" / "b.png", "RGB")
    data = load(str(tmp_path))
    assert data.train.shape == (3, 3, 4)
    assert torch.equal(data.train.x[:, :, 0, 0] * 255, torch.tensor([[100.0, 100, 100], [100, 0, 255]]))


@pytest.mark.parametrize("name", ["test", "val"])
def test_a_folder_may_have_train_and_test_subfolders(tmp_path, name):
    for place in ("train/cat/a.png", "train/dog/b.png", f"{name}/dog/c.png"):
        save(tmp_path / place, "RGB" if "c.png" in place else "L")
    data = load(str(tmp_path))
    assert data.train.y.tolist() == [0, 1]
    assert data.test.y.tolist() == [1]
    assert data.train.shape == data.test.shape == (3, 3, 4)


def test_a_class_may_be_called_train(tmp_path):
    for name in ("train", "lorry"):
        save(tmp_path / name / "a.png")
    assert load(str(tmp_path)).train.names == ("lorry", "train")


def test_a_folder_that_breaks_the_rules_is_refused(tmp_path):
    assert "no folders of images" in refusal(tmp_path)
    save(tmp_path / "cat" / "a.png")
    assert "at least two classes" in refusal(tmp_path)
    (tmp_path / "dog").mkdir()
    assert f"{tmp_path / 'dog'}: no images" in refusal(tmp_path)
    save(tmp_path / "dog" / "b.png", size=(4, 4))
    assert f"{tmp_path / 'dog' / 'b.png'}: 4x4 pixels, the first image has 4x3" in refusal(tmp_path)
    (tmp_path / "dog" / "b.png").write_bytes((tmp_path / "cat" / "a.png").read_bytes()[:50])
    assert f"{tmp_path / 'dog' / 'b.png'}: not a sound image" in refusal(tmp_path)
    (tmp_path / "dog" / "b.png").write_text("no image")
    assert f"{tmp_path / 'dog' / 'b.png'}: not a sound image" in refusal(tmp_path)
    Image.fromarray(np.zeros((3, 4), np.uint16)).save(tmp_path / "dog" / "b.png")
    assert "more than 8 bits" in refusal(tmp_path)


def test_a_test_class_that_is_no_training_class_is_refused(tmp_path):
    for place in ("train/cat/a.png", "train/dog/b.png", "test/cow/c.png"):
        save(tmp_path / place)
    assert "test/cow: no training class has this name" in refusal(tmp_path)


@pytest.fixture
def tiny_imagenet(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSHOUSE_DATA", str(tmp_path))
    folder = tmp_path / "tiny-imagenet-20"
    for number, wnid in enumerate(["n2", "n1"]):
        save(folder / "train" / wnid / "images" / f"{wnid}_0.png", "RGB", shade=number)
        save(folder / "val" / "images" / f"val_{number}.png", shade=number)
    (folder / "wnids.txt").write_text("n2\nn1\n")
    (folder / "words.txt").write_text("n2\treel\nn1\trocking chair, rocker\n")
    (folder / "val" / "val_annotations.txt").write_text("val_1.png\tn1\t0\t0\nval_0.png\tn2\t0\t0\n")
    return folder


def test_tiny_imagenet_takes_its_test_labels_from_the_annotations(tiny_imagenet):
    data = load("tiny-imagenet-20")
    assert data.train.y.tolist() == [0, 1]
    assert data.train.names == ("reel", "rocking chair")
    assert data.test.y.tolist() == [1, 0]
    assert (data.test.x[:, :, 0, 0] * 255).tolist() == [[1, 1, 1], [0, 0, 0]]


def test_broken_tiny_imagenet_annotations_are_refused(tiny_imagenet):
    annotations = tiny_imagenet / "val" / "val_annotations.txt"
    annotations.write_text("val_9.png\tn1\n")
    assert "val_9.png: no such image" in refusal("tiny-imagenet-20")
    annotations.write_text("val_0.png\tn9\n")
    assert "class n9 of val_0.png is not in wnids.txt" in refusal("tiny-imagenet-20")
    annotations.write_text("val_0.png\n")
    assert "line 1 has no tab" in refusal("tiny-imagenet-20")


@pytest.fixture
def users_module(monkeypatch):
    module = types.ModuleType("my_data")
    monkeypatch.setitem(sys.modules, "my_data", module)
    return module


X, Y = pixels(6, 5, 5, 3), np.arange(6) % 2
IMAGES = Images(torch.rand(6, 3, 5, 5), torch.arange(6) % 2, 2)


@pytest.mark.parametrize(
    ("returned", "tests"),
    [
        ((X, Y), 0),
        ((torch.rand(6, 3, 5, 5), torch.arange(6) % 2), 0),
        ((X[:, ::-1], Y.tolist()), 0),
        (((X, Y), (X[:2], Y[:2])), 2),
        (IMAGES, 0),
        ((IMAGES, IMAGES[:3]), 3),
        (Dataset("mine", IMAGES, IMAGES[:3], np.arange(6)), 3),
    ],
)
def test_a_users_function_may_return_arrays_images_or_a_dataset(users_module, returned, tests):
    users_module.get = lambda: returned
    data = load("my_data:get")
    assert (len(data.train), data.train.shape, data.train.classes) == (6, (3, 5, 5), 2)
    assert (0 if data.test is None else len(data.test)) == tests


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (None, "returned a NoneType"),
        ((X, Y, X), "returned a tuple"),
        ((X, Y[:5]), "one label for each"),
        (([[1, 2], [3]], [0, 1]), "not an array"),
        (Images(torch.rand(6, 3, 5, 5) + 1, torch.arange(6) % 2, 2), "floats must lie in [0, 1]"),
        (Images(torch.rand(6, 3, 5, 5).double(), torch.arange(6) % 2, 2), "torch.float64"),
        ((IMAGES, Images(torch.rand(2, 3, 4, 4), torch.arange(2), 2)), "give both the same"),
    ],
)
def test_a_users_function_that_returns_something_else_is_refused(users_module, returned, says):
    users_module.get = lambda: returned
    assert says in refusal("my_data:get")


def test_a_users_function_that_fails_or_is_missing_is_named(users_module):
    def broken():
        raise KeyError("no such column\nat all")

    users_module.broken, users_module.number = broken, 3
    assert "'my_data:broken' failed with KeyError" in refusal("my_data:broken")
    assert "'my_data:number' is a int" in refusal("my_data:number")
    assert "my_data:absent" in refusal("my_data:absent")
    assert "no_such_package_here" in refusal("no_such_package_here:get")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("minst", "did you mean 'mnist'"),
        ("", "unknown data set ''"),
        (":", "unknown data set ':'"),
        ("no/such/folder", "not a folder"),
        ("no/such/file.npz", "no such file"),
    ],
)
def test_data_that_do_not_exist_are_refused_with_a_hint(spec, says):
    assert says in refusal(spec)


def test_every_named_set_says_its_size_shape_classes_and_licence():
    for name in DATA:
        first = DATA.load(name).__doc__.splitlines()[0]
        assert "classes" in first
        assert any(mark in first for mark in ("grey", "RGB"))


class FakeSplit(list):
    """As much of a Hugging Face Dataset as is used: rows, columns by name, features."""

    def __init__(self, rows, features):
        super().__init__(rows)
        self.features = features

    def __getitem__(self, key):
        return [row[key] for row in self] if isinstance(key, str) else super().__getitem__(key)


@pytest.fixture
def hub(monkeypatch):
    """A `datasets` module whose load_dataset returns what a test puts into `hub.sets`."""
    module = types.ModuleType("datasets")
    module.Image = type("Image", (), {})
    module.ClassLabel = type("ClassLabel", (), {"names": ["cat", "dog"]})
    module.Value = type("Value", (), {})
    module.sets = {}

    def load_dataset(path, name=None):
        if (path, name) not in module.sets:
            raise FileNotFoundError(f"{path} does not exist\non the hub")
        return module.sets[path, name]

    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    module.features = {"id": module.Value(), "img": module.Image(), "label": module.ClassLabel()}
    return module


def row(shade: int, label: int) -> dict:
    return {"id": 0, "img": Image.new("L", (4, 3), shade), "label": label}


def test_a_hub_set_gives_its_first_image_and_label_features(hub):
    train = FakeSplit([row(0, 0), row(255, 1)], hub.features)
    test = FakeSplit([row(51, 1)], hub.features)
    hub.sets["ann/pets", None] = {"train": train, "test": test}
    hub.sets["ann/pets", "small"] = {"train": train}
    data = load("hf:ann/pets")
    assert data.train.names == ("cat", "dog")
    assert data.train.y.tolist() == [0, 1]
    assert data.train.x[:, 0, 0, 0].tolist() == [0, 1]
    assert data.test.x.unique().tolist() == pytest.approx([0.2])
    assert load("hf:ann/pets:small").test is None


@pytest.mark.extras
def test_the_hub_library_itself_gives_what_lies_in_the_files_of_a_set(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="pip install 'glasshouse[hub]'")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    for part, name, shade in (("train", "cat", 0), ("train", "dog", 255), ("test", "dog", 51)):
        save(tmp_path / "ann" / "pets" / part / name / "0.png", shade=shade)
    data = load("hf:ann/pets")
    assert data.train.names == ("cat", "dog")
    assert data.train.y.tolist() == [0, 1]
    assert data.train.x[:, 0, 0, 0].tolist() == [0, 1]
    assert data.test.x.unique().tolist() == pytest.approx([0.2])


def test_a_hub_set_that_cannot_be_used_is_refused(hub):
    assert "cannot be loaded (ann/none does not exist)" in refusal("hf:ann/none")
    hub.sets["a", None] = {"dev": FakeSplit([row(0, 0)], hub.features)}
    assert "it must have one called train" in refusal("hf:a")
    hub.sets["a", None] = {"train": FakeSplit([row(0, 0)], {"id": hub.Value()})}
    assert "none of type Image" in refusal("hf:a")


def test_without_the_library_a_hub_set_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install 'glasshouse[hub]'" in refusal("hf:mnist")

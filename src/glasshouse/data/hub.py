"""Load a data set of the Hugging Face hub."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

from glasshouse.data.dataset import Dataset, from_pool
from glasshouse.data.formats import first_line
from glasshouse.data.pictures import stack
from glasshouse.errors import BadInput


def load_hub(name: str) -> Dataset:
    """The splits `train` and `test` (or `validation`) of the set `owner/name`, or `owner/name:configuration`.

    Its first Image feature gives the images, its first ClassLabel feature the labels.
    """
    source = f"data 'hf:{name}'"
    try:
        import datasets
    except ImportError as error:
        raise BadInput(
            f"{source} needs the Hugging Face library; install it with `pip install 'glasshouse[hub]'`"
        ) from error
    path, _, configuration = name.partition(":")
    try:
        splits = datasets.load_dataset(path, configuration or None)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{source} cannot be loaded ({first_line(error)}); check its name and the network"
        ) from error
    if "train" not in splits:
        raise BadInput(f"{source} has the splits {', '.join(splits)}; it must have one called train")
    test = next((splits[key] for key in ("test", "validation") if key in splits), None)
    parts = [splits["train"]] if test is None else [splits["train"], test]
    features = splits["train"].features
    image_key = _first(features, datasets.Image, source)
    label_key = _first(features, datasets.ClassLabel, source)
    names = tuple(features[label_key].names)
    return from_pool(
        f"hf:{name}",
        stack(_pictures(parts, image_key, source)),
        np.concatenate([np.asarray(part[label_key]) for part in parts]),
        source=source,
        tests=0 if test is None else len(test),
        names=names,
    )


def _first(features: Any, kind: type, source: str) -> str:
    for key, feature in features.items():
        if isinstance(feature, kind):
            return str(key)
    raise BadInput(
        f"{source} has the features {', '.join(features)}, none of type {kind.__name__}; "
        "choose a set of labelled images, or write a function that returns arrays"
    )


def _pictures(parts: list[Any], key: str, source: str) -> Iterator[tuple[str, Image.Image]]:
    for part in parts:
        for position, row in enumerate(part):
            yield f"{source}, image {position}", row[key]

"""The paper's numbers: Tables 1 and 2, in percent, as Acc_global and Acc_local.

The captions of both tables swap what the two mean against the text of section 4.2. The text is followed:
Acc_global is the global model's accuracy, Acc_local the mean over the participating devices' models.
"""

Pair = tuple[float, float]

DATA = ("mnist", "cifar10", "fashion-mnist")
"""The data sets in the order of the tables' columns."""

TABLE_1: dict[tuple[str, float], tuple[Pair, Pair, Pair]] = {
    ("upper-bound", 0.1): ((97.6, 97.3), (72.6, 71.9), (76.4, 74.2)),
    ("upper-bound", 1.0): ((97.9, 97.4), (75.6, 74.3), (79.3, 77.1)),
    ("fedavg", 0.1): ((37.1, 49.8), (21.1, 27.6), (25.4, 32.7)),
    ("fedavg", 1.0): ((42.1, 35.2), (31.8, 20.0), (38.6, 23.3)),
    ("fed-fsnet", 0.1): ((81.5, 85.1), (56.3, 58.9), (59.7, 61.4)),
    ("fed-fsnet", 1.0): ((88.2, 85.3), (61.7, 60.4), (66.4, 64.1)),
}
TABLE_2: dict[tuple[str, float], tuple[Pair, Pair, Pair]] = {
    ("fedavg", 0.1): TABLE_1["fedavg", 0.1],
    ("afl", 0.1): ((54.2, 59.7), (33.8, 42.2), (37.9, 49.8)),
    ("feddf", 0.1): ((74.5, 83.3), (49.7, 52.5), (51.7, 57.3)),
    ("fedgen", 0.1): ((75.1, 83.9), (53.1, 54.0), (52.8, 57.6)),
    ("fed-fsnet", 0.1): TABLE_1["fed-fsnet", 0.1],
}


def printed(data: str, row: str, fraction: float) -> tuple[float | None, float | None]:
    """The paper's Acc_global and Acc_local as shares, or nulls where it has none."""
    found = (TABLE_1 | TABLE_2).get((row, fraction))
    if found is None or data not in DATA:
        return None, None
    everywhere, local = found[DATA.index(data)]
    return everywhere / 100, local / 100

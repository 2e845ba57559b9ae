"""The numbers that the paper prints: attack accuracy, its Tables I (CIFAR-10) and II.

The column of batch size 256 is headed 258 in print.
"""

BATCHES = (8, 16, 32, 64, 128, 256)
COLUMNS = ("sample", *map(str, BATCHES))
TABLES = """
    cifar10        central     0.833  0.853  0.869  0.856  0.853  0.869  0.856
    cifar10        2-clients   0.721  0.751  0.755  0.757  0.753  0.753  0.751
    cifar10        5-clients   0.769  0.769  0.772  0.768  0.771  0.768  0.769
    cifar10        10-clients  0.786  0.765  0.765  0.796  0.753  0.769  0.786
    mnist          2-clients   0.838  -      -      0.846  -      -      -
    mnist          5-clients   0.840  -      -      0.847  -      -      -
    mnist          10-clients  0.849  -      -      0.852  -      -      -
    fashion-mnist  2-clients   0.747  -      -      0.807  -      -      -
    fashion-mnist  5-clients   0.749  -      -      0.805  -      -      -
    fashion-mnist  10-clients  0.787  -      -      0.798  -      -      -
    cifar100       2-clients   0.701  -      -      0.721  -      -      -
    cifar100       5-clients   0.757  -      -      0.769  -      -      -
    cifar100       10-clients  0.786  -      -      0.798  -      -      -
"""
ROWS = {
    (data, mode): dict(zip(COLUMNS, row)) for data, mode, *row in map(str.split, TABLES.split("\n")[1:-1])
}


def printed(data: str, mode: str, column: str) -> float | None:
    """The paper's attack accuracy; `column` is `sample` or a batch size."""
    accuracy = ROWS.get((data, mode), {}).get(column, "-")
    return None if accuracy == "-" else float(accuracy)


def mix(data: str) -> int:
    """Members to one non-member where the paper scores: all training images against all test images."""
    return 6 if data in ("mnist", "fashion-mnist") else 5

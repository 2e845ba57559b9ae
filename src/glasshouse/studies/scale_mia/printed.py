"""The numbers that the paper prints: its Tables 3 to 8."""

from collections.abc import Mapping

SMALL_BATCHES = (1, 2, 4, 8, 16, 64, 256)
BATCHES = (64, 128, 256, 512, 1024)
STARVED_BATCHES = (16, 32, 64, 128, 256)

HARDLY = 0.05
"""A change of the rate of less than five points is hardly one; the paper's own go up to 4.4."""

Numbers = tuple[tuple[float, ...], ...]
Printed = Mapping[str, float]
"""Printed numbers by metric."""


def _parsed(text: str) -> dict[tuple[str, ...], Numbers]:
    """Of each line the words before the first bar, and the numbers between bars."""
    lines = [line.split("|") for line in text.strip().splitlines()]
    return {tuple(key.split()): tuple(tuple(map(float, row.split())) for row in rows) for key, *rows in lines}


TABLE_3 = _parsed("""
    dlg                 psnr    | 23.6666
    dlg                 seconds | 117.3938
    inverting-gradients psnr    | 25.7889   16.8597   15.8345   13.3967
    inverting-gradients seconds | 86.8926   81.213    84.0691   84.291
    gradinversion       psnr    | 15.3059   14.7896   14.055    12.141    11.1029
    gradinversion       seconds | 324.8003  341.6113  348.2077  377.3184  462.2559
    fishing             psnr    | 19.1928   15.7852   18.0432   17.4613   16.3979   17.4164   18.9252
    fishing             seconds | 231.5289  285.4572  227.2872  285.8083  291.9067  285.006   285.4065
    robbing-the-fed     psnr    | 161.0681  160.4941  120.5119  130.6829  133.484   120.6985  84.3942
    robbing-the-fed     seconds | 0.1843    0.1877    0.1842    0.1843    0.186     0.1994    0.2321
    scale-mia           psnr    | 21.1686   22.4811   24.4638   26.5762   27.4551   27.9498   27.6572
    scale-mia           seconds | 0.008613  0.008978  0.01013   0.01074   0.01418   0.03591   0.1311
""")
"""PSNR in dB, and the seconds of a batch, at each of `SMALL_BATCHES`; shorter where it was not run."""

TABLE_3_NETWORKS = {"dlg": "cnn"}
"""The network that an attack of Table 3 meets, where it is not the ResNet."""

TABLE_4 = _parsed("""
    alexnet cifar10       | 0.9146 0.8383 0.7308 0.4974        | 29.0523 28.8489 28.5446 27.2409
    alexnet fashion-mnist | 0.8811 0.8025 0.6407 0.4193        | 31.0618 30.7896 30.2081 29.6587
    alexnet hmnist        | 0.9150 0.8691 0.7598 0.5313        | 28.7399 28.6298 27.5238 23.5482
    resnet  cifar10       | 0.9162 0.8408 0.7136 0.4869        | 27.9498 27.6572 26.7230 24.1208
    resnet  fashion-mnist | 0.9050 0.8289 0.6841 0.4469        | 26.8347 26.8591 26.5266 25.0946
    resnet  hmnist        | 0.8251 0.7792 0.6699 0.2416        | 22.8118 22.6694 22.6648 21.0613
    vit     cifar10       | 0.6753 0.6220 0.5291 0.2313        | 21.0227 21.0034 20.9522 20.7623
    vit     fashion-mnist | 0.8533 0.7739 0.6607 0.3958        | 24.6116 24.5138 24.3117 23.7067
    vit     hmnist        | 0.7520 0.7001 0.6006 0.4325        | 24.0052 24.0819 24.0337 23.1862
    cnn     cifar10       | 0.9522 0.9204 0.8464 0.7126 0.4947 | 26.1183 26.0259 25.8141 25.4831 25.0468
    cnn     fashion-mnist | 0.9493 0.9146 0.8229 0.6844 0.4775 | 38.4984 38.1457 37.7319 36.3472 34.1014
    cnn     hmnist        | 0.9639 0.8799 0.7783 0.7051 0.4164 | 33.4123 32.4604 31.6734 30.6976 21.9814
    vgg     cifar10       | 0.9572 0.9191 0.8463 0.7301 0.5032 | 28.2689 28.2333 27.7959 26.9002 25.0889
    vgg     fashion-mnist | 0.9426 0.8977 0.7954 0.6485 0.5630 | 29.5836 29.5582 29.1365 28.2728 28.9405
    vgg     hmnist        | 0.7734 0.7177 0.6855 0.6182 0.4956 | 24.6297 24.1802 24.6799 24.2040 24.2747
""")
"""Recovery rate and mean PSNR of the recovered in dB at each of `BATCHES`; the last only where k is 1024."""

TABLES_5_TO_8 = _parsed("""
    5 0.01 | 0.9808  0.9537  0.9090  0.8243  0.6873 | 25.1174  24.9192  24.8604  24.6688  24.3534
    5 0.03 | 0.9824  0.9569  0.9136  0.8316  0.6923 | 25.4396  25.2514  25.1489  24.9584  24.6209
    5 0.1  | 0.9809  0.9550  0.9143  0.8317  0.7018 | 27.9021  27.7217  27.6032  27.3481  26.8835
    5 1    | 0.9827  0.9586  0.9146  0.8383  0.7308 | 29.4134  29.1968  29.0523  28.8489  27.2409
    7 1    | 0.9818  0.9557  0.8984  0.8307  0.6914 | 25.1320  25.0041  24.8337  24.5928  24.1795
    7 2    | 0.9856  0.9701  0.9128  0.8568  0.7214 | 24.8238  24.8306  24.7875  24.5584  24.0819
    7 3    | 0.9753  0.9505  0.8971  0.8229  0.6615 | 25.2728  25.2147  25.1607  25.0155  24.5275
    7 10   | 0.9827  0.9586  0.9146  0.8313  0.7308 | 29.4134  29.1968  29.0523  28.8489  27.2409
""")
"""The same two at each of `STARVED_BATCHES`, by share of the training images (5, 6), or classes (7, 8)."""

STARVED_TARGET = ("alexnet", "cifar10")
AMOUNTS = {table: [float(amount) for name, amount in TABLES_5_TO_8 if int(name) == table] for table in (5, 7)}


def table_3(network: str, data: str, attack: str, batch: int) -> Printed:
    """PSNR, under the metric that is its like here, and seconds; `attack` may have options.

    iDLG shares DLG's row. The paper's mean is over what was recovered for closed forms: of the others it
    prints means below the threshold of recovery.
    """
    row = "dlg" if attack == "idlg" else attack.partition("(")[0]
    metric = "psnr-of-recovered" if row in ("scale-mia", "robbing-the-fed") else "psnr-of-returned"
    known = (network, data) == (TABLE_3_NETWORKS.get(row, "resnet"), "cifar10") and (row, "psnr") in TABLE_3
    rows = TABLE_3[row, "psnr"] + TABLE_3[row, "seconds"] if known else ()
    return _at(SMALL_BATCHES, batch, rows, (metric, "online-seconds"))


def table_4(network: str, data: str, batch: int) -> Printed:
    """Rate and PSNR."""
    return _at(BATCHES, batch, TABLE_4.get((network, data), ()))


def starved(network: str, data: str, table: int, amount: float, batch: int) -> Printed:
    """Rate and PSNR where the attacker has a share of the training images (5), or some classes (7)."""
    known = (network, data) == STARVED_TARGET
    return _at(STARVED_BATCHES, batch, TABLES_5_TO_8.get((str(table), f"{amount:g}"), ()) if known else ())


def _at(
    batches: tuple[int, ...],
    batch: int,
    rows: Numbers,
    metrics: tuple[str, ...] = ("recovery-rate", "psnr-of-recovered"),
) -> Printed:
    """The numbers of one column, as far as the paper has them."""
    place = batches.index(batch) if batch in batches else len(batches)
    return {metric: row[place] for metric, row in zip(metrics, rows) if place < len(row)}

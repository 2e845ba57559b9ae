"""What the paper prints: its methods, the numbers of its Tables 1 and 2, and what it leaves open.

Accuracies are in percent, as Acc_global and Acc_local. The captions of both tables swap what the two mean
against the text of section 4.2. The text is followed: Acc_global is the global model's accuracy, Acc_local
the mean over the models of the participating clients.
"""

from collections.abc import Sequence

Pair = tuple[float, float]

WORDS = {
    "upper-bound": "FedAvg, IID",
    "fedavg": "FedAvg",
    "afl": "AFL",
    "feddf": "FedDF",
    "fedgen": "FedGEN",
    "fed-fsnet": "Fed-FSNet",
    "fedprox": "FedProx",
    "scaffold": "SCAFFOLD",
    "fedavgm": "FedAvgM",
    "fedadam": "FedAdam",
    "fed-fsnet-features": "Fed-FSNet with features",
    "fedrecall": "FedRecall",
    "hidden-16": "Fed-FSNet, hidden model of 16 neurons",
    "mixture-single": "Fed-FSNet, one Gaussian for all clients",
    "beta-constant": "Fed-FSNet, beta stays 1",
    "target-class": "Fed-FSNet, mimics learned as their class",
    "target-global": "Fed-FSNet, mimics learned as the global model answers",
    "extractor-upper-bound": "FedAvg, IID, behind an extractor",
    "extractor-fedavg": "FedAvg behind an extractor",
    "extractor-fed-fsnet": "Fed-FSNet behind an extractor",
}
"""The methods as tables call them: the paper's six, then others, then changes of Fed-FSNet."""
RIVALS = ("fedavg", "afl", "feddf", "fedgen")
"""What the paper compares Fed-FSNet with, in the order of its Table 2."""
PAPERS = ("upper-bound", *RIVALS, "fed-fsnet")
"""The methods of its tables."""
OTHERS = ("fedprox", "scaffold", "fedavgm", "fedadam", "fed-fsnet-features", "fedrecall")
"""Strategies that it does not compare."""

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

CHOICES = {
    "networks": "the paper names none of its three. laptop: mlp (the 2NN of McMahan et al. 2017; 199,210 "
    "parameters) and lenet (two 5x5 convolutions of 10 and 20, 50 neurons; 21,840) on grey images, gn-cnn "
    "(three convolutions of 16, 32 and 64 with group norm, 64 neurons; 90,826) on CIFAR-10; paper: lenet and "
    "gn-cnn. Batch norm's statistics would be those of a device's two classes. Pixels in [0, 1] as they are; "
    "torch's first weights",
    "rounds": "50 of 10 epochs with batches of 60 and SGD at 0.01, as in the paper. smoke: 8 of 3 epochs, 20 "
    "devices, batches of 10, SGD at 0.05",
    "images": "2,000 training images, with all classes in proportion, are held out: FedDF distils on "
    "them, and an adversary may know them. The other 58,000 (CIFAR-10: 48,000) go to 100 clients, so a "
    "client has 580 (480) instead of 600 (500). 2,000 of the official test images are the non-members "
    "of membership attacks; accuracies are over the other 8,000",
    "Acc_global, Acc_local": "as the text of section 4.2 has them, not as the tables' captions: the global "
    "model, and the mean over models of the round's participants. On which images these are tested is not "
    "said. Three readings: participants' models on 500 test images of all classes; on those of these images "
    "whose class the participant holds, each class with the weight that it has in the participant's data; "
    "and the global model after the round on test images weighed in the same way. Late values are means over "
    "the last 5 rounds",
    "trained far enough": "a data set, network and fraction are judged where FedAvg on IID data reaches at "
    "least the Acc_global that the paper prints for Fed-FSNet on shards",
    "hidden model": "the class probabilities through one layer of 256 neurons (ReLU) to the pixels; 100 "
    "steps of Adam (0.001) a round on batches of 60; it goes on from where the last round left it",
    "mixture": "of normal pixels with the mean and variance of all pixels of a client; its "
    "coefficients, over the clients heard so far, are drawn anew for every batch and sum to 1",
    "mimic samples": "60 a round, six of each class, from probabilities that give the class between 0.8 "
    "and 0.99 and the others equal parts of the rest; none in the first round, as no client has "
    "reported its moments yet",
    "beta": "1, a tenth of it after every 10 rounds; it weighs the divergence of the uniform "
    "distribution from the answers to all 60 mimic samples, which is added to the loss of each batch",
    "extractor of section 4.5": "the paper says no more than that it is pre-trained and in the cloud server. "
    "Here the convolutions of a lenet, trained for 2 epochs of Adam (0.001) on all training images of "
    "another data set (MNIST for Fashion-MNIST, Fashion-MNIST for MNIST, CIFAR-100 for CIFAR-10; smoke: on "
    "the images that the server holds out), projected on the 64 main directions in which they vary on 10,000 "
    "of these, and brought to [0, 1] between their 10% and 90% quantiles. Devices have it too, or they could "
    "not learn from features: it is sent once, and not counted",
    "AFL": "alpha1 0.75, alpha2 0.01, alpha3 0.1; a client's valuation is the sum of its losses over "
    "the root of its number of images, refreshed when it trains. With f = 1.0 it is FedAvg, and has no "
    "cell",
    "FedDF": "on the held-out images without their labels: batches of 128, Adam 0.001 with cosine "
    "annealing, the best on a fifth of them kept. paper: up to 10,000 steps a round, 1,000 without "
    "improvement end it, as published; laptop: 400 and 100, fewer than the original's",
    "FedGEN": "noise 32, 256 neurons, 50 steps of batches of 32 a round, Adam 0.0003, weight decay "
    "0.01, weights of 10 that fall by 2% a round; the latent space is what the network's last layer is "
    "given",
    "other strategies": "FedProx mu 0.01; SCAFFOLD option II, server rate 1; FedAvgM momentum 0.9, "
    "server rate 1; FedAdam server rate 0.01, 0.9, 0.99, tau 0.001. None was tuned, nor was Fed-FSNet",
    "FedRecall": "this project's own: FedGEN's generator, with FedGEN's numbers, taught by the "
    "average's last layer alone, so that the server needs nobody's own model and clients report nothing",
    "pairs": "rows of a data set, network and seed share division, first weights and, where the "
    "strategy draws clients uniformly, participants; differences are taken seed by seed",
}
"""What the paper leaves open, and what is done here."""


def printed(data: str, method: str, fraction: float) -> tuple[float | None, float | None]:
    """The paper's Acc_global and Acc_local as shares, or nulls where it has none."""
    columns = (TABLE_1 | TABLE_2).get((method, fraction))
    if columns is None or data not in DATA:
        return None, None
    acc_global, acc_local = columns[DATA.index(data)]
    return acc_global / 100, acc_local / 100


def printed_gains(method: str, others: Sequence[str], column: int, fractions: Sequence[float]) -> str:
    """The least and the greatest difference that the paper prints, of a method and others, in all settings.

    >>> printed_gains("fed-fsnet", ["fedavg"], 0, (0.1,))
    '+0.343 to +0.444'
    """
    found = sorted(
        mine - yours
        for data in DATA
        for other in others
        for fraction in fractions
        if (mine := printed(data, method, fraction)[column]) is not None
        and (yours := printed(data, other, fraction)[column]) is not None
    )
    return f"{found[0]:+.3f} to {found[-1]:+.3f}"

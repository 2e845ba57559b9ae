"""What the paper leaves open, and what is done here instead of asking it."""

CHOICES = (
    (
        "networks",
        "the paper names none of its three. laptop: mlp (the 2NN of McMahan et al. 2017; 199,210 parameters, "
        "on CIFAR-10 656,810), and lenet (two 5x5 convolutions of 10 and 20, 50 neurons) on Fashion-MNIST as "
        "a check; paper: lenet, and stdcnn on CIFAR-10, which has no batch norm whose "
        "statistics two classes a device would spoil. Pixels in [0, 1] as they are; torch's first weights",
    ),
    (
        "rounds",
        "50 of 10 epochs with batches of 60 and SGD at 0.01, as in the paper; at laptop only 20 on CIFAR-10 "
        "and 15 for lenet on Fashion-MNIST. smoke: 8 of 3 epochs, 20 devices, batches of 10, SGD at 0.05",
    ),
    (
        "images",
        "2,000 training images, with all classes in proportion, are held out: FedDF distils on them, and an "
        "adversary may know them. The other 58,000 (CIFAR-10: 48,000) go to 100 devices, so a device has 580 "
        "(480) instead of 600 (500). 2,000 of the official test images are the non-members of membership "
        "attacks; accuracies are over the other 8,000",
    ),
    (
        "Acc_global, Acc_local",
        "as the text of section 4.2 has them, not as the tables' captions: the global model on the test "
        "images; the mean over the models that the round's participants trained, on 500 of them. Late values "
        "are means over the last 5 rounds",
    ),
    (
        "hidden model",
        "the class probabilities through one layer of 256 neurons (ReLU) to the pixels; 100 steps of Adam "
        "(0.001) a round on batches of 60; it goes on from where the last round left it",
    ),
    (
        "mixture",
        "of normal pixels with the mean and variance of all pixels of a device; its coefficients, over the "
        "devices heard so far, are drawn anew for every batch and sum to 1",
    ),
    (
        "mimic samples",
        "60 a round, six of each class, from probabilities that give the class between 0.8 and 0.99 and the "
        "others equal parts of the rest; none in the first round, as no device has told its moments yet",
    ),
    (
        "beta",
        "1, a tenth of it after every 10 rounds; it weighs the divergence of the uniform distribution from "
        "the answers to all 60 mimic samples, which is added to the loss of each batch",
    ),
    (
        "AFL",
        "alpha1 0.75, alpha2 0.01, alpha3 0.1; a device's valuation is the sum of its losses over the root "
        "of its number of images, refreshed when it trains. With f = 1.0 it is FedAvg, and has no cell",
    ),
    (
        "FedDF",
        "on the held-out images without their labels: batches of 128, Adam 0.001 with cosine annealing, the "
        "best on a fifth of them kept. paper: up to 10,000 steps a round, 1,000 without improvement end it, "
        "as published; laptop: 400 and 100, fewer than the original's",
    ),
    (
        "FedGEN",
        "noise 32, 256 neurons, 50 steps of batches of 32 a round, Adam 0.0003, weight decay 0.01, weights "
        "of 10 that fall by 2% a round; the latent space is what the network's last layer is given",
    ),
    (
        "other strategies",
        "FedProx mu 0.01; SCAFFOLD option II, server rate 1; FedAvgM momentum 0.9, server rate 1; FedAdam "
        "server rate 0.01, 0.9, 0.99, tau 0.001. None was tuned, nor was Fed-FSNet",
    ),
    (
        "FedRecall",
        "this project's own: FedGEN's generator, with FedGEN's numbers, taught by the average's last layer "
        "alone, so that the server needs nobody's own model and devices report nothing",
    ),
    (
        "pairs",
        "rows of a data set, network and seed share division, first weights and, where the strategy draws "
        "devices uniformly, participants; differences are taken seed by seed",
    ),
)
"""A matter, and the choice."""

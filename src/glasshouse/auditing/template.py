"""The commented configuration that `glasshouse init` writes; its values are those of the embedded example."""

TEMPLATE = """\
# A Glasshouse audit. Every key may be left out; `glasshouse list` shows the names that can be used.
seed = 0

[data]
# A named set, a folder with a subfolder per class, an .npz with x and y, hf:name, or package.module:function.
name = "digits"
# How many clients; with the partition "by-user", 0 means one for each user.
clients = 10
# "iid", "shards(per_client=2)", "dirichlet(alpha=0.5)" or "by-user".
partition = "dirichlet(alpha=0.5)"
# How many images the clients hold together, how many are kept out for the membership attacks, how many the
# adversaries may use as auxiliary data, how many the model is tested on. Left out, they share what there is.
members = 400
nonmembers = 500
auxiliary = 600
test = 297

[model]
# A name of the zoo or package.module:factory, and a .safetensors or .pt file to start from ("" for none).
name = "lenet"
weights = ""

[training]
strategy = "fedavg"
# How updates reach the server: "plain", "secure" (masked and quantised; only their sum arrives), "ideal" (the
# exact sum) or "flower" (Flower's SecAgg+). Blind crafting servers get theirs through "secure" at least.
channel = "plain"
rounds = 30
# The share of the clients that takes part in each round.
fraction = 0.5
# Stop early at this test accuracy:
# target_accuracy = 0.95
# How many test images each participant's own model is scored on (0: none).
local_test = 1000
epochs = 5
batch_size = 10
optimiser = "sgd"
lr = 0.1
momentum = 0.0
weight_decay = 0.0

[audit]
# Attacks that take several eps answer for each; the largest stands for the attack.
attacks = [
    "loss-threshold",
    "gap",
    "mia-bad",
    "lira",
    "rmia",
    "loss-trajectory",
    "source-inference",
    "fgsm(eps=(0.02,0.05,0.1))",
    "pgd(eps=(0.02,0.05,0.1),steps=10)",
    "strongest(eps=(0.02,0.05,0.1),steps=10,queries=20)",
    "label-counts",
    "saturated-head",
    "scale-mia-peeled(steps=250,rounds=2)",
    "mandrake",
]
# Each is trained in and attacked like the undefended model; join several with +.
defences = [
    "gaussian-noise(std=0.05)",
    "pruning(fraction=0.95)",
    "pruning(fraction=0.99)",
    "clipping(norm=1.0)",
    "clipping(norm=1.0)+gaussian-noise(std=0.05)",
]
# The servers that only read see this many rounds: half of them the first, half the last.
observe = 8
# Train the same network on all data in one place, too, for comparison; the evasion attacks meet it as well.
central = true
# Measure how sharp each model's loss is, on at most this many training images (0: not at all).
curvature = 1000
# How many shadow models mia-bad, lira and rmia share; whether they are trained "like-target", federated,
# or "central", in one place; and whether, being adaptive, they are trained anew under each defence.
shadows = 8
shadow_training = "like-target"
adaptive = false
"""

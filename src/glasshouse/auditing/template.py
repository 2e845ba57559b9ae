"""The commented configuration that `glasshouse init` writes: the embedded example, key by key."""

from glasshouse.auditing.setting import EXAMPLE, as_toml

HEADER = (
    "# A Glasshouse audit. Every key may be left out; `glasshouse list` shows the names that can be used.\n"
)
COMMENTS = {
    "data.name": """
A named set, a folder with a subfolder per class, an .npz with x and y, hf:name, or package.module:function.
""",
    "data.clients": """
How many clients, and how images are divided among them: "iid", "shards(per_client=2)",
"dirichlet(alpha=0.5)", "by-user" or package.module:function. Leave both out if your data name their clients;
holdout = "whole-clients" then keeps whole clients out of training, not images of each.
""",
    "data.members": """
How many images the clients hold together, how many are kept out for the membership attacks, how many the
adversaries may use as auxiliary data, how many the model is tested on. Left out, they share what there is.
""",
    "model.name": """
A name of the zoo or package.module:factory, with options if it takes any: "resnet20(width=8)".
""",
    "model.weights": """
A .safetensors or .pt file to start from ("" for none); a last layer of other classes is drawn anew.
""",
    "model.train": """
Resize all images to this side:
image_size = 32
Train and send only parameters whose names match one of these patterns, as ["head.*"]; none for all.
""",
    "training.channel": """
How updates reach the server: "plain", "secure" (masked and quantised; only their sum arrives), "ideal" (the
exact sum) or "flower" (Flower's SecAgg+). Blind crafting servers get theirs through "secure" at least.
""",
    "training.fraction": """
The share of the clients that takes part in each round.
""",
    "training.local_test": """
Stop early at this test accuracy:
target_accuracy = 0.95
How many test images each participant's own model is scored on (0: none).
""",
    "training.optimiser": """
"sgd", "adam", "adamw" or "rmsprop". Their options, where they are not torch's: betas = [0.9, 0.999] and eps
of Adam and AdamW, alpha and eps of RMSprop, momentum of SGD and RMSprop.
""",
    "training.schedule": """
"constant", "cosine", "step" (by gamma after every step_size rounds), "halving" or "steps". It spans all
rounds, after so many of warmup; with schedule_over = "epochs" each local training runs through it.
""",
    "training.clip_grad_norm": """
Cut the gradient of each batch to this length (0: never).
""",
    "training.augment": """
What each training image goes through: "crop(pad=4)+flip", "rotation(degrees=15)", "jitter(contrast=0.2)".
""",
    "training.precision": """
"bfloat16" trains in mixed precision; the mode "eval" without dropout, and with batch norm's statistics fixed.
""",
    "audit.attacks": """
Attacks that take several eps answer for each; the largest stands for the attack.
""",
    "audit.defences": """
Each is trained in and attacked like the undefended model; join several with +. ["all"] searches a catalogue.
""",
    "audit.observe": """
The servers that only read see this many rounds: half of them the first, half the last.
""",
    "audit.central": """
Train the same network on all data in one place, too, for comparison; the evasion attacks meet it as well.
""",
    "audit.curvature": """
Measure how sharp each model's loss is, on at most this many training images (0: not at all).
""",
    "audit.shadows": """
How many shadow models attacks like lira, rmia and bavaria share; whether they are trained "like-target",
federated, or "central", in one place; whether attacks run once more under each defence, adapted to it;
and with how many of the shadow models, which are then trained under it.
""",
    "audit.seconds": """
How long the curious and the blind server may invert the updates of one model, together, on one core.
""",
    "audit.ladder": """
Climb the ladder of realism, in as many seconds: how hard may an update be to be inverted still?
""",
}
"""What stands before a key, a line of it after another."""

FOOTER = """
The most that each adversary may learn: a severity ("none", "slight", "moderate", "severe") or numbers of
metrics. "everyone" is whoever is not named; "accuracy" is what a defence may cost; "end" says which end of an
interval must keep a limit: "possible" (all of it), "point" or "shown" (it must not be shown to be broken).
[audit.limits]
everyone = "slight"
outsider = { auc = 0.6, "tpr-at-1%-fpr" = 0.05 }
crafting-server = { labels = "moderate", reconstruction = 0.1 }
accuracy = 0.05
end = "possible"
"""
"""What stands at the end, as a comment: without it nobody may be shown to learn more than a little."""


def template() -> str:
    """The example as TOML, with a comment before each key that needs one."""
    lines, table = [HEADER.strip()], ""
    for line in as_toml(EXAMPLE).splitlines():
        if line.startswith("["):
            table = line.strip("[]")
        comment = COMMENTS.get(f"{table}.{line.partition(' = ')[0]}", "")
        lines += [f"# {remark}" for remark in comment.strip().splitlines()]
        lines.append(line)
    lines += ["", *(f"# {remark}" for remark in FOOTER.strip().splitlines())]
    return "\n".join(lines) + "\n"

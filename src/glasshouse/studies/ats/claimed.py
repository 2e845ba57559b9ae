"""What the replication claims and prints, where the line is drawn, and why a setting may say nothing."""

from math import inf

from glasshouse.measures.estimate import LEVEL
from glasshouse.studies.ats import measured as reading
from glasshouse.studies.ats.printed import (
    HYBRID,
    NONE,
    OVERLAPS,
    PEARSON,
    REPLICATED_PEARSON,
    RESNET,
    TABLE_2,
    TABLES,
)
from glasshouse.verdicts.claims import HOLDS, MIXED, NOT_SHOWN, REFUTED, Claim, Region

REHEARSAL = "digits"
"""The data of the scale `smoke`, about which the papers claim nothing."""

CLEAR = 1.0
"""An attack that comes no further than 1 dB above the blind guess shows nothing, and no more does a fall by
less: the replication calls 1 dB in its Table 5 weak."""

NEGLIGIBLE = 0.02
"""A loss of accuracy under two points."""

CROPPING = 0.10
"""The accuracy that crop and flip bring, by the replication."""

ALIKE = 0.02
"""Mean cosines that lie no further apart are the same."""

SOME = 0.05
"""Images are vulnerable under a policy if they are more than one in twenty."""

BEST: tuple[Region, Region] = ((3.01, inf), (-inf, 2.99))
"""Of the best five at least four are found, or at most two: a number that is whole, unlike its interval."""

LINEAR = 0.5
"""A correlation below explains less than a quarter of the variance."""

FEWEST = 10
"""Policies that a correlation takes."""

RELIABLE = 0.5
"""A PSNR that agrees less with itself, from images to other images, can be seen to correlate with nothing."""

UNDERTRAINED = (
    f"not trained far enough: the undefended model is less than {reading.FAR_ENOUGH} times as accurate as a "
    "blind guess"
)
UNLEARNED = (
    f"not trained far enough: the model has less than {100 * reading.LEARNED:g}% of the accuracy that the "
    "papers print"
)
POWERLESS = f"without a defence the search is not surely, or not {CLEAR:g} dB, above the blind guess"
ALONE = "it takes at least 2 attacks that work without a defence"
TOO_FEW = f"fewer than {FEWEST} policies are done"
UNRELIABLE = "the PSNR of policies hardly agrees from some images to others"
REHEARSED = "the digits only show that it runs"

_STRICTER = (
    "The papers measure an attacker who does not know the policy, against the transformed image. Here the "
    "worse of two attackers judges, one of whom knows the policy and seeks the original."
)
_FEW = "The intervals are over few images, which differ much; the papers compare means of six without one."
_JUDGED = {REFUTED: _STRICTER, MIXED: _STRICTER, NOT_SHOWN: _FEW}
_PLAIN = (
    "The papers ran neither an attacker who knows the policy nor a search with more weight on smooth images."
)
_SCORED = "S_pri is a mean over images, to which the papers give no interval; `paper` has their networks."
_SINGLE = (
    "Each policy is judged. The replication's own Table 1 has one that costs 6.5 points (3-1-7 on "
    "CIFAR-100); it calls the impact negligible by the curves of Figure 6."
)
_LAYERS = "Which layers are shallow the papers do not say: here they are the first third of the tensors."
_UNDEFENDED = (
    "Neither of the papers' repositories applies pruning or noise to the attacked gradient; here they are on "
    "it."
)


def _psnr(table: str, data: str, model: str, *arms: str) -> str:
    rows = TABLES[table, data, model]
    return ", ".join(f"{arm} {rows[arm].psnr:.2f}" for arm in (NONE, *arms)) + " dB"


def _accuracy(table: str, data: str, model: str, *arms: str) -> str:
    rows = TABLES[table, data, model]
    return ", ".join(f"{arm} {rows[arm].accuracy:.2f}%" for arm in (NONE, *arms))


_FALLS = [row.psnr - TABLE_2[HYBRID][name].psnr for name, row in TABLE_2[NONE].items()]
_OTHERS = [row.psnr for row in TABLES["table-6", "cifar100", RESNET].values()]

CLAIMS = {
    1: Claim(
        "1. Policies that a search chose make reconstruction infeasible",
        (),
        "section 5.1, experiments 2 and 3, Tables 1 and 3, Figure 5",
        f"{_psnr('table-1', 'cifar100', RESNET, '3-1-7', '43-18-18', HYBRID)} (CIFAR-100, ResNet20)",
        _JUDGED,
    ),
    2: Claim(
        "2. They defeat several variants of the attack",
        (),
        "section 5.1, experiment 5, Table 2",
        f"six attacks fall by {min(_FALLS):.2f} to {max(_FALLS):.2f} dB (CIFAR-100, ResNet20)",
        {REFUTED: _PLAIN, MIXED: _PLAIN, NOT_SHOWN: _FEW},
    ),
    3: Claim(
        "3. They transfer: policies searched on CIFAR-100 protect Fashion-MNIST",
        (),
        "section 5.1, experiment 6, Table 4",
        f"{_psnr('table-4', 'fashion-mnist', RESNET, HYBRID)} (ResNet20), "
        f"{_psnr('table-4', 'fashion-mnist', 'convnet', HYBRID)} (ConvNet): the replication finds them not "
        "effective here",
        {
            HOLDS: "The replication, which denies it, has six images with standard deviations up to 5.80 dB.",
            REFUTED: "The replication denies it, too: only the original claims it.",
            NOT_SHOWN: _FEW,
        },
    ),
    4: Claim(
        f"4. They hardly harm training: they cost less than {100 * NEGLIGIBLE:g} points of accuracy",
        (),
        "section 5.1, experiment 7, Table 1, Figure 6",
        f"{_accuracy('table-1', 'cifar100', RESNET, '3-1-7', '43-18-18', HYBRID)} (CIFAR-100, ResNet20)",
        {REFUTED: _SINGLE, MIXED: _SINGLE},
    ),
    5: Claim(
        "5. They distort details, not meaning: gradients of shallow layers lose more likeness than of deep",
        (),
        "section 5.1, experiment 8, Figure 7",
        "",
        {REFUTED: _LAYERS, MIXED: _LAYERS, NOT_SHOWN: _FEW},
    ),
    6: Claim(
        "6. The five best transformations are 3, 15, 26, 18 and 1",
        (),
        "section 5.1, experiment 9, Figure 8",
        f"the replication finds {OVERLAPS['cifar100']} of the 5",
        {REFUTED: _SCORED, MIXED: _SCORED, NOT_SHOWN: _SCORED},
    ),
    7: Claim(
        "7. S_pri and PSNR are linearly correlated",
        (),
        "section 5.1, experiment 10, Figure 4",
        f"Pearson's r {PEARSON} (original), {REPLICATED_PEARSON} (replication)",
        {
            HOLDS: "The replication, which denies it, suspects its draw of 100 out of 127,550 policies.",
            REFUTED: "The replication denies it, too; it draws policies at random, as is done here.",
            NOT_SHOWN: "The original does not say which policies and images its coefficient is of.",
        },
    ),
    8: Claim(
        "8. Extension 1: policies searched on CIFAR-100 make reconstruction of Tiny-ImageNet infeasible",
        (),
        "section 5.2, extension 1, Table 5",
        f"{_psnr('table-5', 'tiny-imagenet-20', RESNET, HYBRID)} (200 classes, ResNet20), which the "
        "replication calls weak",
        _JUDGED,
    ),
    9: Claim(
        "9. Extension 2: the five best transformations are the same on Tiny-ImageNet",
        (),
        "section 5.2, extension 2, Figure 8c",
        f"the replication finds {OVERLAPS['tiny-imagenet-20']} of the 5",
        {
            REFUTED: "The replication's Tiny-ImageNet has 200 classes, this one 20 of them.",
            NOT_SHOWN: "With 3 of the 5 the replication does not find the same five either.",
        },
    ),
    10: Claim(
        "10. Other defences, pruning and noise, protect less than the hybrid",
        (),
        "section 5.1, experiment 4, Table 6",
        f"hybrid {TABLES['table-1', 'cifar100', RESNET][HYBRID].psnr:.2f} dB, others {min(_OTHERS):.2f} to "
        f"{max(_OTHERS):.2f} dB (CIFAR-100, ResNet20)",
        {REFUTED: _UNDEFENDED, MIXED: _UNDEFENDED, NOT_SHOWN: _FEW},
    ),
    11: Claim(
        "11. Policies make it harder for the search to match the gradient",
        (),
        "section 5.1, experiment 1, Figure 2",
        "",
        {
            REFUTED: "The papers attack one model; here each was trained under the policy of its victims.",
            MIXED: "The papers attack one model; here each was trained under the policy of its victims.",
            NOT_SHOWN: _FEW,
        },
    ),
    12: Claim(
        "12. Some images are vulnerable even under a policy",
        (),
        "summary, section 5.1, experiment 3, and section 6",
        "PSNRs with a standard deviation above 25% of their mean",
        {NOT_SHOWN: "A share of so few images has a wide interval."},
    ),
    13: Claim(
        "13. The hybrid keeps accuracy at least as well as one policy alone",
        (),
        "section 3.1, Table 1",
        f"{_accuracy('table-1', 'cifar100', RESNET, '3-1-7', '43-18-18', HYBRID)} (CIFAR-100, ResNet20)",
    ),
    14: Claim(
        f"14. Without the undocumented crop and flip, accuracy falls by over {100 * CROPPING:g} points",
        (),
        "section 6",
        f"over {100 * CROPPING:g}%",
        {REFUTED: "What augmentation brings depends on the number of images and epochs, and on the network."},
    ),
    15: Claim(
        "15. Half the loss, which the victim's code took by mistake, makes reconstruction harder",
        (),
        "section 6",
        "",
        {NOT_SHOWN: _FEW},
    ),
}
"""Every claim of the replication: the seven of the original, its two extensions, and what it says besides."""

KNOWING = Claim("A. To know the policy brings an attacker nearer to the original", (), own=True)

CORRECTED = 1 - (1 - LEVEL) / len(CLAIMS)
"""The level of the intervals that verdicts on the claims rest on."""

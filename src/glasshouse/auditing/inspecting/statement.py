"""What one update gives away, in words and as findings."""

from collections.abc import Sequence

import numpy as np

from glasshouse.auditing.examine import Examination
from glasshouse.auditing.inspecting.case import Inspected
from glasshouse.auditing.inspecting.reading import CLOSE, counted_images
from glasshouse.auditing.inspecting.tries import Try, most_convincing
from glasshouse.evidence.evidence import ImagePair
from glasshouse.evidence.labels import LabelCounts
from glasshouse.exhibits import Statement
from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate
from glasshouse.measures.pictures import RECOVERED, match

NO_TRUTH = "nobody said what is behind the update; give the images with --truth to have it judged"

MOST_SHOWN = 24

NEVER_TRIED = (
    "Attacks by a server that sends a crafted model: no client is there to answer it.",
    "Whether a certain record was among the data: no records were given to ask about.",
    "Searches guided by a network that was trained on similar images: Glasshouse has none for an update.",
    "Clients that train with momentum, Adam or a defence: the update is read as plain SGD, without noise.",
)


def label_counts(labels: Examination) -> np.ndarray | None:
    """The counts that were found, shape (classes,); null where none were."""
    return labels.evidence.counted[0].counts if isinstance(labels.evidence, LabelCounts) else None


def state(inspected: Inspected, labels: Examination, tries: Sequence[Try], kept: Try | None) -> Statement:
    """The answer, what it rests on, and what could not be tried."""
    refused = [one.examination for one in tries if one.examination.reason is not None]
    if labels.reason is not None:
        refused.append(labels)
    return Statement(
        answer=_answer(inspected, kept),
        found=(
            *inspected.reading.words,
            *_about_labels(inspected, labels),
            *_about_closed_forms(tries),
            *([] if kept is None else [_about_images(inspected, kept)]),
        ),
        untried=(*_reasons(refused), *NEVER_TRIED),
    )


def findings(inspected: Inspected, labels: Examination, tries: Sequence[Try]) -> list[Finding]:
    """A row for each number, of several starts the best; what only the truth could tell is null."""
    rows = [_images_row(inspected, labels), *_label_rows(inspected, labels)]
    by_attack: dict[str, list[Try]] = {}
    for one in tries:
        by_attack.setdefault(one.spec, []).append(one)
    return [*rows, *(row for starts in by_attack.values() for row in _image_rows(most_convincing(starts)))]


def pairs(inspected: Inspected, kept: Try | None) -> list[ImagePair]:
    """The images that were rebuilt, each beside its original where that is known."""
    if kept is None or kept.rebuilt is None:
        return []
    truth, x = inspected.case.truth, kept.rebuilt.x
    if truth is None or len(x) > len(truth.pool):
        named = kept.rebuilt.labels
        labels = [None] * len(x) if named is None or len(named) != len(x) else named.tolist()
        return [
            ImagePair(str(place), None, image, "rebuilt" if label is None else f"label {label}")
            for place, (image, label) in enumerate(zip(x[:MOST_SHOWN], labels))
        ]
    matched = match(truth.pool.x, x)
    return [
        ImagePair(
            str(place),
            truth.pool.x[place],
            matched.guess[place],
            f"{matched.psnr[place]:.1f} dB" if matched.returned[place] else "nothing was returned: grey",
            f"label {int(truth.pool.y[place])}",
        )
        for place in np.argsort(-matched.psnr, kind="stable")[:MOST_SHOWN].tolist()
    ]


def _answer(inspected: Inspected, kept: Try | None) -> str:
    truth, samples = inspected.case.truth, inspected.reading.samples
    if kept is None or kept.rebuilt is None:
        return "NOT REBUILT: no attack returned an image, which is no proof that none can."
    if truth is not None and kept.examination.judgement is not None:
        psnr = match(truth.pool.x, kept.rebuilt.x).psnr
        recovered = int((psnr >= RECOVERED).sum())
        word = "EXPOSED" if recovered else "NOT REBUILT"
        return (
            f"{word}: {recovered} of {len(psnr)} images were rebuilt closely enough to count ({RECOVERED:g} "
            f"dB or more), by {kept.spec}; PSNR from {psnr.min():.1f} to {psnr.max():.1f} dB."
        )
    if kept.complete:
        one = samples == 1
        return (
            f"EXPOSED: {kept.spec} returns {_share(kept)}; passed through the network, "
            f"{'it gives' if one else 'they give'} this very update (mismatch {_mismatch(kept)})."
        )
    if kept.proven:
        return f"EXPOSED: {kept.spec} returns {_share(kept)}, and proves what it returns."
    if kept.likely:
        return (
            f"AT RISK: images were found that explain most of the update (mismatch {_mismatch(kept)}, by "
            f"{kept.spec}); look at them. Nobody said what is behind it, so whether they are right is open."
        )
    if kept.mismatch is None:
        return (
            f"AT RISK: {kept.spec} returns {_share(kept)}; what a closed form returns is exact where it "
            "applies. Look at what it returns."
        )
    return (
        f"NOT REBUILT in this time: the best images explain the update badly (mismatch {_mismatch(kept)}, by "
        f"{kept.spec}). More --seconds, or an attack that knows more, may do better."
    )


def _about_labels(inspected: Inspected, labels: Examination) -> list[str]:
    counts = label_counts(labels)
    if counts is None:
        return []
    if not _labels_readable(inspected):
        return [
            "Its labels could not be read: the model knows its classes too well, and all are taken as equal."
        ]
    held = ", ".join(f"{count} of class {label}" for label, count in enumerate(counts) if count)
    left = 0.0 if inspected.reading.fit is None else inspected.reading.fit.left
    return [f"Labels: {held} (whole counts leave {left:.1%} of the last layer's change unexplained)."]


def _labels_readable(inspected: Inspected) -> bool:
    fit = inspected.reading.fit
    return inspected.reading.scaled and fit is not None and fit.left < CLOSE


def _about_closed_forms(tries: Sequence[Try]) -> list[str]:
    lines = []
    for one in tries:
        if not one.computed or not one.images:
            continue
        if one.mismatch is not None:
            proof = f"mismatch {_mismatch(one)}"
        else:
            proof = "proven" if one.proven else "too few to be checked"
        lines.append(f"A closed form applies: {one.spec} computes {counted_images(one.images)} ({proof}).")
    return lines or ["No closed form returns an image; images have to be searched for."]


def _about_images(inspected: Inspected, kept: Try) -> str:
    """What stays open about the images that are shown."""
    note = kept.rebuilt.note if kept.rebuilt is not None else None
    if kept.complete or kept.proven or inspected.case.truth is not None:
        return f"The images below are those of {kept.spec}." + (f" Noted: {note}." if note else "")
    return (
        f"The images below are those of {kept.spec}. Other images may give the same gradient: a small "
        "mismatch makes them likely, and no more." + (f" Noted: {note}." if note else "")
    )


def _reasons(refused: Sequence[Examination]) -> list[str]:
    return list(dict.fromkeys(f"{one.spec}: {one.reason}." for one in refused))


def _images_row(inspected: Inspected, labels: Examination) -> Finding:
    reading = inspected.reading
    words = " ".join(reading.words)
    estimate = (
        Estimate(float(reading.samples), None, None, 1, words)
        if reading.counted
        else Estimate(None, None, None, 1, f"not sure: {words}")
    )
    return inspected.case.subject.finding(
        "labels",
        "label-images",
        estimate,
        cell=labels.cell,
        adversary=labels.adversary.adversary,
        attack=labels.spec,
    )


def _label_rows(inspected: Inspected, labels: Examination) -> list[Finding]:
    counts = label_counts(labels)
    rows = [labels.finding(score) for score in labels.scores]
    if labels.reason is not None:
        return labels.findings()
    if inspected.case.truth is None:
        unjudged = Estimate(None, None, None, 1, NO_TRUTH)
        rows.append(_unjudged(labels, "label-overlap", unjudged))
    if counts is None or not _labels_readable(inspected):
        return rows
    return rows + [
        inspected.case.subject.finding(
            "labels",
            "label-count",
            Estimate(float(counts[label]), None, None, int(counts.sum())),
            cell=f"{labels.cell}/class-{label}",
            adversary=labels.adversary.adversary,
            attack=labels.spec,
        )
        for label in np.flatnonzero(counts)
    ]


def _image_rows(one: Try) -> list[Finding]:
    examination = one.examination
    rows = examination.findings()
    if examination.reason is None and examination.judgement is None:
        rows += [
            _unjudged(examination, metric, Estimate(None, None, None, 0, NO_TRUTH))
            for metric in ("recovery-rate", "psnr")
        ]
    if one.rebuilt is not None:
        images = len(one.rebuilt.x)
        reason = "the images are too few to explain the update, or their labels do not show"
        estimate = (
            Estimate(one.mismatch, None, None, images, "0 where the images explain the update fully")
            if one.mismatch is not None
            else Estimate(None, None, None, images, reason)
        )
        rows.append(_unjudged(examination, "gradient-mismatch", estimate, one.of_noise))
    return rows


def _unjudged(
    examination: Examination, metric: str, estimate: Estimate, chance: float | None = None
) -> Finding:
    return examination.case.subject.finding(
        examination.family,
        metric,
        estimate,
        cell=examination.cell,
        adversary=examination.adversary.adversary,
        attack=examination.spec,
        chance=chance,
        assumes=examination.granted,
        note=examination.note,
        seconds=examination.seconds,
    )


def _share(one: Try) -> str:
    """Which of the images behind the update an attack returns."""
    if one.images < one.samples:
        return f"{one.images} of {counted_images(one.samples)}"
    return "the image" if one.samples == 1 else f"all {counted_images(one.samples)}"


def _mismatch(one: Try) -> str:
    if one.mismatch is None or one.of_noise is None:
        return "unknown"
    return f"{one.mismatch:.2g}, of noise {one.of_noise:.2g}"

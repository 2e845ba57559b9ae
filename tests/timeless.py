"""Findings without what depends on the clock: the rest is the same in every run of one setting and seed."""

import dataclasses


def timeless(findings):
    """The findings without the seconds that they took, and without the values of those that are seconds."""
    return [_timeless(finding) for finding in findings]


def timeless_rows(rows):
    """The same for findings that were read from a file, which are changed."""
    for row in rows:
        row["seconds"] = None
        if row["metric"].endswith("-seconds"):
            row["value"] = None
    return rows


def _timeless(finding):
    timed = {"value": None, "reason": "timed"} if finding.metric.endswith("-seconds") else {}
    return dataclasses.replace(finding, seconds=None, **timed)

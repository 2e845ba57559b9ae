"""What a training costs beside accuracy: bytes and seconds."""

from collections.abc import Iterator

from glasshouse.auditing.target import CENTRAL, Target
from glasshouse.findings import Finding
from glasshouse.measures.estimate import Estimate


def costs(target: Target) -> Iterator[Finding]:
    """The mean bytes from and to a client in a round, and the core-seconds of the whole training.

    A model trained in one place has no traffic. The numbers of bytes follow from the protocol and the seconds
    were measured once, so neither has an interval.
    """
    if target.seconds is None or not target.rounds:
        return
    subject, cell, rounds = target.case.subject, target.variant.cell, target.rounds
    if target.variant.strategy != CENTRAL:
        for metric, sizes in (
            ("bytes-up", [point.up or 0 for point in target.curve]),
            ("bytes-down", [point.down or 0 for point in target.curve]),
        ):
            note = f"{sum(sizes):,} bytes in all for a client that takes part in all {rounds} rounds"
            mean = Estimate(sum(sizes) / rounds, None, None, rounds, note)
            yield subject.finding("utility", metric, mean, cell=cell)
    note = f"core-seconds of clients, channel and server in {rounds} rounds, without the tests"
    took = Estimate(round(target.seconds, 3), None, None, rounds, note)
    yield subject.finding("utility", "training-seconds", took, cell=cell)

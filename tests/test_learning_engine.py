import gc
import os

import numpy as np

from glasshouse.learning.engine import Engine


def table(count: int) -> np.ndarray:
    return np.full((count, 1000), count)


def frozen(_: int) -> int:
    return gc.get_freeze_count()


def test_results_come_back_in_order_and_leave_no_file():
    with Engine(2) as engine:
        results = list(engine.map(table, range(6)))
        assert list(engine._folder.iterdir()) == []
    assert [result.shape for result in results] == [(count, 1000) for count in range(6)]
    assert all((result == count).all() for count, result in enumerate(results))
    results[5] += 1  # a copy of the reader's own


def test_workers_keep_what_they_imported_out_of_collections():
    with Engine(2) as engine:
        *_, last = engine.map(frozen, range(9))
    assert last > 10_000


def test_one_worker_is_this_process():
    with Engine(1) as engine:
        assert list(engine.map(lambda _: os.getpid(), [0])) == [os.getpid()]

import contextlib
import gc
import itertools
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from conftest import make_images

import glasshouse
from glasshouse.errors import Fault, one_line_warning
from glasshouse.learning.engine import Engine
from glasshouse.learning.shared import Shared


def table(count: int) -> np.ndarray:
    return np.full((count, 1000), count)


def square(number: int) -> int:
    return number * number


def frozen(_: int) -> int:
    return gc.get_freeze_count()


def blocked(_: int) -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def form_of_warnings(_: int) -> str:
    return warnings.formatwarning("careful", UserWarning, glasshouse.__file__, 1)


def process(_: int) -> int:
    return os.getpid()


def killed_once(job):
    """Job 0 is killed the first time, when job 1 is done; each leaves a mark whenever it is done."""
    number, marks, results = job
    if number == 0 and not (marks / "killed").exists():
        while not any(results.glob("*-1")):
            time.sleep(0.01)
        (marks / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    (marks / f"{number} by {os.getpid()}").touch()
    return number * number


def always_killed(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def files(engine: Engine) -> list[str]:
    return sorted(path.name for path in engine._folder.iterdir() if path.name != "lock")


def test_results_come_back_in_order_and_leave_no_file():
    with Engine(2) as engine:
        results = list(engine.map(table, range(6)))
        assert files(engine) == []
    assert [result.shape for result in results] == [(count, 1000) for count in range(6)]
    assert all((result == count).all() for count, result in enumerate(results))
    results[5] += 1  # a copy of the reader's own


def test_jobs_are_taken_as_they_are_needed_and_those_of_a_reader_that_stops_end_without_a_word():
    with warnings.catch_warnings(), Engine(2) as engine:
        warnings.simplefilter("error")
        results = engine.map(square, itertools.count())
        assert list(itertools.islice(results, 3)) == [0, 1, 4]
        results.close()
        assert files(engine) == []
        assert list(engine.map(square, range(3))) == [0, 1, 4]


def test_workers_keep_what_they_imported_out_of_collections():
    with Engine(2) as engine:
        *_, last = engine.map(frozen, range(9))
    assert last > 10_000


def test_one_worker_is_this_process():
    with Engine(1) as engine:
        assert list(engine.map(lambda _: os.getpid(), [0])) == [os.getpid()]


def test_an_engine_works_in_a_thread_that_is_not_the_main_one():
    found = []

    def work():
        with Engine(2) as engine:
            found.extend(engine.map(square, range(4)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [0, 1, 4, 9]


def test_workers_warn_as_their_parent_does(monkeypatch):
    monkeypatch.setattr(warnings, "formatwarning", one_line_warning)
    with Engine(2) as engine:
        assert list(engine.map(form_of_warnings, range(4))) == ["glasshouse: careful\n"] * 4


def test_workers_leave_an_interruption_to_their_parent():
    with Engine(2) as engine:
        assert list(engine.map(blocked, range(4))) == [True] * 4


def test_the_jobs_of_a_killed_worker_run_again_and_no_others(tmp_path):
    said = []
    with Engine(2, say=said.append) as engine:
        jobs = ((number, tmp_path, engine._folder) for number in range(9))
        assert list(engine.map(killed_once, jobs)) == [number**2 for number in range(9)]
        assert files(engine) == []
    assert len(list(tmp_path.glob("1 by *"))) == 1
    assert len(said) == 1
    assert "a worker was killed" in said[0]


def test_a_worker_that_is_killed_between_two_maps_is_replaced():
    with Engine(2) as engine:
        (pid,) = engine.map(process, [0])
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            while True:
                os.kill(pid, 0)
                time.sleep(0.01)
        assert list(engine.map(square, range(5))) == [0, 1, 4, 9, 16]


def test_a_worker_that_is_killed_again_is_a_fault_that_names_the_remedy():
    with Engine(2) as engine:
        with pytest.raises(Fault, match=r"memory ran out; lower --workers \(it is 2\).*goes on") as raised:
            list(engine.map(always_killed, range(5)))
        assert "\n" not in str(raised.value)
        assert files(engine) == []


LEFT_BEHIND = """
from pathlib import Path
from joblib.externals.loky.backend import resource_tracker
from glasshouse.learning.workers import Workers
Workers(2, Path(), print)
resource_tracker.register("/gone-already", "semlock")
"""


def test_what_a_run_that_ended_early_left_to_be_tidied_up_is_not_spoken_of():
    ended = subprocess.run([sys.executable, "-c", LEFT_BEHIND], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    assert "PYTHONWARNINGS" not in os.environ


def test_what_is_shared_lies_in_a_file_only_while_somebody_needs_it():
    with Engine(2) as engine:
        images, vector = make_images(8), np.zeros(1000)
        shared, pool = engine.share(vector), engine.share_images(images)
        assert engine.share_images(images) is pool
        copy = pickle.loads(pickle.dumps(shared))
        del copy
        assert len(files(engine)) == 2
        del shared
        assert len(files(engine)) == 1
        del pool, images
        assert files(engine) == []


def test_a_handle_that_outlives_its_engine_is_dropped_quietly():
    with Engine(2) as engine:
        shared = engine.share(np.zeros(1000))
    shared.remove()
    del shared


def test_a_value_that_cannot_be_written_is_a_fault_and_leaves_no_file(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, before[1]))
    try:
        with pytest.raises(Fault, match=r"cannot be written .*set TMPDIR"):
            Shared.in_file(np.zeros(10_000), tmp_path / "value")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_a_shared_file_that_is_gone_is_a_fault(tmp_path):
    shared = Shared.in_file(np.zeros(10), tmp_path / "value")
    shared.remove()
    with pytest.raises(Fault, match="cannot be read"):
        shared.get()

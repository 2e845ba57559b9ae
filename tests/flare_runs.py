"""FLARE's simulator, run on jobs in miniature."""

import os
import subprocess
import sys
from pathlib import Path

from flare_parts import Network, Training
from nvflare.app_opt.pt.job_config.base_fed_job import BaseFedJob

import glasshouse

TESTS, SOURCE = Path(__file__).parent, Path(glasshouse.__file__).parents[1]


def job_of(controller, sends="WEIGHTS"):
    """A job whose clients ask for their tasks without delay."""
    job = BaseFedJob(initial_model=Network(), name="miniature")
    job.to_server(controller)
    job.to_server({"server": {"task_request_interval": 0.1}})
    job.to_clients(Training(sends), tasks=["train"])
    return job


def run(job, folder, sites, monkeypatch):
    """Run the job with so many sites; returns the server's run folder, and all that was logged."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), str(SOURCE)]))
    job.simulator_run(str(folder), n_clients=sites)
    logs = [path.read_text() for path in sorted(folder.glob("*/log.txt"))]
    return folder / "server" / "simulate_job", "\n".join(logs)


def run_script(script, folder):
    """Run a script of the examples in `folder`; returns what it printed."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr

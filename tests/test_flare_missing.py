"""Without NVIDIA FLARE the rest of Glasshouse works, and its integration says what is missing."""

import subprocess
import sys

WITHOUT = "import sys; sys.modules['nvflare'] = None\n"


def run(code):
    return subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True)


def test_the_integration_names_the_extra_that_it_needs():
    done = run("from glasshouse.integrations.flare import RecordRounds")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "needs NVIDIA FLARE" in last
    assert last.endswith("install it with: pip install 'glasshouse[nvflare]'")


def test_everything_else_is_there():
    done = run("from glasshouse import audit, vet, Setting; from glasshouse.cli import main; print('here')")
    assert done.stdout.strip() == "here", done.stderr

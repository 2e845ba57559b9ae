"""The page about FLARE jobs, run as it stands there, and what its examples leave."""

import difflib
import json
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import docs_world
import numpy as np
import pytest
from safetensors.numpy import load_file

pytest.importorskip("nvflare", reason="NVIDIA FLARE is missing: pip install 'glasshouse[nvflare]'")

from flare_runs import run_script

from glasshouse import audit_record
from glasshouse.auditing.setting import make_setting
from glasshouse.recording.reader import read_recording

pytestmark = pytest.mark.extras
PAGE = (docs_world.ROOT / "docs" / "flare.md").read_text()
SIDES = ("server", "client")
EXAMPLE = docs_world.ROOT / "examples" / "flare_job"


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The example's folder once every block of the page was run in it; by the script's name what it printed.

    Scripts wait for each other's sake most of the time, and so begin together.
    """
    folder = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("page") / "flare_job")
    scripts = re.findall(r"^python (\S+)$", PAGE, re.MULTILINE)
    with ThreadPoolExecutor() as together:
        printed = dict(zip(scripts, together.map(lambda script: run_script(script, folder), scripts)))
    with pytest.MonkeyPatch.context() as patching, docs_world.entered(folder):
        patching.syspath_prepend(str(folder))
        docs_world.shrunk(patching)
        for kind, code in docs_world.BLOCK.findall(PAGE):
            if kind == "python":
                exec(compile(code, "snippet", "exec"), {"__name__": "snippet"})
            for line in code.splitlines() if kind == "sh" else ():
                if line.startswith("glasshouse "):
                    docs_world.run_line(line)
                else:
                    assert line.startswith(("cd ", "pip ", "python ")), f"nobody knows how to run {line!r}"
    for name in ("network", "client", "held", "crafting"):
        sys.modules.pop(name, None)
    return folder, printed


def lines(script):
    return (EXAMPLE / script).read_text().splitlines()


def test_a_job_is_audited_by_adding_two_lines():
    differing = difflib.ndiff(lines("job.py"), lines("job_audited.py"))
    added = [line[2:].strip() for line in differing if line[0] in "+-" and line[2:].strip()]
    assert len(added) == 2
    assert all(f"+{line}" in PAGE or f"+    {line}" in PAGE for line in added)


def test_the_audited_job_leaves_what_its_server_saw_and_the_page_audits_it(shown):
    folder, _ = shown
    record = read_recording(folder / "flare-run/server/simulate_job/record")
    assert record.description.channel == "plain"
    assert len(record.rounds) == 3
    for one in record.rounds:
        assert {client.name for client in one.clients} == {"site-1", "site-2", "site-3"}
        assert {client.samples for client in one.clients} == {100}
    assert len(list((folder / "runs").glob("*/results.json"))) == 2


@pytest.mark.parametrize(
    ("run", "servers"),
    [("flare-run", {"curious server", "blind server"}), ("flare-run-summed", {"blind server"})],
)
def test_a_record_is_audited_as_the_server_that_sees_updates_or_their_sum(shown, run, servers, tmp_path):
    folder, _ = shown
    audited = {"attacks": ["set-loss", "gradient-alignment", "label-counts"], "ladder": False, "curvature": 0}
    sys.path.insert(0, str(folder))
    results = audit_record(
        folder / run / "server/simulate_job/record",
        make_setting({"audit": audited | {"defences": [], "central": False}}),
        model="network:Network",
        members=str(folder / "members.npz"),
        nonmembers=str(folder / "nonmembers.npz"),
        auxiliary=str(folder / "auxiliary.npz"),
        out=tmp_path / "audit",
        workers=1,
        quiet=True,
    )
    sys.path.remove(str(folder))
    tried = {str(one.adversary) for one in results.findings if one.value is not None}
    assert {adversary for adversary in tried if "server" in adversary} == servers


def test_the_summed_job_leaves_no_single_update_and_trains_as_well(shown):
    folder, _ = shown
    place = folder / "flare-run-summed/server/simulate_job/record"
    record = read_recording(place)
    assert record.description.channel == "sum"
    assert "summed under masks" in record.description.described
    assert not list(place.rglob("update-*"))
    first, last = load_file(place / "rounds/0001/sent.safetensors"), load_file(place / "final.safetensors")
    for run in (place, folder / "flare-run/server/simulate_job/record"):
        assert accuracy(load_file(run / "final.safetensors"), folder) > 0.6
    assert any(not np.array_equal(first[name], last[name]) for name in first)


def accuracy(weights, folder):
    """That of the network on images that nobody trained on."""
    images = np.load(folder / "nonmembers.npz")
    x = images["x"].reshape(len(images["x"]), -1)
    for place in (1, 3, 5):
        x = x @ weights[f"{place}.weight"].T + weights[f"{place}.bias"]
        x = np.maximum(x, 0) if place < 5 else x
    return (x.argmax(1) == images["y"]).mean()


def test_hospitals_refuse_the_crafted_model_and_say_why(shown):
    _, printed = shown
    assert "refused the model of round 1: staircase in 1: 128 of 128 rows" in printed["job_crafted.py"]
    assert "Aggregated 1/3" not in printed["job_crafted.py"]


def test_a_recipe_puts_the_components_where_a_job_does(shown):
    configs = {side: list((shown[0] / "jobs/recipe").rglob(f"config_fed_{side}.json")) for side in SIDES}
    server, client = (json.loads(configs[side][0].read_text()) for side in SIDES)
    ((recorder,), (vetting,)) = (
        chain["filters"] for chain in (*server["task_result_filters"], *client["task_data_filters"])
    )
    assert recorder["path"].endswith("RecordRounds")
    assert vetting["path"].endswith("VetModel")
    assert [one["tasks"] for one in client["executors"]] == [["train"]]


def test_the_defended_job_is_configured_for_its_clients(shown):
    (config,) = (shown[0] / "jobs/defended").rglob("config_fed_client.json")
    (chain,) = json.loads(config.read_text())["task_result_filters"]
    (one,) = chain["filters"]
    assert one["path"].endswith("DefendUpdate")
    assert one["args"]["defences"] == "clipping(norm=1.0)+gaussian-noise(std=0.001)"
    assert not list(config.parents[1].rglob("glasshouse"))
    assert (config.parents[1] / "custom" / "client.py").exists()

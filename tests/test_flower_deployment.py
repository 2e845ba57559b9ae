"""A Flower deployment with TLS and keys, recorded and audited, and what it survives."""

import sys
import time

import pytest

pytest.importorskip("flwr", reason="Flower is missing: pip install 'glasshouse[flower]'")
pytestmark = pytest.mark.extras

from deployment_faults import FAULTS  # noqa: E402
from flower_projects import (  # noqa: E402
    EXAMPLES,
    Deployment,
    change,
    copied,
    images_of,
    with_two_lines,
)
from test_recorded_audit import setting  # noqa: E402

from glasshouse import audit_record  # noqa: E402
from glasshouse.recording.reader import read_recording  # noqa: E402

NODES = {"ward-a": "", "ward-b": "NaN", "ward-c": "shape", "ward-d": "silence"}
TIMEOUT = 45.0
"""Seconds that a round waits for a node that does not answer."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("deployment")


@pytest.fixture(scope="module")
def played(folder):
    """A run of two rounds in which one client sends NaN, one a wrong shape, and one dies in round 2."""
    app = copied(folder)
    with_two_lines(app, folder / "record", more=', named_by="name"')
    change(
        app,
        "digits_app/server_app.py",
        ("import record", "import record, screen"),
        ("    result = ", '    strategy = screen(strategy, named_by="name")\n    result = '),
    )
    (app / "digits_app" / "faults.py").write_text(FAULTS)
    change(
        app,
        "digits_app/client_app.py",
        ("app = ClientApp()", "app = ClientApp(mods=[faulty])"),
        (
            "import Net, load_data, train\n",
            "import Net, load_data, train\nfrom digits_app.faults import faulty\n",
        ),
    )
    with Deployment(folder / "net") as deployment:
        for place, (name, fault) in enumerate(NODES.items()):
            deployment.add_node(
                name, f'partition-id={place} num-partitions=4 fault="{fault}" folder="{folder}"'
            )
        deployment.add_node("stranger", registered=False)
        (folder / "other").mkdir()
        make_other(folder / "other")
        deployment.add_node("deceived", root=folder / "other" / "ca.crt")
        deployment.wait_for_nodes(len(NODES))
        run = deployment.start_run(app, folder=str(folder), num_server_rounds=2, round_timeout=TIMEOUT)
        deadline = time.monotonic() + 4 * TIMEOUT
        while not (folder / "training").exists():
            assert run.poll() is None, run.communicate()[0]
            assert time.monotonic() < deadline, deployment.log("superlink")
            time.sleep(0.2)
        deployment.kill("ward-d")
        said = run.communicate()[0]
        yield said, {name: deployment.log(name) for name in ("stranger", "deceived")}, deployment.online()


def make_other(folder):
    from certificates import make_certificates

    make_certificates(folder)


def test_the_run_ends_although_a_node_is_killed_in_the_middle_of_a_round(played, folder):
    said, _, _ = played
    assert (folder / "final_model.pt").exists(), said
    first, second = read_recording(folder / "record").rounds
    assert [client.name for client in sorted(first.clients, key=lambda one: one.name)] == ["ward-a", "ward-d"]
    assert [client.name for client in second.clients] == ["ward-a"]


def test_replies_that_cannot_be_combined_are_turned_away_by_name(played):
    said, _, _ = played
    for number in (1, 2):
        assert f"round {number}: the reply of client ward-b is turned away: fc2.bias holds NaN" in said
        assert f"round {number}: the reply of client ward-c is turned away: fc2.bias has shape (9,)" in said


def test_a_wrong_certificate_and_a_key_that_nobody_registered_are_refused(played):
    _, logs, online = played
    assert "CERTIFICATE_VERIFY_FAILED" in logs["deceived"]
    assert online <= len(NODES)
    assert "Failed to activate SuperNode" in logs["stranger"]


def test_what_the_deployment_recorded_is_audited(played, folder, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES / "flower_app")
    found = audit_record(
        folder / "record",
        setting(["loss-threshold", "label-counts"], shadows=0),
        model="digits_app.task:Net",
        out=folder / "run",
        workers=1,
        quiet=True,
        **images_of(EXAMPLES / "flower_app", folder, {0: "ward-a", 3: "ward-d"}, of=4),
    ).findings
    for name in [name for name in sys.modules if name.startswith("digits_app")]:
        del sys.modules[name]
    assert {one.adversary for one in found if one.value is not None} >= {"outsider", "curious server"}

"""A whole Flower deployment on this machine: a SuperLink and SuperNodes as processes, with TLS and keys.

    python deployment.py APP FOLDER hospital-a hospital-b hospital-c

The app in APP runs in it once; FOLDER receives certificates, logs and whatever the app writes. Everything
listens on 127.0.0.1, and ends with this script.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from certificates import make_certificates, make_keys

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Nothing leaves this machine, and nothing is installed."""

BIN = Path(sys.executable).parent


class Deployment:
    """A SuperLink and its SuperNodes, which end when the context does."""

    link_options: Sequence[str] = ("--enable-supernode-auth",)
    run_options: Sequence[str] = ()

    def __init__(self, folder: Path) -> None:
        self.folder, self.keys = folder.absolute(), folder.absolute() / "keys"
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.link: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self._environment = (
            os.environ
            | QUIET
            | {
                "FLWR_HOME": str(self.folder / "flower"),
                "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            }
        )

    def __enter__(self) -> "Deployment":
        make_certificates(self.keys)
        (self.folder / "flower").mkdir(parents=True, exist_ok=True)
        (self.folder / "flower" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{self.keys / "ca.crt"}"\n'
        )
        self.link = self._start(
            "superlink",
            *("flower-superlink", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--ssl-ca-certfile", self.keys / "ca.crt"),
            *("--ssl-certfile", self.keys / "server.pem", "--ssl-keyfile", self.keys / "server.key"),
            *self.link_options,
        )
        wait_until(self._answers, "the SuperLink to answer")
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.nodes.values(), self.link]:
            if process is not None:
                end(process)

    def add_node(
        self, name: str, config: str = "", *, registered: bool = True, root: Path | None = None
    ) -> None:
        """Start a SuperNode with a key of its own; its app finds `config` in its settings.

        One that is not registered is a stranger to the SuperLink; one that trusts another `root` will not
        speak to it.
        """
        make_keys(self.keys, name)
        if registered:
            self.flwr("supernode", "register", str(self.keys / f"{name}.pub"), "here")
        self.nodes[name] = self._start(
            name,
            *("flower-supernode", "--superlink", f"127.0.0.1:{self.port}"),
            *("--root-certificates", root or self.keys / "ca.crt"),
            *("--auth-supernode-private-key", self.keys / f"{name}.key"),
            *("--host", "127.0.0.1", "--port", str(free_port())),
            *("--node-config", f'name="{name}" {config}'.strip()),
        )

    def wait_for_nodes(self, count: int) -> None:
        """Wait until so many SuperNodes are online."""
        wait_until(lambda: self.online() >= count, f"{count} SuperNodes to be online")

    def online(self) -> int:
        """How many SuperNodes the SuperLink sees."""
        listed = json.loads(self.flwr("supernode", "list", "here", "--format", "json").stdout)
        return sum(node["status"] == "online" for node in listed["nodes"])

    def run(self, app: Path, **settings: object) -> str:
        """Run the app, with `settings` for its configuration; returns what its server said."""
        return self.start_run(app, **settings).communicate()[0]

    def start_run(self, app: Path, **settings: object) -> "subprocess.Popen[str]":
        """The same, without waiting: the process whose output is what the server says."""
        config = " ".join(f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in settings.items())
        configured = ["--run-config", config] if config else []
        return subprocess.Popen(
            [str(BIN / "flwr"), "run", str(app), "here", "--stream", *configured, *self.run_options],
            env=self._environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def flwr(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of Flower's command line."""
        done = subprocess.run(
            [str(BIN / "flwr"), *words],
            env=self._environment,
            capture_output=True,
            text=True,
            cwd=self.folder,
        )
        if done.returncode:
            raise RuntimeError(f"flwr {' '.join(words)}: {done.stdout}{done.stderr}")
        return done

    def kill(self, name: str) -> None:
        """Kill a SuperNode and all that it started, as a power cut would."""
        os.killpg(self.nodes[name].pid, signal.SIGKILL)
        self.nodes[name].wait()

    def log(self, name: str) -> str:
        """What a process has said so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _answers(self) -> bool:
        assert self.link is not None
        if self.link.poll() is not None:
            raise RuntimeError(f"the SuperLink ended:\n{self.log('superlink')}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _start(self, name: str, command: str, *options: object) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [str(BIN / command), *map(str, options)],
                env=self._environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def end(process: "subprocess.Popen[bytes]", patience: float = 10) -> None:
    """End a process and all that it started: first asked, then told."""
    for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, patience)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Wait until `holds`, looking twice a second."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} seconds for {what}")
        time.sleep(0.5)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("app", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+", help="of the SuperNodes")
    given = parser.parse_args()
    with Deployment(given.folder) as deployment:
        for place, name in enumerate(given.names):
            deployment.add_node(name, f"partition-id={place} num-partitions={len(given.names)}")
        deployment.wait_for_nodes(len(given.names))
        print(deployment.run(given.app.absolute(), folder=str(given.folder.absolute())))


if __name__ == "__main__":
    main()

"""Times steady rounds of the task in a folder by Flower's simulation; prints
(seconds, CPU seconds) of each as JSON.

Runs in an environment that holds Flower; see rounds.py.
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# Ray would run its workers at a low priority: on a busy machine that would slow this contestant alone.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from processes import cpu_seconds
from task import Shape, read_task, train


class Timed(FedAvg):
    """Federated averaging that notes how long each round takes, from choosing clients to the new model."""

    def __init__(self, shape: Shape) -> None:
        fraction = shape.participants / shape.clients
        super().__init__(
            fraction_train=fraction,
            fraction_evaluate=0.0,
            min_train_nodes=shape.participants,
            min_available_nodes=shape.clients,
        )
        self.participants = shape.participants
        self.played: list[tuple[float, float]] = []

    def configure_train(self, *args, **kwargs):
        self._start, self._used = time.perf_counter(), cpu_seconds(os.getpid())
        return super().configure_train(*args, **kwargs)

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        combined = super().aggregate_train(server_round, replies)
        self.played.append((time.perf_counter() - self._start, cpu_seconds(os.getpid()) - self._used))
        assert len(replies) == self.participants
        assert not any(reply.has_error() for reply in replies)
        return combined


def make_client(folder: Path) -> ClientApp:
    """A client that trains on its part of the task."""
    app = ClientApp()

    @app.train()
    def train_client(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        task = read_task(folder)
        task.network.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = task.client(context.node_config["partition-id"])
        train(task.network, x, y, task.shape)
        reply = {
            "arrays": ArrayRecord(task.network.state_dict()),
            "metrics": MetricRecord({"num-examples": len(x)}),
        }
        return Message(content=RecordDict(reply), reply_to=message)

    return app


def make_server(folder: Path, strategy: FedAvg, rounds: int) -> ServerApp:
    """A server that runs `rounds` rounds."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        arrays = ArrayRecord(read_task(folder).network.state_dict())
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=rounds)

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", type=Path)
    parser.add_argument("--parallel", type=int, default=2, help="worker processes")
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before those that count")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    shape = read_task(given.task).shape
    strategy = Timed(shape)
    run_simulation(
        make_server(given.task, strategy, given.warm_up + given.rounds),
        make_client(given.task),
        num_supernodes=shape.clients,
        backend_config={
            "init_args": {"num_cpus": given.parallel},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    print(json.dumps(strategy.played[given.warm_up :]))


if __name__ == "__main__":
    main()

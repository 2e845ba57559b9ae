"""The same server, which sees only the sum of what its clients send."""

from flwr.app import Context
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp

from digits_app.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    first = [tensor.numpy() for tensor in Net().state_dict().values()]
    strategy = FedAvg(fraction_evaluate=0.0, initial_parameters=ndarrays_to_parameters(first))
    rounds = ServerConfig(num_rounds=context.run_config["num-server-rounds"])
    secure = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2, max_weight=1000.0)
    workflow = DefaultWorkflow(fit_workflow=secure)
    workflow(grid, LegacyContext(context=context, config=rounds, strategy=strategy))

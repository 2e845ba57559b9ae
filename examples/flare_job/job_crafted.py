"""Three hospitals look at what the server sends them, which is a crafted model, and refuse to train it."""

from crafting import Imprint
from network import Network
from nvflare.app_opt.pt.job_config.fed_avg import FedAvgJob
from nvflare.job_config.defs import FilterType
from nvflare.job_config.script_runner import ScriptRunner

from glasshouse.integrations.flare import VetModel

if __name__ == "__main__":
    job = FedAvgJob(initial_model=Network(), n_clients=3, num_rounds=3, name="digits")
    job.to_clients(ScriptRunner("client.py"), tasks=["train"])
    job.to_clients(VetModel("network:Network", shape=(1, 8, 8), classes=10))
    job.to_server(Imprint(), filter_type=FilterType.TASK_DATA, tasks=["train"])
    job.simulator_run("flare-run-crafted", n_clients=3)

"""Three hospitals train a network with NVIDIA FLARE, whose server learns the sum of their updates alone."""

from network import Network
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.app_opt.pt.job_config.base_fed_job import BaseFedJob
from nvflare.job_config.script_runner import ScriptRunner

from glasshouse.integrations.flare import MaskUpdates, RecordRounds, SecureSum

if __name__ == "__main__":
    summing = SecureSum()
    job = BaseFedJob(initial_model=Network(), name="digits")
    job.to_server(FedAvg(num_clients=3, num_rounds=3, aggregator=summing))
    job.to_clients(ScriptRunner("client.py"), tasks=["train"])
    job.to_clients(MaskUpdates())
    job.to_server(
        RecordRounds(
            model="network:Network",
            shape=(1, 8, 8),
            classes=10,
            channel="sum",
            described=summing.described,
        )
    )
    job.simulator_run("flare-run-summed", n_clients=3)

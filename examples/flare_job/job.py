"""Three hospitals train a network with NVIDIA FLARE: `python job.py` runs it in FLARE's simulator."""

from network import Network
from nvflare.app_opt.pt.job_config.fed_avg import FedAvgJob
from nvflare.job_config.script_runner import ScriptRunner

if __name__ == "__main__":
    job = FedAvgJob(initial_model=Network(), n_clients=3, num_rounds=3, name="digits")
    job.to_clients(ScriptRunner("client.py"))
    job.simulator_run("flare-run", n_clients=3)

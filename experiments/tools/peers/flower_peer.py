"""Contestant: Flower's simulation with PyTorch clients, one thread each, as many at a time as there are cores."""

import importlib.metadata
import json
import os
import pathlib
import time

# Ray's processes find this folder by it; must be set before they start.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(pathlib.Path(__file__).resolve().parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)
os.environ.setdefault("RAY_DEDUP_LOGS", "0")

import cases
import serve
import torch_nets
from flower_client import Client
from flwr.client import ClientApp
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation


class Timed(FedAvg):
    """FedAvg that notes how long every round takes, from choosing its clients to their mean."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seconds, self.started = [], 0.0

    def configure_fit(self, server_round, parameters, client_manager):
        """Begins a round."""
        self.started = time.perf_counter()
        return super().configure_fit(server_round, parameters, client_manager)

    def aggregate_fit(self, server_round, results, failures):
        """Ends a round."""
        if failures:
            raise RuntimeError(f"{len(failures)} clients failed: {failures[0]}")
        found = super().aggregate_fit(server_round, results, failures)
        self.seconds.append(time.perf_counter() - self.started)
        return found


def prepare(request):
    """Returns the function that trains n rounds of FedAvg; what comes before the second round is not counted."""
    case = cases.case_of(request["case"])
    fields = json.dumps(request)
    network = torch_nets.build(case.model, case.shape, case.classes)
    initial = ndarrays_to_parameters([value.numpy() for value in network.state_dict().values()])

    def client(context: Context):
        return Client(fields, int(context.node_config["partition-id"])).to_client()

    def run(rounds):
        strategy = Timed(
            fraction_fit=case.clients / case.total,
            fraction_evaluate=0.0,
            min_fit_clients=case.clients,
            min_available_clients=case.total,
            initial_parameters=initial,
        )
        parts = lambda context: ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds + 1))
        run_simulation(
            ServerApp(server_fn=parts),
            ClientApp(client_fn=client),
            num_supernodes=case.total,
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
        )
        if len(strategy.seconds) != rounds + 1:
            raise RuntimeError(f"{len(strategy.seconds)} of {rounds + 1} rounds ended")
        return sum(strategy.seconds[1:])

    return run


if __name__ == "__main__":
    serve.serve(f"flower {importlib.metadata.version('flwr')}", prepare)

"""Contestant: pfl-research's simulation backend with its PyTorch model."""

import importlib.metadata
import time

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

from . import cases, torch_nets, worker


class Network(torch.nn.Module):
    """What pfl asks of a model: forward, loss, metrics."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)

    def loss(self, x, y, eval=False):
        self.train(not eval)
        return torch.nn.functional.cross_entropy(self(x), y)

    def metrics(self, x, y):
        return {"loss": Weighted(0.0, 1)}


class IterationTimer(TrainingProcessCallback):
    """Seconds of each iteration, without what pfl does before the first and after the last."""

    def __init__(self):
        self.seconds, self.started = [], 0.0

    def on_train_begin(self, *, model):
        self.started = time.perf_counter()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        now = time.perf_counter()
        self.seconds.append(now - self.started)
        self.started = now
        return False, Metrics()


def prepare(request):
    """Returns (run, facts) for FedAvg on one case; its batches run through the examples in stored order."""
    case = cases.from_fields(request["case"])
    torch.manual_seed(0)
    np.random.seed(0)
    x, y = torch_nets.tensors(*cases.examples(case))
    network = Network(torch_nets.build(case.model, case.shape, case.classes))
    model = PyTorchModel(
        network, local_optimizer_create=torch.optim.SGD, central_optimizer=torch.optim.SGD(network.parameters(), 1.0)
    )
    sampler = get_user_sampler("minimize_reuse", list(range(case.total)))
    clients = FederatedDataset(lambda user: Dataset([x[user], y[user]], user_id=user), sampler)
    backend = SimulatedBackend(training_data=clients, val_data=None, postprocessors=[])

    def run(rounds):
        clock = IterationTimer()
        FederatedAveraging().run(
            NNAlgorithmParams(
                central_num_iterations=rounds,
                evaluation_frequency=10**6,
                train_cohort_size=case.clients,
                val_cohort_size=0,
            ),
            backend,
            model,
            NNTrainHyperParams(local_num_epochs=case.epochs, local_learning_rate=case.lr, local_batch_size=case.batch),
            NNEvalHyperParams(local_batch_size=1000),
            callbacks=[clock],
        )
        return sum(clock.seconds)

    return run, {"parameters": sum(p.numel() for p in network.parameters())}


if __name__ == "__main__":
    worker.serve(prepare, {"version": f"pfl {importlib.metadata.version('pfl')}"})

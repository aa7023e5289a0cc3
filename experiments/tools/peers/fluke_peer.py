"""Contestant: fluke's FedAvg with PyTorch."""

import importlib.metadata

import cases
import numpy as np
import serve
import torch
import torch_nets
from fluke.algorithms import CentralizedFL
from fluke.client import Client
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.server import Server


class Federation(CentralizedFL):
    """FedAvg that can go on after `run`, which otherwise ends with a pass over all clients."""

    def finalize(self):
        pass


def prepare(request):
    """Returns the function that trains n rounds of FedAvg; a pass ends with what is left of a client's examples."""
    case = cases.case_of(request["case"])
    torch.manual_seed(0)
    np.random.seed(0)
    x, y = torch_nets.tensors(*cases.examples(case))
    optimizer, loss = OptimizerConfigurator({"name": "SGD", "lr": case.lr}), torch.nn.CrossEntropyLoss()
    loader = lambda i: FastDataLoader(x[i], y[i], num_labels=case.classes, batch_size=case.batch, shuffle=True)
    clients = [Client(i, loader(i), None, optimizer, loss, local_epochs=case.epochs) for i in range(case.total)]
    server = Server(torch_nets.build(case.model, case.shape, case.classes), None, clients, weighted=True)
    federation = Federation(case.total, None, {}, clients, server)

    def run(rounds):
        federation.run(rounds, case.clients / case.total)

    return run


if __name__ == "__main__":
    serve.serve(f"fluke {importlib.metadata.version('fluke-fl')}", prepare)

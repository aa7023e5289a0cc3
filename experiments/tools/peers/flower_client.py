"""Flower's client: PyTorch's network and loop. Imported by Ray's processes, each of which caches the examples."""

import functools
import json

import cases
import torch
import torch_nets
from flwr.client import NumPyClient


@functools.cache
def _examples(fields: str):
    return torch_nets.tensors(*cases.examples(cases.case_of(json.loads(fields)["case"])))


class Client(NumPyClient):
    """One client of a case, by the request as JSON and the client's number."""

    def __init__(self, fields: str, number: int):
        torch.set_num_threads(1)
        self.case = cases.case_of(json.loads(fields)["case"])
        self.x, self.y = (t[number] for t in _examples(fields))

    def fit(self, parameters, config):
        """Trains for a round from the parameters given; returns (parameters, examples, metrics)."""
        case = self.case
        network = torch_nets.build(case.model, case.shape, case.classes)
        network.load_state_dict(
            {name: torch.tensor(value) for name, value in zip(network.state_dict(), parameters, strict=True)}
        )
        optimizer = torch.optim.SGD(network.parameters(), lr=case.lr)
        for _ in range(case.epochs):
            for rows in torch.randperm(len(self.y)).split(case.batch):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(network(self.x[rows]), self.y[rows]).backward()
                optimizer.step()
        return [value.numpy() for value in network.state_dict().values()], len(self.y), {}

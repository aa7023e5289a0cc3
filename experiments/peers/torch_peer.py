"""Peer: a straightforward PyTorch loop over clients and steps."""

import time

import numpy as np
import torch

from . import cases, torch_nets, worker


def prepare(request):
    """Returns (run, facts) for FedAvg on one case: run(n) trains n rounds and returns their seconds.

    Fields: case; device; channels_last: whether images and kernels are laid out so in memory.
    """
    case = cases.from_fields(request["case"])
    device = request.get("device", "cpu")
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    x, y = (t.to(device) for t in torch_nets.tensors(*cases.examples(case)))
    model = torch_nets.build(case.model, case.shape, case.classes).to(device)
    if request.get("channels_last"):
        model = model.to(memory_format=torch.channels_last)
        each = x.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        x = each.unflatten(0, x.shape[:2])
    params = list(model.parameters())

    def one_round():
        start = [p.detach().clone() for p in params]
        total = [torch.zeros_like(p) for p in start]
        for client in cases.cohort(case, generator):
            with torch.no_grad():
                for p, s in zip(params, start):
                    p.copy_(s)
            for rows in torch.from_numpy(cases.order(case, generator)).to(device):
                loss = torch.nn.functional.cross_entropy(model(x[client, rows]), y[client, rows])
                gradients = torch.autograd.grad(loss, params)
                with torch.no_grad():
                    for p, g in zip(params, gradients):
                        p.sub_(g, alpha=case.lr)
            with torch.no_grad():
                for t, p, s in zip(total, params, start):
                    t.add_(p).sub_(s)
        with torch.no_grad():
            for p, s, t in zip(params, start, total):
                p.copy_(s + t / case.clients)

    def run(rounds):
        begun = time.perf_counter()
        for _ in range(rounds):
            one_round()
        if device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter() - begun

    return run, {"parameters": sum(p.numel() for p in params)}


if __name__ == "__main__":
    worker.serve(prepare, {"version": f"torch {torch.__version__}", "cuda": torch.cuda.is_available()})

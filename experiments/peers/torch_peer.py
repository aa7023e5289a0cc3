"""Peer: a straightforward PyTorch loop over clients and steps."""

import contextlib
import time

import numpy as np
import torch

from . import cases, torch_nets, worker


def set_precision(precision: str, device: str):
    """Sets what float32 products are computed in on a GPU and returns the context of a forward pass."""
    # The older of the two interfaces: it sets both, and code that asks the older one fails where only the newer is set.
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True  # the fastest algorithm is found by trial, as XLA does
    if precision == "bfloat16":
        return torch.autocast(device, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def prepare(request):
    """Returns (run, facts) for FedAvg on one case: run(n) trains n rounds and returns their seconds.

    Fields: case; device; precision (float32, tf32, bfloat16); channels_last: whether images and kernels are laid out so
    in memory.
    """
    case = cases.from_fields(request["case"])
    device = request.get("device", "cpu")
    forward = set_precision(request.get("precision", "float32"), device)
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
                with forward:
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

    facts = {"parameters": sum(p.numel() for p in params)}

    def run(rounds):
        begun = time.perf_counter()
        for _ in range(rounds):
            one_round()
        if device != "cpu":
            torch.cuda.synchronize()
            facts["device_peak_bytes"] = torch.cuda.max_memory_allocated()
        return time.perf_counter() - begun

    return run, facts


if __name__ == "__main__":
    worker.serve(prepare, {"version": f"torch {torch.__version__}", "cuda": torch.cuda.is_available()})

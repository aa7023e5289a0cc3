"""Contestant: a straightforward PyTorch loop over clients and steps."""

import contextlib

import cases
import numpy as np
import serve
import torch
import torch_nets


def prepare(request):
    """Returns the function that trains n rounds of FedAvg or DiLoCo (AdamW per worker, Nesterov's outer momentum).

    Fields: case; device; precision; channels_last: whether images and kernels are laid out so in memory; compile:
    whether the network is compiled.
    """
    case, device, precision = cases.case_of(request["case"]), request["device"], request["precision"]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True  # selects the fastest algorithm by timing, as XLA does
    low = precision == "bfloat16"
    forward = (lambda: torch.autocast(device, dtype=torch.bfloat16)) if low else contextlib.nullcontext
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    layout = torch.channels_last if request.get("channels_last") else torch.preserve_format
    model = torch_nets.build(case.model, case.shape, case.classes).to(device).to(memory_format=layout)
    x, y = torch_nets.tensors(*cases.examples(case))
    x, y = [each.to(device).contiguous(memory_format=layout) for each in x], [each.to(device) for each in y]
    params = list(model.parameters())
    network = torch.compile(model) if request.get("compile") else model
    inner, outer = [], None
    if case.algorithm == "diloco":
        inner = [torch.optim.AdamW(params, case.lr, weight_decay=0.0, fused=True) for _ in range(case.total)]
        outer = torch.optim.SGD(params, 0.7, momentum=0.9, nesterov=True)

    def one_round():
        start = [p.detach().clone() for p in params]
        total, trained = [torch.zeros_like(p) for p in start], 0
        for client in generator.choice(case.total, case.clients, replace=False):
            with torch.no_grad():
                for p, s in zip(params, start):
                    p.copy_(s)
            own_x, own_y = x[client], y[client]
            for rows in cases.batches(case, len(own_y), generator):
                rows = torch.from_numpy(rows).to(device)
                with forward():
                    loss = torch.nn.functional.cross_entropy(network(own_x[rows]), own_y[rows])
                gradients = torch.autograd.grad(loss, params)
                with torch.no_grad():
                    for p, g in zip(params, gradients):
                        p.grad = g
                        if not inner:
                            p.sub_(g, alpha=case.lr)
                if inner:
                    inner[client].step()
            with torch.no_grad():
                for t, p, s in zip(total, params, start):
                    t.add_(p, alpha=len(own_y)).sub_(s, alpha=len(own_y))
            trained += len(own_y)
        with torch.no_grad():
            for p, s, t in zip(params, start, total):
                p.copy_(s if outer else s + t / trained)
                p.grad = -t / trained if outer else None
        if outer:
            outer.step()

    def run(rounds):
        for _ in range(rounds):
            one_round()
        if device != "cpu":
            torch.cuda.synchronize()

    return run


if __name__ == "__main__":
    serve.serve(f"torch {torch.__version__}", prepare)

"""
Accuracy against privacy
========================

Differentially private federated averaging with two amounts of noise. Epsilon grows with the rounds; a mean over models
is post-processing and does not add to it. Needs the ``dp`` extra.
"""

import matplotlib.pyplot as plt

import fedwin
from fedwin.runs.metrics_log import read_lines

figure, axis = plt.subplots(figsize=(4.6, 3.8), layout="constrained")
for color, noise in (("#0072B2", 0.6), ("#D55E00", 1.2)):
    config = fedwin.Config(
        partition="dirichlet:alpha=0",
        num_clients=700,
        model="digits_mlp",
        batch_size=2,
        num_rounds=40,
        eval_every=4,
        weighting="uniform",
        sampling="poisson:rate=0.1",
        wrap=[f"dp:clip=0.6,noise={noise},delta=1e-4"],
        observe=["wima:window=10"],
        out_dir=f"runs/private_{noise}",
    )
    fedwin.run(config, quiet=True)
    lines = [line for line in read_lines(f"{config.out_dir}/metrics.jsonl") if line["round"]]
    spent = [line["epsilon"] for line in lines]
    for readout, dash in (("model", ":"), ("wima10", "-")):
        accuracies = [100 * line[readout]["accuracy"] for line in lines]
        axis.plot(spent, accuracies, dash, color=color, label=f"noise {noise}, {readout}")
axis.set(xlabel="epsilon (delta = 1e-4)", ylabel="test accuracy (%)")
figure.legend(loc="outside lower center", ncols=2)

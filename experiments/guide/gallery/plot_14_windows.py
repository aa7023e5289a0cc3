"""
How long a window should be
===========================

Ten windows in one run: read-outs share the trajectory, so ten of them cost one training. Short windows keep the jumps;
long ones keep models from long ago.
"""

import matplotlib.pyplot as plt

import fedwin

windows = [1, 2, 3, 5, 8, 12, 20, 30, 45, 60]
config = fedwin.Config(
    partition="dirichlet:alpha=0",
    clients_per_round=5,
    model="digits_mlp",
    local_epochs=2,
    batch_size=7,
    client_lr=0.05,
    num_rounds=60,
    final_evals=15,
    observe=[f"wima:window={window}" for window in windows],
    out_dir="runs/windows",
)
over_seeds = fedwin.run(config, quiet=True)["over_seeds"]

figure, axis = plt.subplots(figsize=(4.6, 3.2))
accuracies = [100 * over_seeds[f"wima{window}"]["accuracy"]["mean"] for window in windows]
axis.plot(windows, accuracies, "o-", label="mean of W models")
axis.axhline(100 * over_seeds["model"]["accuracy"]["mean"], color="gray", linestyle="--", label="model")
axis.set(xlabel="window W (rounds)", ylabel="accuracy of rounds 46 to 60 (%)", xscale="log")
axis.set_xticks([], minor=True)
axis.set_xticks(windows, [str(window) for window in windows])
axis.legend()

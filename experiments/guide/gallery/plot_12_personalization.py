"""
Who gains from fine-tuning
==========================

Each point is a client: the accuracy of the server model on its held-out examples, and of the same model after one
epoch on its training examples. Points above the diagonal gain; darker ones are several clients.
"""

import matplotlib.pyplot as plt

import fedwin

config = fedwin.Config(
    partition="dirichlet:alpha=0.1",
    num_clients=30,
    model="digits_mlp",
    batch_size=10,
    local_epochs=2,
    num_rounds=15,
    val_fraction=0.3,
    eval_clients="all",
    personalize=["finetune"],
    out_dir="runs/personal",
)
fedwin.run(config, quiet=True)

table = fedwin.client_table("runs/personal")
figure, axis = plt.subplots(figsize=(4, 4))
axis.plot([0, 1], [0, 1], color="gray", linewidth=1)
axis.scatter(table["model.accuracy"], table["model.finetune.accuracy"], alpha=0.3)
axis.set(
    xlabel="accuracy of the server model",
    ylabel="after fine-tuning",
    aspect="equal",
    xlim=(0.3, 1.03),
    ylim=(0.3, 1.03),
)

"""Analysis of finished runs: lines and planes between models, factors of the loss, CKA, forgetting, accuracy curves.

Everything here is a function of finished models, outputs or accuracies, computed on the host in float64 for inputs of
any precision; nothing takes part in training. `evaluate` is the caller's function, model -> any tree of numbers:

    probe = jax.jit(evaluate.make_probe(model, normalize, measure))
    on_line = [[1 - s, s] for s in (0, 0.5, 1)]
    mixtures([first, second], on_line, lambda model: probe({"it": model}, test)["it"])      # {'loss': [3], ...}
"""

from fedwin.analysis.accuracies import mean_last, round_to_round_std, rounds_to_target, speedup
from fedwin.analysis.batch_norm import recomputed
from fedwin.analysis.cka import linear_cka, mean_cka
from fedwin.analysis.factors import Factors, by_ownership, client_losses, factors, locality
from fedwin.analysis.forgetting import forgetting, mean_forgetting, per_model
from fedwin.analysis.intervals import Interval, mean_interval, p_value, paired_interval, pooled_gains, rejected
from fedwin.analysis.landscape import Place, Plane, corners, grid, place, plane, point
from fedwin.analysis.models import mix, mixtures, vector
from fedwin.analysis.skew import gini, label_distances

__all__ = [
    "Factors", "Interval", "Place", "Plane", "by_ownership", "client_losses", "corners", "factors", "forgetting",
    "gini", "grid", "label_distances", "linear_cka", "locality", "mean_cka", "mean_forgetting", "mean_interval",
    "mean_last", "mix", "mixtures", "p_value", "paired_interval", "per_model", "place", "plane", "point",
    "pooled_gains", "recomputed", "rejected", "round_to_round_std", "rounds_to_target", "speedup", "vector",
]  # fmt: skip

"""The registry of algorithms: builders `builder(setting, solve, *, hyper=default, ...) -> core.Algorithm`."""

from fedwin.registry import Registry

# down, up: models sent to and from one client in one round, numbers beside them, what is switched on ('2 (3 with
# momentum)', '1 + C d numbers'); reported: the overhead that the GHB paper prints; server, client: models that each
# keeps; degenerate: hyper-parameters under which the method is FedAvg (None: never in general); spans: the parameter
# that says how many rounds the method needs before it differs from FedAvg.
ALGORITHMS = Registry(
    "algorithm",
    columns={"down / up": "{down} / {up}", "reported": "{reported}", "server / client keep": "{server} / {client}"},
    rule="rule",
    common={
        "server_lr": "server learning rate eta.",
        "weighting": "p_i proportional to N_i ('samples') or equal ('uniform').",
    },
    down="?",
    up="?",
    reported="-",
    server="?",
    client="?",
    degenerate=None,
    warmup_horizon="",
)

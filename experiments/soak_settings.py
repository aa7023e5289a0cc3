"""What the soak trains: small runs with a random algorithm, wrapper, observer, residences and strategy."""

import random
import shlex

from .compare import every_method

ROUNDS = 120
COMMON = (
    "--dataset=digits",
    "--num_clients=20",
    "--clients_per_round=3",
    "--batch_size=16",
    f"--num_rounds={ROUNDS}",
)
WRAPPERS = ((), (), ("ima:window=4,start=0.5",), ("swa:start=0.5,cycle=4",), ("clip:norm=1",))
OBSERVERS = (
    (),
    ("wima:window=5",),
    ("wima:window=3", "wima:window=10"),
    ("ema:decay=0.9",),
    ("swa:start=0.5,cycle=2",),
)
STRATEGIES = ("default", "vmapped", "chunked:k=1", "chunked:k=2", "sharded:devices=2,k=1")


def methods() -> list[list[str]]:
    """Returns the flags of every algorithm, in the variants of `fedwin compare`."""
    found = []
    for text in every_method():
        algorithm, *own = shlex.split(text)
        own = [flag for flag in own if not flag.startswith(("--partition=", "--wrap="))]
        # WSM needs clients of several classes.
        many = any(flag.startswith("--loss=") for flag in own)
        found.append([f"--algorithm={algorithm}", f"--partition=dirichlet:alpha={0.3 if many else 0}", *own])
    return found


def drawn(rng: random.Random) -> list[str]:
    """Returns the flags of a run, except its directory."""
    flags = [*COMMON, *rng.choice(methods())]
    flags += [f"--wrap={name}" for name in rng.choice(WRAPPERS)]
    flags += [f"--observe={name}" for name in rng.choice(OBSERVERS)]
    if rng.random() < 0.1:  # diverges
        flags = [flag for flag in flags if not flag.startswith("--client_lr")] + ["--client_lr=1e6"]
    return [
        *flags,
        f"--model=digits_mlp:hidden={rng.choice((4, 8, 12))}",
        f"--strategy={rng.choice(STRATEGIES)}",
        f"--examples={rng.choice(('device', 'stream'))}",
        f"--table={rng.choice(('device', 'host', 'file'))}",
        f"--window={rng.choice(('device', 'host', 'file'))}",
        f"--seeds={rng.choice(('0', '1', '0,1'))}",
        f"--eval_every={rng.randint(1, 8)}",
        f"--final_evals={rng.randint(1, 20)}",
        f"--checkpoint_every={rng.choice((0, 6, 8, 15, 30))}",
        f"--keep_checkpoints={rng.choice((1, 2, 3, 3))}",
        f"--rounds_per_dispatch={rng.randint(3, 12)}",
    ]

"""Studies of the benchmark (cases, windows, client tables, algorithms ...), each of which returns records."""

import dataclasses
from collections.abc import Callable

from fedwin.errors import UserError

from .cases import CASES, Case, scaled
from .crew import Crew
from .measure import Effort, TimedTask, interleaved

DEFAULT = "fedwin default"
# (algorithm, placement of its client table) in the study of scale.
SCALED = (("fedavg", "auto"), ("scaffold", "file"), ("fedhbm", "file"))
# Algorithms of the FedJAX program: FedJAX's own, and those of fedwin.
OWN = "FedJAX's FedAvg"
BRIDGED = ("fedavg", "scaffold", "fedhbm")


def case(crew: Crew, case: Case, effort: Effort, gemm_size: int, say: Callable) -> list[dict]:
    """Times a case with every contestant, alternating with a matrix product.

    Args:
      crew: the contestants.
      case: the workload.
      effort: how long to measure.
      gemm_size: side of the matrices.
      say: called with each line of progress.
    """
    say(f"{case.name}: {case}")
    gemm = TimedTask("gemm", crew.fedwin(1), {"kind": "gemm", "size": gemm_size})
    timings = interleaved([*crew.contestants(case), gemm], effort, say)
    product = timings.pop("gemm")
    peak = product.facts["flops"] / min(product.seconds)
    if DEFAULT not in timings:
        raise UserError(f"case {case.name}: fedwin itself could not run it; see the lines above.")
    best = timings[DEFAULT]
    records = []
    for label, timing in timings.items():
        flops = best.facts["flops"] / timing.median
        record = {"case": case.name, "cohort": str(case), "who": label} | timing.summary()
        record |= {
            "times_default": timing.ratio(best),
            "target": dict(case.targets).get(label),
            "gflops_per_second": flops / 1e9,
            "gemm_peak_gflops_per_second": peak / 1e9,
            # The peak is that of the CPU.
            "of_gemm_peak": None if label.endswith("gpu") else flops / peak,
            "parameters": timing.facts["parameters"],
        }
        for name in ("strategy", "traces", "compiled_later"):
            record[name] = timing.facts.get(name)
        records.append(record)
    return records


def dispatches(crew: Crew, rounds: int) -> dict:
    """Trains the digits case for many rounds without evaluation; counts dispatches and compilations.

    Args:
      crew: the contestants.
      rounds: of each of two requests.
    """
    worker = crew.fedwin()
    worker.ask(task="stretch", prepare={"case": dataclasses.asdict(CASES["digits"])})
    worker.ask(task="stretch", rounds=rounds)
    worker.ask(task="stretch", rounds=rounds)
    facts = worker.ask(facts="stretch")
    worker.ask(drop="stretch")
    per_round = facts["dispatches"] / facts["rounds"]
    return {
        "rounds": facts["rounds"],
        "dispatches_per_round": per_round,
        "traces": facts["traces"],
        "compiled_later": facts["compiled_later"],
    }


def evaluation(crew: Crew, some: list[Case], images: int, effort: Effort, say: Callable) -> list[dict]:
    """Times one pass of a model over test images, in fedwin and PyTorch.

    Args:
      crew: the contestants.
      some: cases whose models are evaluated.
      images: of a pass.
      effort: how long to measure.
      say: called with each line of progress.
    """
    records = []
    for each in some:
        say(f"evaluation: {each.name}, {images:,} images")
        fields = dataclasses.asdict(dataclasses.replace(each, total=1, clients=1, examples=images))
        request = {"kind": "evaluation", "case": fields}
        tasks = [TimedTask("fedwin", crew.fedwin(), request)]
        if (worker := crew.peer("torch")) is not None:
            tasks += [TimedTask("torch", worker, request)]
            tasks += [TimedTask("torch channels-last", worker, request | {"channels_last": True})]
        timings = interleaved(tasks, effort, say)
        for who, timing in timings.items():
            ratio = timing.ratio(timings["fedwin"])
            records.append({"case": each.name, "who": who, "times_fedwin": ratio} | timing.summary())
    return records


def fedjax_program(crew: Crew, case: Case, effort: Effort, say: Callable) -> list[dict]:
    """Times a FedJAX program with cohorts of changing size: FedJAX's own FedAvg, and those of fedwin.as_fedjax.

    Args:
      crew: the peers.
      case: with the largest cohort and the most examples of a client.
      effort: how long to measure; a turn is one round, so that all tasks have the same cohort.
      say: called with each line of progress.
    """
    say(f"a FedJAX program on {case.name}, at most {case}")
    worker = crew.peer("fedjax")
    if worker is None:
        return []
    request = {"kind": "program", "case": dataclasses.asdict(case)}
    tasks = [TimedTask(OWN, worker, request | {"algorithm": ""})]
    tasks += [TimedTask(f"as_fedjax {name}", worker, request | {"algorithm": name}) for name in BRIDGED]
    timings = interleaved(tasks, dataclasses.replace(effort, turn_seconds=0), say)
    faster = lambda timing: timings[OWN].ratio(timing) if OWN in timings else float("nan")
    return [{"algorithm": who, "times_faster": faster(timing)} | timing.summary() for who, timing in timings.items()]


def windows(crew: Crew, effort: Effort, sizes: list[tuple[int, ...]], say: Callable) -> list[dict]:
    """Times window read-outs of LeNet-5's 0.8 M parameters, with training of negligible cost.

    Args:
      crew: the contestants.
      effort: how long to measure.
      sizes: window sizes of each task.
      say: called with each line of progress.
    """
    say("windows: 0.8 M parameters, trivial training")
    fields = dataclasses.asdict(dataclasses.replace(scaled(CASES["lenet5"], "2x1x1"), total=2))
    label = lambda sizes: "W = " + ", ".join(map(str, sizes)) if sizes else "none"
    tasks = [TimedTask(label(s), crew.fedwin(), {"kind": "windows", "case": fields, "windows": s}) for s in sizes]
    timings = interleaved(tasks, effort, say)
    return [{"windows": label} | timing.summary() for label, timing in timings.items()]


def tables(crew: Crew, effort: Effort, names: list[str], totals: list[int], say: Callable) -> list[dict]:
    """Times algorithms with a client table for growing numbers of clients and a fixed cohort.

    Args:
      crew: the contestants.
      effort: how long to measure.
      names: of algorithms.
      totals: numbers of clients.
      say: called with each line of progress.
    """
    records = []
    for name in names:
        say(f"client table: {name}")
        tasks = []
        for total in totals:
            small = Case("digits", "digits_mlp", (8, 8, 1), 10, total, 10, 10, 5)
            request = {"case": dataclasses.asdict(small), "algorithm": name}
            tasks.append(TimedTask(f"{total} clients", crew.fedwin(), request))
        for task, timing in zip(tasks, (timings := interleaved(tasks, effort, say)).values()):
            first = next(iter(timings.values()))
            records.append(
                {"algorithm": name, "clients": task.label, "times_first": timing.ratio(first)} | timing.summary()
            )
    return records


def scale(crew: Crew, effort: Effort, totals: list[int], cohorts: list[int], say: Callable) -> list[dict]:
    """Times complete runs for growing numbers of clients and then for growing cohorts, each in a separate process.

    Args:
      crew: the peers.
      effort: how long to measure.
      totals: numbers of clients, ascending, with cohorts of 10.
      cohorts: clients per round with the last of `totals`.
      say: called with each line of progress.
    """
    chunk, devices = 64, 1
    fixed = [(name, total, 10, "default", table) for name, table in SCALED for total in totals]
    grown = [("fedavg", totals[-1], cohort, f"chunked:k={min(chunk, cohort)}", "auto") for cohort in cohorts]
    records = []
    for runs in (*(fixed[i : i + len(totals)] for i in range(0, len(fixed), len(totals))), grown):
        tasks = []
        for name, total, cohort, strategy, table in runs:
            request = {"algorithm": name, "clients": total, "cohort": cohort, "strategy": strategy}
            request["config"] = {"table": table}
            label = f"{name}, {total} clients, {cohort} per round"
            worker = crew.fedwin(devices if runs is grown else 0, alone=label)
            tasks.append(TimedTask(label, worker, {"kind": "scale"} | request))
        say(f"scale: {tasks[0].label} and more")
        for task, timing in zip(tasks, (timings := interleaved(tasks, effort, say)).values()):
            first = next(iter(timings.values()))
            records.append(
                {key: task.request[key] for key in ("algorithm", "clients", "cohort")}
                | {"start s": f"{timing.facts['start_seconds']:.2f}", "MB": timing.facts["peak_bytes"] // 10**6}
                | {"times_first": timing.ratio(first)}
                | timing.summary()
            )
            task.worker.close()
    return records


def places(crew: Crew, effort: Effort, quick: bool, say: Callable) -> list[dict]:
    """Times full windows on the device, on the host and in a file against none, with LeNet-5.

    Args:
      crew: the contestants.
      effort: how long to measure.
      quick: whether to use short windows.
      say: called with each line of progress.
    """
    window, clients, stretch = (3, 2, 2) if quick else (100, 2, 80)
    kinds = [{"window": kind} for kind in ("device", "host", "file")]
    observed = [{"observe": [f"wima:window={window}"]} | kind for kind in kinds]
    momentum = [{"algorithm": f"ghb:tau={window}"} | kind for kind in kinds]
    records = []
    for none, others in (({}, observed), ({"algorithm": "ghb:tau=1"}, momentum)):
        tasks = []
        for config in (none, *others):
            config = {"model": "lenet5", "batch_size": 32, "rounds_per_dispatch": 20} | config
            what = config.get("observe", [config.get("algorithm", "no window")])[0]
            label = what + (f", {config['window']}" if "window" in config else "")
            request = {
                "kind": "scale",
                "algorithm": config.pop("algorithm", "fedavg"),
                "clients": 100,
                "cohort": clients,
            }
            request |= {"strategy": "default", "config": config, "shape": [32, 32, 3], "examples": 8 if quick else 32}
            # Enough rounds that dispatches reach their full length and rows are prefetched.
            request |= {"before": window + 1, "least": clients * stretch}
            tasks.append(TimedTask(label, crew.fedwin(1, alone=label), request))
        say(f"places of windows: {tasks[0].label} and more")
        for task, timing in zip(tasks, (timings := interleaved(tasks, effort, say)).values()):
            ratio = timing.ratio(next(iter(timings.values())))
            records.append({"window": task.label, "times_none": ratio} | timing.summary())
            task.worker.close()
    return records


def algorithms(crew: Crew, case: Case, effort: Effort, names: list[str], say: Callable) -> list[dict]:
    """Times algorithms on a case; FedAvg is part of every group, so that ratios are paired.

    Args:
      crew: the contestants.
      case: the workload.
      effort: how long to measure.
      names: of algorithms.
      say: called with each line of progress.
    """
    records = []
    group = 6  # small groups, so that compared tasks run close in time
    others = [name for name in names if name != "fedavg"]
    for start in range(0, len(others), group):
        say(f"algorithms on {case.name}, {case}: {start + 1} to {min(start + group, len(others))} of {len(others)}")
        fields = dataclasses.asdict(case)
        some = ["fedavg", *others[start : start + group]]
        tasks = [TimedTask(name, crew.fedwin(), {"case": fields, "algorithm": name}) for name in some]
        timings = interleaved(tasks, effort, say)
        for name, timing in timings.items():
            if name != "fedavg" or not start:
                records.append(
                    {"case": case.name, "algorithm": name, "times_fedavg": timing.ratio(timings["fedavg"])}
                    | timing.summary()
                )
    return records

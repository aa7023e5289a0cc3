"""The benchmark's records as text."""

from typing import Any

from .peers import studies
from .peers.measure import table

# Studies with a small table, and its first columns.
SMALL = {
    "evaluation": ["case", "who"],
    "windows": ["windows"],
    "tables": ["algorithm", "clients"],
    "places": ["window"],
    "scale": ["algorithm", "clients", "cohort", "start s", "MB"],
    "algorithms": ["case", "algorithm"],
    "fedjax_program": ["algorithm"],
}


def report_text(report: dict[str, Any]) -> str:
    """Returns the whole report: machine, cases, dispatches, studies."""
    load = f"{report['load_before'][0]:.1f} before, {report['load_after'][0]:.1f} after"
    parts = [f"{report['machine']}; gpu: {report['gpu']}; load average {load}"]
    if report["cases"]:
        parts.append(case_table(report["cases"]))
    if "dispatches" in report:
        parts.append(
            "digits, {rounds} rounds without evaluation: {dispatches_per_round:.3f} dispatches per round, "
            "{traces} trace(s), {compiled_later} compilation(s) after the first dispatch".format(**report["dispatches"])
        )
    parts += [small_table(report[name], *columns) for name, columns in SMALL.items() if report.get(name)]
    return "\n\n".join(parts)


def ms(record: dict[str, Any]) -> list[str]:
    """Returns milliseconds per round and their quartiles."""
    return [f"{record['ms_per_round']:.2f}", "{:.2f} .. {:.2f}".format(*record["quartiles_ms"])]


def case_table(records: list[dict[str, Any]]) -> str:
    """Returns a row per case and contestant."""
    head = ["case", "cohort", "who", "rounds/s", "ms per round", "quartiles", "fedwin is faster", "wanted", "of peak"]
    rows = []
    for r in records:
        faster = f"{r['times_default']:.2f} x" if r["who"] != studies.DEFAULT else f"({r['strategy']})"
        share = "-" if r["of_gemm_peak"] is None else f"{100 * r['of_gemm_peak']:.0f} %"
        target = f"{r['target']:g} x" if r["target"] else ""
        rows.append([r["case"], r["cohort"], r["who"], f"{r['rounds_per_second']:.2f}", *ms(r), faster, target, share])
    return table(head, rows)


def small_table(records: list[dict[str, Any]], *columns: str) -> str:
    """Returns the named fields, then milliseconds per round, quartiles and the ratio."""
    ratio = next((name for name in records[0] if name.startswith("times_")), None)
    head = [*columns, "ms per round", "quartiles", *([ratio.replace("times_", "times ")] if ratio else [])]
    rows = [[*(r[c] for c in columns), *ms(r), *([f"{r[ratio]:.2f}"] if ratio else [])] for r in records]
    return table(head, rows)

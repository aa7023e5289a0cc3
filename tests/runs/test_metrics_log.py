"""metrics.jsonl and TensorBoard events."""

import json

from fedwin.files import json_value, write_json
from fedwin.runs.metrics_log import MetricsLog, read_lines


def line(seed, round):
    return {
        "seed": seed,
        "round": round,
        "model": {"accuracy": 0.5, "loss": float("nan")},
        "train_loss": None,
        "seconds": 1.0,
    }


def events(directory, seed):
    from tensorboardX.proto import event_pb2
    from tensorboardX.record_writer import RecordWriter  # noqa: F401 (asserts that the package is there)

    found = []
    for path in sorted((directory / "tensorboard" / f"seed_{seed}").glob("events*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            length = int.from_bytes(data[at : at + 8], "little")
            event = event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
            found += [(value.tag, event.step) for value in event.summary.value]
            at += 16 + length
    return found


def test_lines_are_truncated_by_seed_and_round_and_incomplete_ones_removed(tmp_path):
    book = MetricsLog(tmp_path)
    book.truncate_after(0, -1)
    for round in (5, 10, 15):
        book.write(line(0, round))
    book.truncate_after(1, -1)
    book.write(line(1, 5))
    book.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"seed": 1, "round": 10, "mod')  # a kill in the middle of a write
    book = MetricsLog(tmp_path)
    book.truncate_after(0, 10)
    book.truncate_after(1, 5)
    book.write(line(1, 10))
    book.close()
    assert [(x["seed"], x["round"]) for x in read_lines(tmp_path / "metrics.jsonl")] == [
        (0, 5),
        (0, 10),
        (1, 5),
        (1, 10),
    ]
    assert [step for tag, step in events(tmp_path, 0) if tag == "model/accuracy"] == [5, 10]
    assert [step for tag, step in events(tmp_path, 1) if tag == "model/accuracy"] == [5, 10]


def test_nan_is_written_so_that_any_parser_reads_it(tmp_path):
    write_json(tmp_path / "a.json", {"x": float("nan"), "y": [float("inf"), -float("inf")], 3: 1})
    text = (tmp_path / "a.json").read_text()
    assert json.loads(text, parse_constant=lambda c: 1 / 0) == {"x": "nan", "y": ["inf", "-inf"], "3": 1}
    assert json_value({"a": (1, 2)}) == {"a": [1, 2]}

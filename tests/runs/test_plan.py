"""Plans: requirements are computed from shapes, and errors name the largest part."""

import dataclasses
import types

import jax

from fedwin import tree
from fedwin.engine.strategy import Strategy
from fedwin.residence.rows import HOST_TABLE_BYTES, row_shapes, table_kind
from fedwin.runs import machine
from fedwin.runs.config import Config
from fedwin.runs.machine import Memory, available
from fedwin.runs.plan import Requirements, make_plan
from fedwin.runs.prepare import prepare
from tests.refusals import refused

BASE = Config(dataset="digits", model="digits_mlp", num_clients=20, clients_per_round=4, num_rounds=50)


def of(strategy=None, **changes) -> Requirements:
    return make_plan(prepare(dataclasses.replace(BASE, **changes)), strategy or Strategy()).requirements


def test_parts_are_those_of_the_state():
    prepared = prepare(dataclasses.replace(BASE, algorithm="scaffold", observe=["wima:window=20"]))
    found, run = make_plan(prepared, Strategy()).requirements, prepared.start(0, 20)
    held = {name: tree.nbytes(getattr(run, name)) for name in ("state", "observers", "table")}
    assert found.device["algorithm"] == held["state"] and found.device["observers"] == held["observers"]
    assert found.device["client table"] >= held["table"] > 0
    assert found.device["examples"] >= prepared.dataset.train["x"].nbytes
    assert found.device["test set"] >= prepared.dataset.test["x"].nbytes
    assert found.device["model"] == tree.nbytes((run.params, run.stats))


def test_what_flags_change():
    plain = of()
    assert of(Strategy(None)).device["clients in training"] == 4 * plain.device["clients in training"]
    assert of(observe=["wima:window=40"]).device["observers"] > of(observe=["wima:window=20"]).device["observers"]
    on_host = of(algorithm="scaffold", table="host", num_clients=100, rounds_per_dispatch=1)
    assert on_host.host["client table"] > on_host.device["client table"] > 0
    longer = of(algorithm="scaffold", table="host", num_clients=100, rounds_per_dispatch=3)
    more = lambda part: getattr(longer, part)["client table"] - getattr(on_host, part)["client table"]
    assert more("host") == 2 * more("device") > 0  # the dispatch that is written back, and the prefetched one
    in_file = of(algorithm="scaffold", table="file", num_clients=100, rounds_per_dispatch=1)
    assert 0 < in_file.host["client table"] < on_host.host["client table"]
    assert in_file.host["checkpoint"] < on_host.host["checkpoint"]
    assert of(examples="stream", rounds_per_dispatch=1).device["examples"] < plain.device["examples"]


def test_rows_go_where_there_is_room_for_them():
    prepared = prepare(dataclasses.replace(BASE, algorithm="scaffold"))
    params = jax.eval_shape(prepared.model.init, jax.random.key(0)).params
    size = tree.nbytes(row_shapes(prepared.algorithm, params))
    kind = lambda choice, clients, seen, memory: table_kind(prepared.algorithm, params, clients, choice, (seen, memory))
    many = HOST_TABLE_BYTES // size + 1
    assert kind("auto", many - 1, many, 1) == "device" and kind("auto", many, many, 2 * size * many) == "host"
    assert kind("auto", many, 1000, 2000 * size) == "host" and kind("auto", many, 1001, 2000 * size) == "file"
    assert [kind(choice, 1, 1, 1) for choice in ("device", "host", "file")] == ["device", "host", "file"]
    plain = prepare(BASE)
    assert table_kind(plain.algorithm, params, many, "file", (many, 1)) == "device"  # FedAvg has no rows


def test_the_largest_part_is_named_with_its_remedy():
    found = of(observe=["wima:window=40"])
    assert found.fits(Memory(10**10)) and not found.fits(Memory(10**6))
    words = "observers: .* MB .* and 1.0 MB are available; set --window=file, or shorten the windows of --observe"
    refused(words, found.check_memory, Memory(10**6))
    refused("device memory", found.check_memory, Memory(10**10, 10**6))
    assert found.fits(Memory(10**10, 10**10))


def test_memory_of_this_host_its_device_and_its_container(tmp_path, monkeypatch):
    assert available().host > 1 << 26 and available().device is None
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    stats = {"bytes_limit": 1000, "bytes_in_use": 300}
    monkeypatch.setattr(jax, "local_devices", lambda: [types.SimpleNamespace(memory_stats=lambda: stats)])
    assert available().device == 700
    texts = {"memory.max": "1000", "memory.current": "700", "memory.stat": "anon 5\ninactive_file 100"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert machine._cgroup_memory(tmp_path) == 400
    (tmp_path / "memory.max").write_text("max")
    assert machine._cgroup_memory(tmp_path) is None and machine._cgroup_memory(tmp_path / "gone") is None


def test_files_that_do_not_fit_on_the_disk_are_named():
    words = "^checkpoints: .* of disk space that .*; lower --keep_checkpoints, or choose"
    refused(words, of(algorithm="scaffold").check_disk, 1000)
    kept = of(keep_rounds=[0, 10, 30, 50]).disk["checkpoints"]  # besides rounds 0 and 50
    assert kept == 2 * of().disk["checkpoints"] > 0
    in_file = of(algorithm="scaffold", table="file", num_clients=1000, num_rounds=5000)
    refused("^rows in files: .*; lower --clients_per_round or --num_rounds", in_file.check_disk, 1000)

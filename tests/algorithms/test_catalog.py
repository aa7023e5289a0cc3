"""Registry entries of all algorithms: communication, table, citations, choices."""

import itertools
import math
import pathlib
import re

import jax
import optax
import pytest

from fedwin import citations, testing, tree
from fedwin.algorithms import ALGORITHMS
from fedwin.engine.communication import communication
from fedwin.losses import LOSSES
from fedwin.observers import OBSERVERS
from fedwin.runs.config import Config
from fedwin.wrappers import WRAPPERS
from tests.refusals import refused

COST = re.compile(r"^(\d+)(?: \+ (.+) numbers?)?(?: \((\d+)(?: / ([A-Z]))? with .+\))?$")


def amounts(cost, model, **sizes):
    """Returns the numbers that '1', '2 (3 with momentum)', '1 (1 / F with parts)' or '1 + C d numbers' stand for."""
    assert (match := COST.match(cost)), f"down or up is {cost!r}: register it with **facts(down=..., up=...)"
    always, product, switched, parts = match.groups()
    terms = product.split(" + ") if product else []
    beside = sum(math.prod(sizes[f] if f in sizes else int(f) for f in term.split()) for term in terms)
    divided = [(always, 1), (switched, sizes[parts] if parts else 1)]
    return {int(models) * model // share + beside for models, share in divided if models}


@pytest.mark.parametrize("name", ALGORITHMS.entries)
def test_what_travels_is_what_the_entry_says(name):
    """All variants together take all the values of an entry such as '2 (3 with momentum)', and no others."""
    p, entry = testing.classification(), ALGORITHMS.entries[name]
    size = lambda params: tree.nbytes(params) // 4
    matrices = size([leaf for leaf in jax.tree.leaves(p.variables.params) if leaf.ndim > 1])
    variants = [p.build(choice) for choice in entry.instances]
    counted = [communication(a, p.variables.params, p.store, p.n_max, p.variables.stats) for a in variants]
    for way in ("down", "up"):
        # The model's statistics, which are no parameters, travel once each way.
        found = {getattr(bytes, way) // 4 - size(p.variables.stats) for bytes in counted}
        counts = dict(C=3, d=4, F=2, M=matrices, A=len(jax.tree.leaves(p.variables.params)))
        assert found == amounts(entry.facts[way], size(p.variables.params), **counts), way
    # A server that stores one model has no state.
    stored = jax.eval_shape(variants[0].init, p.variables.params, jax.random.key(0))
    assert "optimizer" in entry.facts["server"] or (entry.facts["server"] == "1") == tree.is_empty(stored)


def test_the_printed_overheads_are_registered():
    reported = {n: e.facts["reported"] for n, e in ALGORITHMS.entries.items() if e.facts["reported"] != "-"}
    assert reported == {
        **dict.fromkeys(("fedavg", "fedavgm", "fedprox", "feddyn", "adabest", "local_ghb", "fedhbm"), "1x"),
        **dict.fromkeys(("fedcm", "fedadc", "ghb"), "1.5x"),
        **dict.fromkeys(("scaffold", "mimelite"), "2x"),
        "mime": "2x (3x)",
    }


def test_a_status_is_backed_by_a_test():
    """A method that is not 'new' is named in a file of golden values, and the authors' code is that of one."""
    here, golden = pathlib.Path(__file__).parent, pathlib.Path(__file__).parents[1] / "golden"
    general = ("test_catalog.py", "test_client_rate_zero.py", "test_limits.py")
    files = [path for path in here.glob("test_*.py") if path.name not in general]
    text = "".join(path.read_text() for path in (*files, golden / "golden_wima_ghb.json"))
    status = {name: entry.facts["status"] for name, entry in ALGORITHMS.entries.items()}
    assert set(status.values()) <= {"paper", "checked", "new"}
    assert [name for name, said in status.items() if said != "new" and not re.search(rf"\b{name}\b", text)] == []
    assert [name for name, said in status.items() if said == "paper"] == ["agnostic"]  # test_fedjax_parity.py


def test_the_plain_table_has_a_line_for_every_method_and_details_explain_every_hyperparameter():
    assert [line.split()[0] for line in ALGORITHMS.table("plain").splitlines()[1:]] == sorted(ALGORITHMS)
    for name, entry in ALGORITHMS.entries.items():
        text = ALGORITHMS.details(name)
        said = " ".join(text.split())
        assert max(map(len, text.splitlines())) <= 120 and said.startswith(f"{name}: {entry.summary} status: ")
        for h in entry.hyperparameters:
            assert h.meaning and f" {h.name}=" in said and h.description in said
        for paper in entry.papers:
            assert paper.title in said and paper.link in said


def test_a_users_algorithm_is_listed_and_cited():
    """Registered by the call form alone."""

    def mine(setting, solve, *, beta=0.5):
        """Half of FedAvg."""
        return ALGORITHMS["fedavg"](setting, solve, server_lr=beta)

    ALGORITHMS.register("mine", mine)
    assert "| mine | Half of FedAvg | beta=0.5 | new | ? / ? | - | ? / ? | - |" in ALGORITHMS.table()
    assert "\nmine " in ALGORITHMS.table("plain")
    assert citations.citation("mine") == "% mine was registered without a paper."
    text = citations.citation(Config(algorithm="mine:beta=0.1", wrap=["swa"]))
    assert text == "% mine was registered without a paper.\n\n" + citations.citation("swa")


@pytest.mark.parametrize("name", [*ALGORITHMS, *WRAPPERS, *OBSERVERS, *LOSSES, *citations.FIELDS["partition"]])
def test_what_has_a_paper_can_be_cited(name):
    if name in ("clip", "cross_entropy", "mse", "huber", "csv", "domain", "natural"):
        assert citations.citation(name) == f"% {name} was registered without a paper."
        return
    text = citations.citation(name + ":window=3")
    assert text.startswith("@") and text.count("{") == text.count("}") and "title = {" in text


def test_links_and_citations_name_the_same_papers():
    for entry in ALGORITHMS.entries.values():
        assert entry.papers, entry.name
        link = entry.papers[0].link
        assert link.rpartition("/")[2] in entry.papers[0].entry() and link in entry.builder.__doc__, entry.name


MUON, ADAM, MOMENTUM = "clients use Muon; leave client_optimizer=sgd", optax.adam(1.0), optax.sgd(1.0, 0.9)


@pytest.mark.parametrize(
    "choice, optimizer, words",
    [
        *itertools.product(("fedmuon", "fedmuon_bc"), (ADAM, MOMENTUM), (MUON,)),
        ("fedadamw", ADAM, "clients use AdamW; leave client_optimizer=sgd"),
        *itertools.product(
            ["diloco"],
            (ADAM, MOMENTUM, optax.sign_sgd(1.0)),
            ["inner=adamw replaces it.*or set inner=client_optimizer"],
        ),
        ("fednova", ADAM, "clients must use SGD"),
        ("fednova:mu=0.5", MOMENTUM, "not defined with client momentum"),
    ],
)
def test_local_optimizers_that_a_method_replaces_or_cannot_count_are_refused(choice, optimizer, words):
    refused(f"{choice.partition(':')[0]}: .*{words}", testing.classification(optimizer=optimizer).build, choice)


def test_a_configuration_is_cited_whole():
    config = Config(algorithm="fedsam:rho=0.1", wrap=["clip:norm=1.0", "swa"], observe=["wima:window=9"], loss="wsm")
    text = citations.citation(config)
    assert text == citations.citation("fedsam", "swa", "wima", "wsm")
    assert text.count("@") == len(set(re.findall(r"@\w+{(\w+),", text)))
    refused("Did you mean 'swa'", citations.citation, Config(wrap=["swe"]))

"""What the registry says about every method: communication, table, citations, choices."""

import pytest

from fedwin import citations, testing
from fedwin.algorithms import ALGORITHMS
from fedwin.communication import communication, overhead
from fedwin.errors import UserError
from fedwin.losses import LOSSES
from fedwin.observers import OBSERVERS
from fedwin.wrappers import WRAPPERS

# Models down and up per client and round, as the papers' tables count them.
COUNTED = {
    "fedavg": (1, 1),
    "fedopt:optimizer=adam": (1, 1),
    "fedavgm": (1, 1),
    "fedadam": (1, 1),
    "fedyogi": (1, 1),
    "fedadagrad": (1, 1),
    "fedprox": (1, 1),
    "scaffold": (2, 2),
    "scaffold:option=I": (2, 2),
    "feddyn": (1, 1),
    "adabest": (1, 1),
    "fedcm": (2, 1),
    "fedadc": (2, 1),
    "fedacg": (1, 1),
    "mime": (2, 2),
    "mime:beta=0.9": (3, 2),
    "mimelite": (2, 2),
    "fedgma": (1, 1),
    "fedgma:mode=extra_step": (1, 1),
    "fedsam": (1, 1),
    "fedasam": (1, 1),
    "ghb:tau=2": (2, 1),
    "local_ghb": (1, 1),
    "fedhbm": (1, 1),
    "fedhbm:first=random,nesterov=true": (1, 1),
}


@pytest.fixture(scope="module")
def problem():
    x, y = [[1.0, 2.0], [3.0]], [[1.0, 0.0], [2.0]]
    return testing.regression(x, y, [0.5, 0.1], batch_size=2, epochs=1, lr=0.1, schedule=[[0, 1]])


@pytest.mark.parametrize("choice", COUNTED)
def test_bytes_are_what_the_papers_count(choice, problem):
    counted = communication(problem.build(choice), problem.variables.params, problem.store, problem.n_max)
    model = 2 * 4
    assert (counted.down / model, counted.up / model) == COUNTED[choice]


def test_every_method_is_counted():
    assert {choice.partition(":")[0] for choice in COUNTED} | {"fednova", "fedfa"} == set(ALGORITHMS)


def test_fednova_adds_one_number(problem):
    counted = communication(problem.build("fednova"), problem.variables.params, problem.store)
    assert counted == (8, 8 + 4)


def test_fedfa_adds_its_anchors_both_ways():
    p = testing.classification()
    counted = communication(p.build("fedfa"), p.variables.params, p.store, p.n_max, p.variables.stats)
    plain = communication(p.build("fedavg"), p.variables.params, p.store, p.n_max, p.variables.stats)
    anchors = 3 * 4 * 4
    assert counted == (plain.down + anchors, plain.up + anchors)


def test_wrappers_cost_nothing(problem):
    wrapped = [WRAPPERS.build(text, problem.setting) for text in ("ima:window=2", "swa", "clip:norm=1.0")]
    params, store = problem.variables.params, problem.store
    assert overhead(communication(problem.build("fedcm", *wrapped), params, store), params) == 1.5


def test_the_printed_overheads_are_kept_beside():
    reported = {name: entry.reported for name, entry in ALGORITHMS.entries.items() if entry.reported}
    assert reported == {
        **dict.fromkeys(("fedavg", "fedopt", "fedavgm", "fedprox", "feddyn", "adabest", "local_ghb", "fedhbm"), "1x"),
        **dict.fromkeys(("fedcm", "fedadc", "ghb"), "1.5x"),
        "scaffold": "2x",
        "mime": "2x (3x)",
        "mimelite": "2x",
    }


@pytest.mark.parametrize("style", ["markdown", "plain"])
def test_the_table_has_a_row_for_every_method(style):
    lines = ALGORITHMS.table(style).splitlines()
    rows = lines[2:] if style == "markdown" else lines[1:]
    assert [row.strip("| ").split()[0] for row in rows] == list(ALGORITHMS)
    if style == "markdown":
        assert {line.replace("\\|", "").count("|") for line in lines} == {8}


@pytest.mark.parametrize("name", [*ALGORITHMS, *WRAPPERS, *OBSERVERS, *LOSSES])
def test_what_has_a_paper_can_be_cited(name):
    if name in ("clip", "cross_entropy"):
        with pytest.raises(UserError, match="no citation"):
            citations.citation(name)
        return
    text = citations.citation(name + ":window=3")
    assert text.startswith("@") and text.count("{") == text.count("}") and "title = {" in text


def test_links_and_citations_name_the_same_papers():
    for entry in ALGORITHMS.entries.values():
        number = entry.paper.link.rpartition("/")[2]
        assert number in citations.BIBTEX[entry.paper.key], entry.name
        assert entry.paper.link in entry.builder.__doc__, entry.name


def test_unknown_names_get_a_suggestion(problem):
    with pytest.raises(UserError, match="Did you mean 'scaffold'"):
        citations.citation("scafold")
    with pytest.raises(UserError, match="Did you mean 'mu'"):
        problem.build("fedprox:my=0.1")


@pytest.mark.parametrize(
    "choice",
    [
        "fedprox:mu=-1",
        "fedavg:server_lr=0",
        "fedavg:weighting=size",
        "fedavgm:beta=1.0",
        "scaffold:option=III",
        "fedcm:alpha=0",
        "fedcm:alpha=1.5",
        "adabest:beta=2",
        "feddyn:eval_model=both",
        "ghb:tau=0",
        "ghb:tau=1.5",
        "fedhbm:first=last",
        "local_ghb:scale=c",
        "fedgma:threshold=2",
        "fedgma:mode=firm",
        "fedopt:optimizer=lion",
        "fedopt:nesterov=1",
        "fednova:tau_eff=b",
        "fedadam:b2=1.0",
        "fedfa",
    ],
)
def test_bad_hyperparameters_are_refused_at_once(choice, problem):
    with pytest.raises(UserError, match=choice.partition(":")[0]):
        problem.build(choice)

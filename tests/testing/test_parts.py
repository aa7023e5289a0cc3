"""Checks of what users register besides algorithms: the guide's examples pass them, broken ones fail in a sentence."""

import itertools
import re

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import readme
from fedwin import aggregation, core, data, losses, testing, tree, wrappers
from fedwin.errors import UserError
from fedwin.plugins import REGISTRIES
from tests.refusals import refused

PAGE = (readme.GUIDE / "own_parts.md").read_text()
EXAMPLES = dict(re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_guide_is_short_and_passes_its_check(name, capsys):
    known = [set(registry) for registry in REGISTRIES.values()]
    body = EXAMPLES[name].split("\n\n\n")[1]
    assert 5 <= len(body.splitlines()) <= 20
    exec(compile(EXAMPLES[name], name, "exec"), {"__name__": "__main__"})
    added = [entry for registry, before in zip(REGISTRIES.values(), known) for entry in registry.keys() - before]
    assert capsys.readouterr().out == f"{added[0]}: the contract holds.\n"


def observer(update, read=lambda model, state: {"mean": state[0]}):
    init = lambda model: (model, jnp.zeros((), jnp.int32))
    return lambda setting: core.Observer(init, update, read)


def remembers(setting):
    """An observer that keeps something outside of its state."""
    numbers = itertools.count(1.0)
    return observer(lambda r, m, s: (tree.scale(next(numbers), m), s[1]))(setting)


def of_batch(function):
    """A loss of (values per example, batch)."""

    def loss(model, params, stats, batch):
        output = model.apply(core.Variables(params, stats), batch, None, True)
        return function(losses.nll(output.logits, batch["y"]), batch), output.stats

    return lambda model: lambda params, stats, batch, key, info: loss(model, params, stats, batch)


def counts_in_halves(setting):
    update = lambda own, model, inner, round: (own + 0.5, model)
    start = lambda params, inner, key: jnp.zeros((), jnp.int32)
    return wrappers.Wrapper("halves", lambda algorithm: wrappers.after(algorithm, start, update))


BUILDER = {
    "aggregator": lambda combine: lambda setting: aggregation.Aggregator("broken", combine),
    "loss": of_batch,
    "partition": lambda rows_of: lambda *arguments: data.Partition.from_lists(rows_of(*arguments)),
    "sampler": lambda draw: lambda population: draw,
}
GENERATOR = np.random.default_rng(0)
rows = np.arange(80).reshape(8, 10)
BROKEN = {
    "observer's dtype": ("observer", observer(lambda r, m, s: (m, s[1] + 0.5)), "changes the structure, a shape"),
    "parameters alone": ("observer", observer(lambda r, m, s: s, lambda m, s: {"a": m.params}), "'a' has other parts"),
    "memory outside": ("observer", remembers, "a run that resumes reads another model"),
    "own error": ("observer", observer(lambda r, m, s: s["mean"]), r"TypeError in .*test_parts.py:\d+: tuple indices"),
    "per example": ("loss", lambda values, batch: values, r"the shape \[6\] and is not a number"),
    "padding": ("loss", lambda values, batch: jnp.mean(values), "padding counts"),
    "sum": ("loss", lambda values, batch: values @ batch["mask"], "a batch twice over"),
    "empty": ("loss", lambda v, b: v @ b["mask"] / b["mask"].sum(), "of padding alone gives NaN"),
    "exponentials": ("loss", lambda v, b: losses.masked_mean(-jnp.log(jnp.exp(-v) / 2), b), "logits in the hundreds"),
    "absent": ("aggregator", lambda s, w, p: s.mean(0), "that do not take part change"),
    "weighted sum": ("aggregator", lambda s, w, p: w @ s, "weights three times as large"),
    "unweighted sum": ("aggregator", lambda s, w, p: s.sum(0), "a sum, where a mean is needed"),
    "order": ("aggregator", lambda s, w, p: s[0], "the order of the clients"),
    "wrapper's dtype": ("wrapper", counts_in_halves, r"int32\[\] .*float32\[\]"),
    "twice": ("partition", lambda *_: [*rows[:7], rows[0]], "example 0 belongs to two clients"),
    "out of range": ("partition", lambda *_: rows + 1, "an example that is not in 0..79"),
    "empty client": ("partition", lambda *_: [*rows[:7], []], "client 7 has no examples"),
    "not by seed": ("partition", lambda *_: GENERATOR.permutation(rows), "same seed gives two partitions"),
    "a client twice": ("sampler", lambda seed, round: [1, 1], "has client 1 twice"),
    "by turns": ("sampler", lambda s, r: GENERATOR.choice(12, 4, replace=False), "depend on earlier rounds"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_part_is_one_sentence(case):
    kind, builder, words = BROKEN[case]
    built = BUILDER.get(kind, lambda builder: builder)(builder)
    refused(words, getattr(testing, f"check_{kind}"), built, error=(AssertionError, UserError))


@pytest.mark.parametrize("weight", [1.0, None])
def test_a_message_that_forgets_its_weight_is_noticed(weight):
    """Sums over clients, of steps or of steps times sizes, in place of a mean."""

    def builder(setting, solve):
        def client(params, c):
            y = solve(params, c)
            return y.update({"delta": tree.scale(weight or c.size.astype(float), tree.sub(y.params, params))})

        return core.algorithm(client, lambda params, state, total, round: (tree.add(params, total["delta"]), state))

    words = "adds up what the clients send.*send core.mean_step.step, c.size."
    refused(words, testing.check_algorithm, builder, strategies=())

"""Registries and choices: parsing, formatting, errors, ranges, papers."""

import inspect
import math
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from fedwin.engine.strategy import STRATEGIES
from fedwin.models import ADAPTATIONS
from fedwin.plugins import REGISTRIES
from fedwin.registry import Hyperparameter, Registry, ranges
from fedwin.registry.choices import Choice, literal, parse
from fedwin.registry.papers import Paper
from tests.refusals import refused


def make():
    registry = Registry("thing", columns={"weight": "{weight} kg"}, weight="?")

    @registry.register("ball", paper="reddi2021adaptive", weight="2")
    def ball(context, *, radius: float = 1.0, color: str):
        """Ball: a round thing.

        Args:
          radius: how far it reaches,
            in metres.
          color: what it looks like.
        """
        return context, radius, color

    return registry


def test_parse_reads_types():
    assert parse("a:x=1,y=1.0,z=true,w=none,v=text") == ("a", {"x": 1, "y": 1.0, "z": True, "w": None, "v": "text"})
    assert isinstance(literal("1.0"), float) and isinstance(literal("1"), int)


@pytest.mark.parametrize(
    "text, value",
    [
        ('"/a,b/x.gz"', "/a,b/x.gz"),
        ("'/a,b:c=d/x.gz' ", "/a,b:c=d/x.gz"),
        ('"1"', "1"),
        ("''", ""),
        ('"say ""so"""', 'say "so"'),
        ("it's", "it's"),
    ],
)
def test_quoted_values_are_taken_as_they_are(text, value):
    assert parse(f"csv:path={text},k=1") == parse(f"csv: path={text} ,k=1") == ("csv", {"path": value, "k": 1})


@pytest.mark.parametrize("text", ["csv:path='/a,b", 'csv:path="/a"b', "csv:path='it's'"])
def test_an_unclosed_quote_is_one_line(text):
    refused("the quote that opens path= is not closed", parse, text)


@pytest.mark.parametrize(
    "value", [1, 1.0, True, None, "word", "", "a,b", "'", "\"'", " a", "1", "none", "a:b=c", "012"]
)
def test_a_choice_written_out_reads_the_same(value):
    choice = Choice("name", {"key": value, "more": 2})
    again = parse(str(choice))
    assert again == choice and type(again.params["key"]) is type(value)


def test_choices_accept_changed_parameters():
    registry = make()
    choice = registry.check("ball:color=red")
    bigger = choice.with_params(radius=2)
    assert str(choice) == "ball:color=red" and str(bigger) == "ball:color=red,radius=2"
    assert registry.build(bigger, "here") == ("here", 2, "red")
    assert registry.check(bigger) == bigger
    for text in ("2024.10", "1e5", "true", "None", "-007", "99999999999"):
        assert registry.check(f"ball:color={text}") == ("ball", {"color": text})
    refused("radius=far must be a number", registry.check, choice.with_params(radius="far"))


@pytest.mark.parametrize(
    "text, words",
    [
        ("bal:color=red", ["unknown thing 'bal'", "'ball'"]),
        ("ball:radios=2,color=red", ["no parameter 'radios'", "'radius'"]),
        ("ball", ["needs color"]),
        ("ball:color", ["not key=value"]),
        ("ball:color=red,color=blue", ["twice"]),
    ],
)
def test_errors_name_culprit_and_remedy(text, words):
    refused(words, make().build, text, None)


def test_a_name_is_taken_once_unless_by_the_same_function():
    registry, other = make(), make()
    registry.register("ball", other["ball"])  # as by a module that is imported twice
    assert list(registry.entries) == ["ball"]
    refused("'ball' is registered already", registry.register, "ball", lambda: None)
    refused("unknown thing 'bal'", registry.register, "cup", lambda: None, like="bal")
    refused("rename it: @register", registry.register, lambda: None)


def test_what_a_builder_gets_wrong():
    registry = Registry("thing", builds=(int, Callable))

    def cup(*, share: ranges.Share = 2.0):
        """A default out of its range."""

    refused("thing 'cup': share=2.0 must be a number in .0, 1", registry.register, "cup", cup)
    # As under `from __future__ import annotations`, where some names are known to type checkers alone.
    bowl = lambda setting, *, size: size
    bowl.__annotations__.update(setting="Setting", size="ranges.Positive")
    registry.register("bowl", bowl)
    refused("size=-1 must be a number > 0", registry.check, "bowl:size=-1")
    bowl.__annotations__["size"] = "Positive"
    refused("size can't be checked .name 'Positive' is not defined.; import", registry.register, "bowl", bowl)
    registry.register("mug", lambda size=1: None)
    refused("'mug' has no parameter 'size'.* behind a '.'", registry.build, "mug:size=2")
    refused("'mug': its builder must return int or a function, not NoneType", registry.build, "mug")
    refused(r"'mug' can't be built: too many .*; define .*lambda>\(setting, \*, \.\.\.\)", registry.build, "mug", 1, 2)


def test_papers_of_the_user_and_unknown_ones():
    registry = make()
    bibtex = "@misc{me2026,\n  title = {Mine},\n  url = {https://example.org}\n}"
    registry.register("cube", lambda context: None, paper=bibtex)
    registry.register("cone", lambda context: None, paper=(Paper("you2026", "Yours"), "reddi2021adaptive"))
    assert registry.entries["cube"].papers == (Paper("me2026", "Mine", "https://example.org", bibtex),)
    assert registry.entries["cone"].papers[0].entry().startswith("@misc{you2026,")
    refused("paper='nobody' is not a key", registry.register, "cup", lambda context: None, paper="nobody")
    refused("no fact 'wait'. Did you mean 'weight'", registry.register, "cup", lambda context: None, wait=3)


def test_tables():
    registry = make()
    registry.register("cup", lambda context, *, full=False: None)
    assert registry.entries["ball"].facts == {"weight": "2"}
    assert registry.table().splitlines()[2:] == [
        "| ball | a round thing | radius=1.0, color=(required) | 2 kg |"
        " [Adaptive Federated Optimization](https://arxiv.org/abs/2003.00295) |",
        "| cup |  | full=false | ? kg | - |",
    ]
    assert registry.table("plain").splitlines() == [
        "name  weight  what it is",
        "ball  2 kg    a round thing",
        "cup   ? kg",
    ]
    assert registry.details("ball").splitlines() == [
        "ball: a round thing",
        "    weight: 2 kg",
        "    radius=1.0                 how far it reaches, in metres.",
        "    color=(required)           what it looks like.",
        "    Adaptive Federated Optimization https://arxiv.org/abs/2003.00295",
        f"    defined in {__name__}",
    ]
    refused("unknown .* 'bal'. Did you mean 'ball'", registry.details, "bal")


def ranged():
    """(registry, entry, parameter) of every parameter with a range or a list of values, in all registries."""
    return [
        pytest.param(registry, entry, h, id=f"{registry.kind}-{name}-{h.name}")
        for registry in (*REGISTRIES.values(), ADAPTATIONS, STRATEGIES)
        for name, entry in registry.entries.items()
        for h in entry.hyperparameters
        if entry.builder.__module__.startswith("fedwin.") and any(k.range or k.values for k in h.values.kinds)
    ]


def outside(values):
    """Values just outside of a parameter's, by its ranges and types."""
    candidates = [math.nan, -math.inf, [], "no such value"]
    for least, most, open_least, open_most in (kind.range for kind in values.kinds if kind.range):
        below = least if open_least else math.nextafter(least, -math.inf)
        above = float(most) if open_most else math.nextafter(most, math.inf)
        candidates += [below if below else -ranges.SMALLEST, 0 if open_least and not least else least - 1, above]
    kinds = {kind.type for kind in values.kinds if not kind.values}
    if float not in kinds and str not in kinds:
        candidates += [1.5, *([] if bool in kinds else [True]), 2**31]
    return candidates


@pytest.mark.parametrize("registry, entry, h", ranged())
def test_what_is_outside_is_one_line_that_names_the_parameter(registry, entry, h):
    others = {o.name: _inside(o) for o in entry.hyperparameters if o.default is inspect.Parameter.empty}
    for value in outside(h.values):
        choice = Choice(entry.name, others | {h.name: value})
        refused(rf"{re.escape(entry.name)}': {h.name}=.* (must|is 0)", registry.check, choice)


def _inside(h):
    """A value of a required parameter: its range's middle, or a number or text of its type."""
    kind = h.values.kinds[0] if h.values.kinds else None
    if kind is None or kind.type is str:
        return "text"
    least, most = (kind.range.least, kind.range.most) if kind.range else (1, 1)
    return kind.type((least if math.isfinite(least) else 0) + 1 if math.isinf(most) else (least + most) / 2)


@pytest.mark.parametrize("registry", REGISTRIES.values(), ids=lambda registry: registry.kind)
def test_instances_are_inside(registry):
    for entry in registry.entries.values():
        required = {o.name: _inside(o) for o in entry.hyperparameters if o.default is inspect.Parameter.empty}
        for choice in map(parse, entry.instances):
            registry.check(choice._replace(params=required | choice.params))


@pytest.mark.parametrize(
    "annotation, inside, wrong",
    [
        (ranges.Positive, (1, 1e-3), {0: "a number > 0", -1.0: "a number > 0", math.inf: "a finite number > 0"}),
        (ranges.NonNegative | None, (0, None), {-1: "a number >= 0 or none", 1e-40: "is 0 in", 1e39: "is infinite in"}),
        (ranges.Decay, (0, 0.999), {1: "a number in [0, 1)", "x": "a number in [0, 1)"}),
        (ranges.PositiveInt, (1, 2**31 - 1), {0: "an integer >= 1", 1.0: "an integer >= 1", 2**31: "32 bits"}),
        (ranges.Share | ranges.NonNegativeInt, (0.5, 3), {1.5: "or an integer >= 0", -1: "in [0, 1]"}),
        (Literal["I", "none"], ("I", "none"), {"i": "one of I, none", 1: "one of I, none"}),
        (bool, (True, False), {0: "true or false", "maybe": "true or false"}),
        (Annotated[int | None, ranges.Range(1)], (1, None), {0: "an integer >= 1 or none"}),
        (ranges.Range(0, 1), (0.5,), {2: "a number in [0, 1]"}),
        (Any, (1, "x", None), {}),
    ],
)
def test_annotations_are_ranges(annotation, inside, wrong):
    registry = Registry("thing")
    registry.register("ball", lambda *, size: size)
    registry["ball"].__annotations__["size"] = annotation
    registry.register("ball", registry["ball"])
    for value in inside:
        assert registry.build(Choice("ball", {"size": value})) is value
        assert repr(registry.build(Choice("ball", {"size": np.array(value)[()]}))) == repr(value)
    for value, message in wrong.items():
        refused(re.escape(message), registry.check, Choice("ball", {"size": value}))


def test_the_range_of_a_parameter_is_listed():
    parameter = inspect.Parameter("spin", inspect.Parameter.KEYWORD_ONLY, annotation=ranges.Share | None)
    described = Hyperparameter("spin", None, "share of the mass.", ranges.values_of(parameter)).description
    assert described == "share of the mass (in [0, 1] or none)."

import pytest

from fedwin.errors import UserError
from fedwin.registry import Registry, literal, parse


def make():
    registry = Registry("thing")

    @registry.register("ball")
    def ball(context, *, radius: float = 1.0, colour):
        return context, radius, colour

    return registry


def test_parse_reads_types():
    assert parse("a:x=1,y=1.0,z=true,w=none,v=text") == ("a", {"x": 1, "y": 1.0, "z": True, "w": None, "v": "text"})
    assert isinstance(literal("1.0"), float) and isinstance(literal("1"), int)


def test_build_passes_context_and_parameters():
    assert make().build("ball:radius=2,colour=red", "here") == ("here", 2, "red")


@pytest.mark.parametrize(
    "text, words",
    [
        ("bal:colour=red", ["unknown thing 'bal'", "'ball'"]),
        ("ball:radios=2,colour=red", ["no parameter 'radios'", "'radius'"]),
        ("ball", ["needs colour"]),
        ("ball:colour", ["not key=value"]),
        ("ball:colour=red,colour=blue", ["twice"]),
    ],
)
def test_errors_name_culprit_and_remedy(text, words):
    with pytest.raises(UserError) as caught:
        make().build(text, None)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_name_can_be_taken_once():
    registry = make()
    with pytest.raises(ValueError, match="twice"):
        registry.register("ball", lambda: None)

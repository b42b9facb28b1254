"""Values behave as the frozen dataclasses of the standard library do."""

import dataclasses
import itertools
import json

import pytest

from mltree.system.values import Value, Word, plain


class Point(Value):
    """Of a plane."""

    x: int
    y: int = 2
    names: list[str] = dataclasses.field(default_factory=list)


class Place(Point):
    """With a height."""

    z: float = 0.5


@dataclasses.dataclass(frozen=True)
class StandardPoint:
    """The same as the standard library makes it."""

    x: int
    y: int = 2
    names: list[str] = dataclasses.field(default_factory=list)


GIVEN = [((1,), {}), ((1, 3), {}), ((), {"x": 1, "names": ["a"]}), ((1,), {"y": 5})]


@pytest.mark.parametrize(("values", "named"), GIVEN)
def test_is_what_the_standard_library_makes(values: tuple, named: dict) -> None:
    own, standard = Point(*values, **named), StandardPoint(*values, **named)
    assert dataclasses.asdict(own) == dataclasses.asdict(standard)
    assert "Standard" + repr(own) == repr(standard)
    changed = dataclasses.replace(own, y=7)
    assert dataclasses.asdict(changed) == dataclasses.asdict(dataclasses.replace(standard, y=7))


def test_equal_values_are_equal_and_of_one_class() -> None:
    made = [Point(*values, **named) for values, named in GIVEN]
    again = [StandardPoint(*values, **named) for values, named in GIVEN]
    for one, other in itertools.product(range(len(GIVEN)), repeat=2):
        assert (made[one] == made[other]) == (again[one] == again[other])
    assert Point(1) != Place(1)
    assert Point(1) != (1, 2, [])
    assert hash(Place(1, 2, (), 3.0)) == hash(Place(1, 2, (), 3.0))


class Thing(Value, eq=False):
    """Itself alone."""

    x: int


class Heavy(Thing):
    """Likewise."""

    weight: float = 1.0


def test_a_thing_equals_itself_alone() -> None:
    for kind in (Thing, Heavy):
        first, second = kind(1), kind(1)
        assert first == first != second  # noqa: PLR0124
        assert len({first, second, first}) == 2


def test_default_factories_make_one_each() -> None:
    Point(1).names.append("changed")
    assert Point(1).names == []


def test_values_lie_in_the_order_of_their_fields() -> None:
    assert list(vars(Point(y=2, x=1))) == list(vars(Point(1, y=2))) == ["x", "y", "names"]


def test_fields_are_inherited_in_order() -> None:
    assert [field.name for field in dataclasses.fields(Place)] == ["x", "y", "names", "z"]
    match Place(1, 2, [], 4.0):
        case Place(x, _, _, z):
            assert (x, z) == (1, 4.0)


def test_is_frozen() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x


@pytest.mark.parametrize(
    ("values", "named"), [((), {}), ((1,), {"x": 1}), ((1,), {"w": 1}), ((1, 2, [], 4), {})]
)
def test_refuses_what_a_call_refuses(values: tuple, named: dict) -> None:
    with pytest.raises(TypeError):
        StandardPoint(*values, **named)
    with pytest.raises(TypeError, match="Point"):
        Point(*values, **named)


def test_json_is_strict_whatever_is_in_it() -> None:
    value = {"a": [float("inf"), (1.5, None)], "b": {"c": float("nan"), "d": "inf", "e": True}}
    text = json.dumps(plain(value), allow_nan=False)
    assert json.loads(text) == {"a": ["inf", [1.5, None]], "b": {"c": "nan", "d": "inf", "e": True}}


def test_fields_that_are_not_compared_tell_nothing_apart() -> None:
    class Noted(Value):
        """A point with a note."""

        x: int
        note: list[str] = dataclasses.field(default_factory=list, compare=False)

    assert Noted(1, ["a"]) == Noted(1)
    assert Noted(1) != Noted(2)
    assert len({Noted(1, ["a"]), Noted(1), Noted(2)}) == 2


def test_a_word_is_its_text() -> None:
    class Colour(Word):
        RED = "red"

    assert Colour("red") is Colour.RED == "red"
    assert f"{Colour.RED} {Colour.RED!s} {Colour.RED:>4}" == "red red  red"
    assert json.dumps(Colour.RED) == '"red"'
    with pytest.raises(ValueError, match="blue"):
        Colour("blue")

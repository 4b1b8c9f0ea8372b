"""Rules of settings live on their fields."""

import dataclasses
import math
from typing import Annotated, Literal

import pytest

from phyb import fields
from phyb.errors import DataError, UsageError
from phyb.fields import (
    Count,
    Fraction,
    Layers,
    NonNegative,
    OpenFraction,
    Positive,
    Share,
    Whole,
    check,
    not_if,
    only_if,
)


@dataclasses.dataclass(frozen=True)
class Inner:
    rule: Literal["fixed", "free"] = "free"
    size: Annotated[Positive, only_if("rule", "fixed")] = 0.5
    steps: Whole = 0
    spread: Annotated[NonNegative, not_if("steps", 0)] = 1.0

    def __post_init__(self):
        if self.size == self.spread:
            raise ValueError("size and spread must differ")


@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner = dataclasses.field(default_factory=Inner)
    hidden: Layers = (8, 8)
    count: Count = 1
    share: Share | None = None
    part: Fraction = 0.0
    held: OpenFraction = 0.5
    absent: Annotated[bool, only_if("nowhere")] = False


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("count", [1, 10**9], [0, -1]),
        ("steps", [0, 1], [-1]),
        ("spread", [0.0, 2.0], [-1e-9, math.inf, math.nan]),
        ("size", [1e-9, 5], [0, -1.0, math.nan, math.inf]),
        ("share", [None, 1e-9, 1.0], [0.0, 1.0001, math.nan]),
        ("part", [0.0, 1.0], [-0.1, 1.1]),
        ("held", [0.001, 0.999], [0.0, 1.0]),
        ("hidden", [(), (1, 2)], [(0,), (3, -1, -1)]),
    ],
)
def test_each_bound_holds_at_its_edges(name, good, bad):
    def with_value(value):
        return fields.changed(Outer(), {name: value} if hasattr(Outer(), name) else {"inner": {name: value}})

    for value in good:
        assert check(with_value(value)) == []
    for value in bad:
        (line,) = check(with_value(value))
        assert line.startswith(f"{name}: {value}, must be ")


def test_a_setting_without_effect_is_named_only_where_it_was_changed():
    base = Outer()
    assert check(base, base) == []
    assert check(fields.with_changes(base, {"rule": "fixed", "size": 2.0, "steps": 3, "spread": 0.0}), base) == []
    lines = check(fields.with_changes(base, {"size": 2.0, "spread": 0.0, "absent": True}), base)
    assert lines == [
        "size: 2.0, has no effect here: rule is free, not fixed",
        "spread: 0.0, has no effect here: steps is 0",
        "absent: True, has no effect here: there is no nowhere",
    ]
    assert check(fields.with_changes(base, {"size": 2.0})) == [], "bounds alone, without a base"


def test_changes_reach_settings_and_groups():
    base, changes = Outer(), {"size": 2.0, "hidden": (1,), "share": 0.5}
    assert changes.items() <= fields.flat(fields.with_changes(base, changes)).items()
    assert fields.with_changes(base, {}) == base
    assert fields.with_changes(base, {"inner": Inner(steps=4)}).inner.steps == 4


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"coumt": 1}, "coumt: there is no such setting. Close are count"),
        ({"count": 1.5}, "count: found 1.5, expected a whole number"),
        ({"rule": "other"}, "rule: found 'other', expected one of fixed, free"),
        ({"hidden": [1, "2"]}, "hidden: found .*, expected a list, each entry a whole number"),
        ({"inner": 3}, "inner: found 3, expected settings of the kind Inner"),
        ({"size": 1.0}, "size and spread must differ"),
    ],
)
def test_changes_that_cannot_be_made_are_refused(changes, said):
    with pytest.raises(UsageError, match=said):
        fields.with_changes(Outer(), changes)


def test_json_is_built_and_every_fault_is_named():
    content = dataclasses.asdict(Outer(hidden=(3,)))
    assert fields.build(Outer, content | {"hidden": [3]}) == Outer(hidden=(3,))
    for wrong, said in (
        ({"inner": {"steps": "4"}}, "inner.steps: found '4', expected a whole number"),
        ({"more": 1}, "more: there is no such setting"),
        ({"inner": {"size": 1.0}}, "inner: size and spread must differ"),
        ({"part": math.nan}, "part: found nan, expected a finite number"),
    ):
        with pytest.raises(DataError, match=said):
            fields.build(Outer, wrong)
    with pytest.raises(DataError, match="expected a group of settings"):
        fields.build(Outer, [])

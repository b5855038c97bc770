"""The specification language: what it computes, what it refuses, and what it then says."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomcast.errors import BadInput, UnknownName, UnreadableFile
from oomcast.methods.tbem.specification import (
    Library,
    Rejection,
    Source,
    SpecificationError,
    UnknownInSpecification,
    layer_specifications,
    read_library,
)

SHAPE_VERIFY = """
/* Listing 1 of the paper, with its types written out. */
process ShapeVerify(W1, H1, D1, W2, H2, D2, K, F, S, P: int) y: bool
pre  forall[x: [W1, H1, D1, W2, H2, D2, K, F, S]] | x > 0
post W2 = (W1 - F + 2 * P) / S + 1 and H2 = (H1 - F + 2 * P) / S + 1 and D2 = K
     and y = true
  or (W2 <> (W1 - F + 2 * P) / S + 1 or H2 <> (H1 - F + 2 * P) / S + 1 or D2 <> K)
     and y = false
end_process
"""


def library(text: str) -> Library:
    return Library([Source("test.sofl", text)])


def value(expression: str, **inputs: object) -> object:
    """What an expression is, as the output of a process with the inputs given."""
    types = {bool: "bool", int: "int", float: "real", str: "string", tuple: "seq of int"}
    declared = ", ".join(f"{name}: {types[type(item)]}" for name, item in inputs.items()) or "unused: int"
    kind = next(
        name
        for name in ("int", "real", "bool", "string", "seq of int", "seq of real", "tuple(int, string)")
        if _fits(f"process P({declared}) y: {name} pre true post y = ({expression}) end_process")
    )
    text = f"process P({declared}) y: {kind} pre true post y = ({expression}) end_process"
    outputs = library(text).process("P").run(inputs or {"unused": 0})
    assert isinstance(outputs, dict)
    return outputs["y"]


def _fits(text: str) -> bool:
    try:
        library(text)
    except SpecificationError:
        return False
    return True


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("1 + 2 * 3 - 4", 3),
        ("-7 div 2", -4),
        ("-7 mod 2", 1),
        ("7 / 2", 3.5),
        ("floor(7 / 2) + ceil(7 / 2)", 7),
        ("1 - 2 - 3", -4),
        ("2 < 3 and not 3 <= 2 or false", True),
        ("1 = 2 implies 1 = 3", True),
        ("true implies false implies true", True),
        ("if 1 <> 1 then 4 else 5", 5),
        ("let a = 3 in a * a", 9),
        ("len([4, 5, 6])", 3),
        ("conc([1], [], [2, 3])", (1, 2, 3)),
        ("[i * i | i: 1..4]", (1, 4, 9, 16)),
        ("[i | i: 1..9 where i mod 3 = 0]", (3, 6, 9)),
        ("hd([4, 5]) + last([4, 5]) + hd(tl([4, 5]))", 14),
        ("forall[i: 1..3] | exists[j: 1..3] | i = j", True),
        ("exists[i: []] | true", False),
        ("sum([1, 2, 3]) + prod([2, 5]) + min(4, 1) + max(1, 2, 3) + abs(-2)", 22),
        ("sum([]) + prod([])", 1),
        ('"a" inset ["a", "b"]', True),
        ('let t = (1, "x") in t(2)', "x"),
        ('let t = (1, "x") in t', (1, "x")),
        ("1.5e2 + 1", 151.0),
    ],
)
def test_expressions(expression: str, result: object) -> None:
    assert value(expression) == result


@given(st.integers(-50, 50), st.integers(-50, 50).filter(bool))
def test_division_is_floor_division(a: int, b: int) -> None:
    assert value("(a div b) * b + a mod b", a=a, b=b) == a
    assert value("a div b", a=a, b=b) == a // b


@given(st.lists(st.integers(-9, 9), max_size=6))
def test_sequences_count_from_one(numbers: list[int]) -> None:
    s = tuple(numbers)
    assert value("[s(i) | i: inds(s)]", s=s) == s
    assert value("s(1, len(s))", s=s) == s
    assert value("s(2, len(s))", s=s) == s[1:]


def test_listing_1() -> None:
    process = library(SHAPE_VERIFY).process("ShapeVerify")
    case = {"W1": 32, "H1": 32, "D1": 3, "W2": 32, "H2": 32, "D2": 8, "K": 8, "F": 3, "S": 1, "P": 1}
    assert process.run(case) == {"y": True}
    assert process.run(case | {"W2": 31}) == {"y": False}
    assert process.run(case | {"S": 2, "W2": 16, "H2": 16}) == {"y": False}, "15.5 + 1 is no size"
    rejected = process.run(case | {"F": 0})
    assert isinstance(rejected, Rejection)
    assert rejected.condition == "forall[x: [W1, H1, D1, W2, H2, D2, K, F, S]] | x > 0"


def test_rejection_names_process_condition_line_and_values() -> None:
    text = "process P(n: nat, k: int) y: int\npre  k > 0\n and n mod k = 0\npost y = n div k\nend_process\n"
    process = library(text).process("P")
    assert process.run({"n": 6, "k": 3}) == {"y": 2}
    rejected = process.run({"n": 6, "k": 4})
    assert isinstance(rejected, Rejection)
    assert (rejected.process, rejected.kind, rejected.condition, rejected.line) == ("P", "pre", "n mod k = 0", 3)
    assert rejected.values == (("n", 6), ("k", 4))
    assert str(rejected) == "P rejects it: the precondition `n mod k = 0` (test.sofl:3) does not hold with n = 6, k = 4"
    outside = process.run({"n": 0, "k": 4})
    assert isinstance(outside, Rejection)
    assert (outside.kind, outside.condition, outside.line) == ("type", "n: nat", 1)


def test_first_scenario_whose_guard_holds_defines_the_outputs() -> None:
    text = """process P(n: int) y: int, z: bool
    pre true
    post n > 10 and y = 1 and z = true
      or n > 0 and z = (y = 2) and y = 2
    end_process"""
    with pytest.raises(UnknownInSpecification, match=r"unknown name at test.sofl:4:25, 'y'"):
        library(text)
    process = library(text.replace("z = (y = 2) and y = 2", "y = 2 and z = (y = 2)")).process("P")
    assert process.run({"n": 11}) == {"y": 1, "z": True}
    assert process.run({"n": 3}) == {"y": 2, "z": True}
    rejected = process.run({"n": 0})
    assert isinstance(rejected, Rejection)
    assert (rejected.kind, rejected.condition) == ("post", "n > 0")


def test_definitions_are_computed_when_used() -> None:
    text = """process P(s: seq of int) y: int
    let third = s(3)
    pre len(s) >= 3 and third > 0 post y = third end_process"""
    process = library(text).process("P")
    assert process.run({"s": (1, 2, 5)}) == {"y": 5}
    rejected = process.run({"s": (1,)})
    assert isinstance(rejected, Rejection)
    assert rejected.condition == "len(s) >= 3"
    assert not rejected.undefined


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("s(4) = 1", "s has 2 elements, none with the index 4"),
        ("s(0) = 1", "s has 2 elements, none with the index 0"),
        ("s(1, 3) = s", "s has 2 elements, not all from 1 to 3"),
        ("1 div (len(s) - 2) = 0", "1 is divided by zero"),
        ("hd(tl(tl(s))) = 0", "an empty sequence has no first element"),
    ],
)
def test_a_condition_without_a_value_does_not_hold(condition: str, why: str) -> None:
    process = library(f"process P(s: seq of int) y: int pre {condition} post y = 1 end_process").process("P")
    rejected = process.run({"s": (1, 2)})
    assert isinstance(rejected, Rejection)
    assert rejected.undefined == why
    assert str(rejected).endswith(f"since {why}")


def test_functions_and_constants() -> None:
    text = """
    const LIMIT = 10;
    function Half(n: int): int == n div 2 end_function;
    function Small(n: int): bool == Half(n) < LIMIT end_function
    process P(n: int) y: int pre Small(n) post y = Half(n) end_process;
    """
    process = library(text).process("P")
    assert process.run({"n": 19}) == {"y": 9}
    assert isinstance(process.run({"n": 20}), Rejection)


def process_text(condition: str = "true", definition: str = "y = n") -> str:
    return f"process P(n: int, s: seq of int)\n  y: int\npre {condition}\npost {definition}\nend_process"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("process P(n: int y: int", "test.sofl:1:18: did not expect 'y'; expected ')' or ','."),
        (process_text("n >"), "test.sofl:4:1: did not expect 'post'; expected "),
        (process_text("n # 1"), "test.sofl:3:7: did not expect '#'; expected "),
        ("process P(n: int) y: int pre true", "test.sofl:1:34: the text ends too early; expected "),
        (
            "process P(n: integer) y: int",
            "test.sofl:1:14: did not expect 'integer'; expected 'seq', 'set', 'tuple' or a type.",
        ),
        (process_text("n + 1"), "test.sofl:3:5: a condition must be bool, but this is int."),
        (process_text("not (n and true)"), "test.sofl:3:10: each side of and must be bool, but this is int."),
        (process_text('n = "a"'), "test.sofl:3:5: int cannot be compared with string."),
        (process_text("s < s"), "test.sofl:3:5: < compares numbers, not seq of int."),
        (process_text("s + 1 = n"), "test.sofl:3:5: each side of + must be a number, but this is seq of int."),
        (process_text("n div 1.5 = 2"), "test.sofl:3:11: each side of div must be int, but this is real."),
        (process_text("s(1, 2, 3) = s"), "test.sofl:3:5: s is a sequence: s(i) is an element, s(i, j) a piece of it."),
        (
            process_text("n(1) = 2"),
            "test.sofl:3:5: n, which is given arguments here, must be a sequence, but this is int.",
        ),
        (process_text("len(s, s) = 1"), "test.sofl:3:5: len takes 1 arguments, but 2 are given."),
        (process_text("len(n) = 1"), "test.sofl:3:5: len takes a sequence, not int."),
        (process_text("forall[n: s] | true"), "test.sofl:3:12: n already has a meaning here; choose another name."),
        (
            process_text("forall[i: n] | true"),
            "test.sofl:3:15: what a variable runs over must be a sequence, but this is int.",
        ),
        (process_text("[1, true] = []"), "test.sofl:3:9: a sequence of int cannot hold bool."),
        (process_text(definition="n > 0"), "test.sofl:4:6: this scenario does not define y; write y = … in it."),
        (process_text(definition="y > 0"), "test.sofl:4:6: an output is defined as y = …; a guard cannot use it."),
        (process_text(definition="y = 1 and y = 2"), "test.sofl:4:16: y is defined twice in one scenario."),
        (process_text(definition="y = 1.5"), "test.sofl:4:6: the output y is declared as int, but this is real."),
        (f"{process_text()}\n{process_text()}", "test.sofl:6:9: P is already defined at test.sofl:1:9."),
        ("function F(n: int): int == F(n) end_function", "test.sofl:1:1: the function F calls itself."),
        ("function F(n: int): bool == n end_function", "the function F is declared as bool, but this is int."),
        ("function len(n: int): int == n end_function", "test.sofl:1:10: len is an operator of the language"),
        ("process P(n, n: int) y: int pre true post y = n end_process", "n is declared twice."),
        ("process P(n: int) n: int pre true post n = 1 end_process", "n is both an input and an output."),
    ],
)
def test_what_is_wrong_and_where(text: str, message: str) -> None:
    with pytest.raises(SpecificationError) as caught:
        library(text)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_function_arity_and_types() -> None:
    function = "function F(n: int, s: seq of int): int == n end_function\n"
    with pytest.raises(SpecificationError, match=r"4:5: F takes 2 arguments, but 1 are given\."):
        library(function + process_text("F(n) = 1"))
    with pytest.raises(SpecificationError, match=r"4:10: argument 2 of F must be seq of int, but this is int\."):
        library(function + process_text("F(n, n) = 1"))


def test_unknown_names_are_shown_with_near_ones() -> None:
    text = "process P(stride: int) y: int\npre strid > 0 post y = stride end_process"
    with pytest.raises(UnknownName, match=r"unknown name at test.sofl:2:5, 'strid'; did you mean stride\?"):
        library(text)
    with pytest.raises(UnknownName, match=r"unknown function at test.sofl:2:5, 'flor'; did you mean floor"):
        library(text.replace("strid >", "flor(1) >"))


def test_a_case_must_give_each_input_with_its_type() -> None:
    process = library(process_text()).process("P")
    with pytest.raises(UnknownName, match=r"unknown input of P 'm'"):
        process.run({"n": 1, "s": (), "m": 2})
    with pytest.raises(UnknownName, match=r"unknown input of P 'm'"):
        process.run({"n": 1, "m": ()})
    with pytest.raises(BadInput, match=r"P needs a value for s\."):
        process.run({"n": 1})
    with pytest.raises(BadInput, match=r"P takes n as int, not True\."):
        process.run({"n": True, "s": ()})
    with pytest.raises(BadInput, match=r"P takes s as seq of int, not \(1, 'a'\)\."):
        process.run({"n": 1, "s": (1, "a")})
    with pytest.raises(UnknownName, match=r"unknown process 'Q'"):
        library(process_text()).process("Q")


def test_files_are_one_name_space(tmp_path: Path) -> None:
    (tmp_path / "a.sofl").write_text("process P(n: int) y: int pre Even(n) post y = n end_process")
    (tmp_path / "b.sofl").write_text("function Even(n: int): bool == n mod 2 = 0 end_function -- used by P")
    process = read_library([tmp_path / "a.sofl", tmp_path / "b.sofl"]).process("P")
    assert process.run({"n": 4}) == {"y": 4}
    with pytest.raises(UnreadableFile, match="cannot read the specification"):
        read_library([tmp_path / "c.sofl"])
    (tmp_path / "d.sofl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnreadableFile, match="cannot read the specification"):
        read_library([tmp_path / "d.sofl"])


@given(st.text(alphabet='process Pn:int()y=+-*/[]|.1<> \n"andortrue', max_size=60))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    with contextlib.suppress(SpecificationError, UnknownInSpecification):
        library(text)


def test_the_layers_specifications_are_all_there() -> None:
    expected = {
        "Convolution",
        "TransposedConvolution",
        "MaxPooling",
        "AveragePooling",
        "AdaptivePooling",
        "Linear",
        "BatchNormalization",
        "LayerNormalization",
        "GroupNormalization",
        "Embedding",
        "Attention",
        "Concatenation",
        "Flatten",
        "Recurrent",
    }
    assert expected <= set(layer_specifications().processes)


@pytest.mark.parametrize("expression", ["9" * 5000, "x(" + "9" * 5000 + ")", "9" * 5000 + "x", "0." + "9" * 5000])
def test_an_endless_number_is_refused_with_its_place(expression: str) -> None:
    with pytest.raises(SpecificationError, match=r"test\.sofl.*2.*more than 300 digits"):
        library(f"process P(x: int) y: int pre true\npost y = {expression} end_process")

"""An expression as text, as LaTeX and as the source of a Python function: pure functions of what they show."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from .expression import Constant, Expression, Maximum, Power, Product, Sum, Variable, variables

__all__ = ["latex", "python_source", "text"]

_Write = Callable[[Expression], str]


def text(expression: Expression, unit: str | None = None, units: Mapping[str, str] | None = None) -> str:
    """Such as `3100*batch*edge^3 + 4.8e8`; with units each coefficient of a sum of products carries its own."""
    if unit is None and not units:
        return _plain(expression)
    parts = expression.parts if isinstance(expression, Sum) else (expression,)
    known = dict(units or {})
    if all(_is_term(part) for part in parts):
        return " + ".join(_with_unit(part, unit or "", known) for part in parts).replace("+ -", "- ")
    remarks = [f"in {unit}"] if unit else []
    remarks += [f"{name} in {known[name]}" for name in sorted(variables(expression)) if name in known]
    return f"{_plain(expression)}   ({', '.join(remarks)})"


def _plain(expression: Expression) -> str:
    match expression:
        case Constant(number):
            return _number(number)
        case Variable(name):
            return name
        case Power(base, exponent):
            return f"{_wrapped(base, _plain, (Variable,))}^{exponent}"
        case Product(parts):
            return "*".join(_factors(parts, _plain))
        case Sum(parts):
            return " + ".join(map(_plain, parts)).replace("+ -", "- ")
        case Maximum(parts):
            return f"max({', '.join(map(_plain, parts))})"


def _wrapped(
    expression: Expression, write: _Write, bare: tuple[type[Expression], ...], marks: tuple[str, str] = ("(", ")")
) -> str:
    """In brackets unless it stands for itself, as a negative constant does not."""
    written = write(expression)
    return written if isinstance(expression, bare) and not written.startswith("-") else marks[0] + written + marks[1]


def _factors(parts: Sequence[Expression], write: _Write, marks: tuple[str, str] = ("(", ")")) -> Iterator[str]:
    """Only the first factor may be negative without brackets."""
    for place, part in enumerate(parts):
        if place == 0 and isinstance(part, Constant):
            yield write(part)
        else:
            yield _wrapped(part, write, (Constant, Variable, Power, Maximum), marks)


def _number(number: float) -> str:
    """All digits that the number has, and no more; far from 1 with an exponent."""
    shortest = repr(float(number))
    if number == 0 or (1e-3 <= abs(number) < 1e6 and "e" not in shortest):
        return shortest.removesuffix(".0")
    digits = len(re.sub(r"e.*|[-.]", "", shortest).strip("0"))
    mantissa, exponent = f"{number:.{max(0, digits - 1)}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _is_term(expression: Expression) -> bool:
    """A constant times whole powers of variables."""
    factors = expression.parts if isinstance(expression, Product) else (expression,)
    return all(
        isinstance(factor, Variable)
        or (isinstance(factor, Power) and isinstance(factor.base, Variable))
        or (isinstance(factor, Constant) and place == 0)
        for place, factor in enumerate(factors)
    )


def _with_unit(term: Expression, unit: str, units: Mapping[str, str]) -> str:
    factors = term.parts if isinstance(term, Product) else (term,)
    coefficient = factors[0].value if isinstance(factors[0], Constant) else 1.0
    powers = {
        (base.name if isinstance(base, Variable) else ""): exponent
        for base, exponent in (
            (factor.base, factor.exponent) if isinstance(factor, Power) else (factor, 1)
            for factor in factors
            if not isinstance(factor, Constant)
        )
    }
    below = [_raised(units[name], exponent) for name, exponent in powers.items() if name in units]
    ratio = f"/({'*'.join(below)})" if len(below) > 1 else "".join(f"/{one}" for one in below)
    of_unit = f" {unit or '1'}{ratio}" if unit or ratio else ""
    return " * ".join([f"{_number(coefficient)}{of_unit}", *(_raised(name, power) for name, power in powers.items())])


def _raised(name: str, exponent: int) -> str:
    return name if exponent == 1 else f"{name}^{exponent}"


def latex(expression: Expression) -> str:
    """For a formula in LaTeX's mathematics mode."""
    brackets = (r"\left(", r"\right)")
    match expression:
        case Constant(number):
            mantissa, _, exponent = _number(number).partition("e")
            return rf"{mantissa} \times 10^{{{exponent}}}" if exponent else mantissa
        case Variable(name):
            return rf"\mathrm{{{_escaped(name)}}}"
        case Power(base, exponent):
            return f"{_wrapped(base, latex, (Variable,), brackets)}^{{{exponent}}}"
        case Product(parts):
            return r" \, ".join(_factors(parts, latex, brackets))
        case Sum(parts):
            return " + ".join(map(latex, parts)).replace("+ -", "- ")
        case Maximum(parts):
            return rf"\max{brackets[0]}{', '.join(map(latex, parts))}{brackets[1]}"


def _escaped(name: str) -> str:
    marks = {"\\": r"\backslash{}", "^": r"\hat{}", "~": r"\tilde{}", " ": r"\ "}
    return "".join(marks.get(mark, "\\" + mark if mark in "_%&#${}" else mark) for mark in name)


def python_source(expression: Expression, names: Sequence[str], function_name: str) -> str:
    """A function of all variables in order, in plain arithmetic: it needs nothing but Python."""
    if not _usable(function_name):
        raise ValueError(f"{function_name!r} cannot be the name of a Python function")
    arguments = _arguments(names)
    renamed = [f"{argument}: {name!r}" for name, argument in arguments.items() if name != argument]
    comment = f"    # {'; '.join(renamed)}\n" if renamed else ""
    listed = ", ".join(arguments.values())
    return f"def {function_name}({listed}):\n{comment}    return {_python(expression, arguments)}\n"


def _python(expression: Expression, arguments: Mapping[str, str]) -> str:
    def write(part: Expression) -> str:
        return _python(part, arguments)

    match expression:
        case Constant(number):
            return _number(number)
        case Variable(name):
            return arguments[name]
        case Power(base, exponent):
            return f"{_wrapped(base, write, (Variable, Maximum))}**{exponent}"
        case Product(parts):
            return " * ".join(_factors(parts, write))
        case Sum(parts):
            return " + ".join(map(write, parts)).replace("+ -", "- ")
        case Maximum(parts):
            return f"max({', '.join(map(write, parts))})"


def _arguments(names: Sequence[str]) -> dict[str, str]:
    """A different identifier for each name: the name itself where it is one."""
    arguments: dict[str, str] = {name: name for name in names if _usable(name)}
    for name in names:
        if name not in arguments:
            wanted = re.sub(r"\W", "_", name, flags=re.ASCII)
            wanted = wanted if _usable(wanted) else f"v_{wanted}"
            taken = set(arguments.values())
            arguments[name] = next(
                free for n in range(len(names) + 1) if (free := wanted + "_" * n) not in taken and _usable(free)
            )
    return {name: arguments[name] for name in names}


def _usable(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and name != "max"

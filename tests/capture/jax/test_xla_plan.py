"""Fusion, order and buffers on small functions, beside what XLA makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast.capture.jax.fuse import fuse
from oomcast.capture.jax.order import depth_first, greedy, post_order
from oomcast.capture.jax.run import Plan, make_plan
from oomcast.units import KiB

N = 64 * KiB // 4  # floats of a vector of 64 KiB
SIDE = 128  # a matrix of 64 KiB

pytestmark = pytest.mark.filterwarnings("ignore")


def vector() -> Any:
    return jax.ShapeDtypeStruct((N,), "float32")


def matrix() -> Any:
    return jax.ShapeDtypeStruct((SIDE, SIDE), "float32")


def plan_of(function: Callable[..., Any], *arguments: Any, donated: tuple[int, ...] = (), on_gpu: bool = False) -> Plan:
    return make_plan(jax.jit(function).trace(*arguments).jaxpr, donated, on_gpu=on_gpu)


def made(plan: Plan) -> list[str]:
    """What lies in memory, but for small things."""
    nodes = [plan.graph.nodes[instruction.node] for instruction in plan.order if not instruction.is_alias]
    large = [node for node in nodes if node.outputs[0].nbytes >= 32 * KiB]
    return [node.op for node in large if node.op not in ("argument", "constant")]


def total(plan: Plan) -> int:
    return plan.assignment.outputs + plan.assignment.arena


def by_xla(function: Callable[..., Any], *arguments: Any, donated: tuple[int, ...] = ()) -> int:
    told = jax.jit(function, donate_argnums=donated).lower(*arguments).compile().memory_analysis()
    return int(told.output_size_in_bytes + told.temp_size_in_bytes - told.alias_size_in_bytes)


def test_elementwise_operators_become_one() -> None:
    assert made(plan_of(lambda x: jnp.maximum(x * 2 + 1, 0) - x, vector())) == ["sub"]


def test_what_is_expensive_and_needed_twice_is_kept() -> None:
    plan = plan_of(lambda x: (lambda e: (e @ e, e + 1))(jnp.exp(x)), matrix())

    assert sorted(made(plan)) == ["add", "dot", "exp"]


def test_what_is_cheap_is_computed_again() -> None:
    plan = plan_of(lambda x, y: (lambda e: (e + 1, jnp.exp(e)))(x @ y * 2), matrix(), matrix())

    assert sorted(made(plan)) == ["add", "dot", "exp"]  # and no "mul"


def test_equal_parts_are_computed_once_and_unused_ones_never() -> None:
    def twice(x: Any) -> Any:
        jnp.sin(x @ x @ x)
        return x @ x + x @ x

    assert made(plan_of(twice, matrix())) == ["dot", "add"]


def test_an_output_takes_over_an_inputs_memory_when_it_is_the_last_reader() -> None:
    plan = plan_of(lambda x: jnp.exp(x @ x) @ x, matrix())

    assert made(plan) == ["dot", "exp", "dot"]
    assert total(plan) == 2 * 64 * KiB == by_xla(lambda x: jnp.exp(x @ x) @ x, matrix())


def test_a_donated_argument_gives_its_memory_to_the_result() -> None:
    def update(x: Any) -> Any:
        return x + 1

    assert total(plan_of(update, vector())) == 64 * KiB
    assert total(plan_of(update, vector(), donated=(0,))) == 0 == by_xla(update, vector(), donated=(0,))


def test_a_checkpoint_is_not_undone_by_sharing() -> None:
    def block(x: Any) -> Any:
        for _ in range(4):
            x = jnp.sin(x @ x)
        return x

    def needed(block: Callable[[Any], Any]) -> int:
        return total(plan_of(jax.grad(lambda x: block(block(block(block(x)))).sum()), matrix(), on_gpu=True))

    assert needed(jax.checkpoint(block)) < 0.7 * needed(block)


def test_a_loop_holds_its_stacked_results_and_one_body() -> None:
    def loop(x: Any) -> Any:
        return jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ carry), carry), x, None, length=7)

    plan = plan_of(loop, matrix())
    real = by_xla(loop, matrix())

    assert 8 * 64 * KiB <= total(plan) <= 12 * 64 * KiB
    assert abs(total(plan) / real - 1) < 0.2


def test_an_unknown_primitive_is_counted() -> None:
    plan = plan_of(lambda x: jnp.linalg.eigvals(x), jax.ShapeDtypeStruct((8, 8), "float32"))

    assert plan.unsupported == {"eig": 1}


@st.composite
def programs(draw: st.DrawFn) -> Callable[[Any], Any]:
    step = st.tuples(st.sampled_from("mesa"), st.integers(0, 5), st.integers(0, 5))
    steps = draw(st.lists(step, min_size=1, max_size=8))

    def program(x: Any) -> Any:
        values = [x]
        for kind, one, other in steps:
            a, b = values[one % len(values)], values[other % len(values)]
            values.append({"m": a @ b, "e": jnp.exp(a), "s": jnp.sin(a) + 1, "a": a * b}[kind])
        return values[-1]

    return program


@settings(max_examples=25, deadline=None)
@given(programs())
def test_random_programs_need_what_xla_says(program: Callable[[Any], Any]) -> None:
    plan, real = plan_of(program, matrix()), by_xla(program, matrix())

    assert total(plan) == pytest.approx(real, abs=64 * KiB + 1024)


@settings(max_examples=25, deadline=None)
@given(programs())
def test_every_order_runs_inputs_before_their_readers(program: Callable[[Any], Any]) -> None:
    graph = plan_of(program, matrix()).graph
    instructions = fuse(graph, on_gpu=True)
    for arrange in (depth_first, greedy, post_order):
        order = arrange(graph, instructions)
        seen: set[int] = set()
        for instruction in order:
            assert {value[0] for value in instruction.operands} <= seen
            seen.add(instruction.node)
        assert seen >= {value[0] for value in graph.results}


@settings(max_examples=25, deadline=None)
@given(programs())
def test_an_arena_holds_all_that_is_alive_at_once(program: Callable[[Any], Any]) -> None:
    assignment = plan_of(program, matrix()).assignment
    for moment in {temporary.first for temporary in assignment.temporaries}:
        alive = [t.nbytes for t in assignment.temporaries if t.first <= moment <= t.last]
        assert sum(alive) <= assignment.arena

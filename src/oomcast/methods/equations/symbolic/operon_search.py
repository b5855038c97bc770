"""Genetic programming in Operon's C++ code: the forms that it finds for error and length, with one thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .config import SearchConfig
from .expression import Constant, Expression, Floats, Maximum, Power, Product, Sum, Variable
from .packages import needed

__all__ = ["search"]

_DEPTH = 10
_FIRST_LENGTH = 12
_UNLIMITED = 10**9
_TOURNAMENT = 5
_CONSTANT_STEPS = 5
_CONSTANTS_FITTED = 0.02
"""The share of offspring whose constants are fitted: it is what takes time, and the best are fitted again later."""


def search(x: Floats, y: Floats, names: Sequence[str], config: SearchConfig) -> list[Expression]:
    """The equations that no other of the last generation betters in both length and error, over scaled variables.

    Operon's least squares are absolute, so large responses decide; the constants are to be fitted again.
    """
    op = needed("pyoperon")
    data = op.Dataset(np.asfortranarray(np.column_stack([x, y])))
    known = sorted(data.Variables, key=lambda variable: variable.Index)
    inputs = [variable.Hash for variable in known[:-1]]
    every_row = op.Range(0, data.Rows)
    problem = op.Problem(data)
    problem.TrainingRange, problem.TestRange = every_row, op.Range(data.Rows - 1, data.Rows)
    problem.Target, problem.InputHashes = known[-1], inputs
    problem.ConfigurePrimitiveSet(_primitives(op, config))
    primitives, table = problem.PrimitiveSet, op.DispatchTable()
    # Operon keeps plain pointers to its parts: every one of them needs a name here until the run is over.
    creator = op.BalancedTreeCreator(primitives, inputs, 0.0)
    numbers = op.NormalCoefficientInitializer()
    numbers.ParameterizeDistribution(0, 1)
    metric = op.MSE()
    error, length, both = (
        op.Evaluator(problem, table, metric, True),
        op.LengthEvaluator(problem),
        op.MultiEvaluator(problem),
    )
    for evaluator in (error, length):
        evaluator.Budget = _UNLIMITED
        both.Add(evaluator)
    both.Budget = _UNLIMITED
    better = op.CrowdedComparison()
    mothers, fathers, survivors = (
        op.TournamentSelector(better),
        op.TournamentSelector(better),
        op.KeepBestReinserter(better),
    )
    mothers.TournamentSize = fathers.TournamentSize = _TOURNAMENT
    crossover = op.SubtreeCrossover(0.9, _DEPTH, config.max_size)
    mutation = op.MultiMutation()
    mutations = [
        op.NormalOnePointMutation(),
        op.NormalMultiPointMutation(),
        op.ChangeVariableMutation(inputs),
        op.ChangeFunctionMutation(primitives),
        op.ReplaceSubtreeMutation(creator, numbers, _DEPTH, config.max_size),
        op.InsertSubtreeMutation(creator, numbers, _DEPTH, config.max_size),
        op.RemoveSubtreeMutation(primitives),
    ]
    for one in mutations:
        mutation.Add(one, 1.0)
    optimizer = op.LMOptimizer(table, problem, _CONSTANT_STEPS, 0)
    fitted = op.CoefficientOptimizer(optimizer)
    generator = op.BasicOffspringGenerator(both, crossover, mutation, mothers, fathers, fitted)
    first = op.UniformLengthTreeInitializer(creator)
    first.ParameterizeDistribution(2, min(_FIRST_LENGTH, config.max_size))
    first.MinDepth, first.MaxDepth = 1, 1000
    settings = op.GeneticAlgorithmConfig(
        generations=config.generations,
        max_evaluations=_UNLIMITED,
        local_iterations=_CONSTANT_STEPS,
        population_size=config.population,
        pool_size=config.population,
        p_crossover=config.crossover,
        p_mutation=config.mutation,
        p_local=_CONSTANTS_FITTED,
        p_lamarck=1.0,
        epsilon=0.0,
        seed=config.seed,
    )
    sorter, random = op.RankSorter(), op.RandomGenerator(np.uint64(config.seed))
    run = op.NSGA2Algorithm(settings, problem, first, numbers, generator, survivors, sorter)
    run.Run(random, None, 1, False)
    variables = {variable.Hash: Variable(name) for variable, name in zip(known[:-1], names, strict=True)}
    forms: list[Expression] = []
    for individual in run.BestFront:
        factor, shift = op.FitLeastSquares(
            op.Evaluate(table, individual.Genotype, data, every_row), y.astype(np.float32)
        )
        form = _expression(individual.Genotype.Nodes, variables)
        forms.append(Sum((Product((Constant(float(factor)), form)), Constant(float(shift)))))
    return forms


def _primitives(op: Any, config: SearchConfig) -> Any:
    kinds = op.NodeType
    # A cube is a square times its base to Operon, which has no node for it. In pyoperon 0.6 the numbers of minimum and
    # maximum are exchanged, but a node's own name is right.
    known = {
        "add": kinds.Add,
        "multiply": kinds.Mul,
        "square": kinds.Square,
        "subtract": kinds.Sub,
        "maximum": next(kind for kind in (kinds.Fmax, kinds.Fmin) if op.Node(kind).Name == "fmax"),
    }
    chosen = kinds.Constant | kinds.Variable
    for name in config.primitives:
        if name in known:
            chosen |= known[name]
    return chosen


def _expression(nodes: Sequence[Any], variables: Mapping[int, Variable]) -> Expression:
    """From Operon's postfix order, in which the part next to an operation is its first."""
    stack: list[Expression] = []
    for node in nodes:
        if node.IsVariable:
            stack.append(Product((Constant(float(node.Value)), variables[node.HashValue])))
        elif node.IsConstant:
            stack.append(Constant(float(node.Value)))
        else:
            stack.append(_applied(node.Name, [stack.pop() for _ in range(node.Arity)]))
    return stack.pop()


def _applied(name: str, parts: list[Expression]) -> Expression:
    if name == "square":
        return Power(parts[0], 2)
    if name == "-":
        return Sum((parts[0], *(Product((Constant(-1.0), part)) for part in parts[1:])))
    if name == "+":
        return Sum(tuple(parts))
    if name == "*":
        return Product(tuple(parts))
    if name == "fmax":
        return Maximum(tuple(parts))
    raise ValueError(f"Operon gave an operation that was not asked for: {name}")

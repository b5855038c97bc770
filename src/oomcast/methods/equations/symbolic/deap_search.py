"""The published search: genetic programming on DEAP, the settings in `SearchConfig`.

Each generation all individuals are paired, crossed at one point and mutated by one of DEAP's five operators; parents
and offspring together go through a double tournament (fitness, then size). Constants of each new individual are fitted
by Levenberg-Marquardt and kept. What the publication leaves open is decided here: variables and response are divided
by their largest values, constants start between 0 and 1, and an offspring larger than `max_size` gives way to its
parent.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .config import OnGeneration, SearchConfig, SearchState
from .constants import levenberg_marquardt, relative_errors
from .expression import Constant, Expression, Floats, Maximum, Power, Product, Sum, Variable, constants
from .packages import needed

__all__ = ["search"]

_FIRST_DEPTH, _NEW_DEPTH = (1, 4), (0, 2)
_WORST = 1e300
_BETTER = 1e-6


def search(
    x: Floats, y: Floats, names: Sequence[str], config: SearchConfig, on_generation: OnGeneration | None = None
) -> list[Expression]:
    """The equations that no other of the run betters in both size and error, over scaled variables."""
    state = random.getstate()
    random.seed(config.seed)
    try:
        return _Search(dict(zip(names, x.T, strict=True)), y, config).run(on_generation)
    finally:
        random.setstate(state)


def _square(value: Any) -> Any:
    return value**2


def _cube(value: Any) -> Any:
    return value**3


_FUNCTIONS: dict[str, tuple[Any, int]] = {
    "add": (operator.add, 2),
    "multiply": (operator.mul, 2),
    "square": (_square, 1),
    "cube": (_cube, 1),
    "maximum": (np.maximum, 2),
}


class _Search:
    def __init__(self, columns: Mapping[str, Floats], y: Floats, config: SearchConfig) -> None:
        self.columns, self.y, self.config = columns, y, config
        self.gp, self.tools = needed("deap.gp"), needed("deap.tools")
        base = needed("deap.base")

        class Fitness(base.Fitness):  # type: ignore[misc, name-defined]
            weights = (-1.0,)

        gp = self.gp

        class Individual(gp.PrimitiveTree):  # type: ignore[misc, name-defined]
            def __init__(self, content: Any) -> None:
                super().__init__(content)
                self.fitness = Fitness()

        self.individual = Individual
        self.primitives = gp.PrimitiveSet("equation", len(columns))
        for name in config.primitives:
            function, arity = _FUNCTIONS[name]
            self.primitives.addPrimitive(function, arity, name=name)
        self.primitives.addEphemeralConstant("constant", random.random)
        self.primitives.renameArguments(**{f"ARG{place}": f"v{place}" for place in range(len(columns))})
        self.variables = {f"v{place}": Variable(name) for place, name in enumerate(columns)}

    def run(self, on_generation: OnGeneration | None) -> list[Expression]:
        size = self.config.population
        population = [self.individual(self._grown(*_FIRST_DEPTH, half=True)) for _ in range(size)]
        best: dict[int, tuple[float, Expression]] = {}
        self._evaluate(population, best)
        lowest, since = np.inf, 0
        for generation in range(1, self.config.generations + 1):
            offspring = self._varied(population)
            self._evaluate(offspring, best)
            population = self.tools.selDoubleTournament(
                population + offspring,
                size,
                fitness_size=self.config.tournament,
                parsimony_size=self.config.parsimony,
                fitness_first=True,
            )
            size_of_best, (error, _) = min(best.items(), key=lambda item: item[1][0], default=(0, (np.inf, None)))
            since = 0 if error < lowest * (1 - _BETTER) else since + 1
            lowest = min(error, lowest)
            state = SearchState(generation, self.config.generations, float(lowest), size_of_best)
            if (on_generation is not None and not on_generation(state)) or 0 < self.config.patience <= since:
                break
        front: list[tuple[float, Expression]] = []
        for _, one in sorted(best.items(), key=lambda item: item[0]):
            if not front or one[0] < front[-1][0] * (1 - _BETTER):
                front.append(one)
        return [expression for _, expression in front]

    def _grown(self, low: int, high: int, half: bool = False) -> Any:
        grow = self.gp.genHalfAndHalf if half else self.gp.genFull
        return grow(self.primitives, low, high)

    def _varied(self, population: list[Any]) -> list[Any]:
        """Everyone crossed with a random other, then mutated, each with its probability."""
        offspring = [self._copy(one) for one in random.sample(population, len(population))]
        for place in range(1, len(offspring), 2):
            if random.random() < self.config.crossover:
                pair = offspring[place - 1], offspring[place]
                crossed = self.gp.cxOnePoint(*map(self._copy, pair))
                offspring[place - 1 : place + 1] = map(self._within, crossed, pair)
        for place, one in enumerate(offspring):
            if random.random() < self.config.mutation:
                offspring[place] = self._within(self._mutated(self._copy(one)), one)
        return offspring

    def _mutated(self, one: Any) -> Any:
        gp, primitives = self.gp, self.primitives
        which = random.randrange(5)
        if which == 0:
            (changed,) = gp.mutUniform(one, expr=lambda pset, type_: self._grown(*_NEW_DEPTH), pset=primitives)
        elif which == 1:
            (changed,) = gp.mutNodeReplacement(one, pset=primitives)
        elif which == 2:
            (changed,) = gp.mutEphemeral(one, mode="one")
        elif which == 3:
            (changed,) = gp.mutInsert(one, pset=primitives)
        else:
            (changed,) = gp.mutShrink(one)
        return changed

    def _copy(self, one: Any) -> Any:
        copied = self.individual(list(one))
        if one.fitness.valid:
            copied.fitness.values = one.fitness.values
        return copied

    def _within(self, changed: Any, parent: Any) -> Any:
        """The changed one, to be evaluated; its parent if it is too large."""
        if len(changed) > self.config.max_size:
            return self._copy(parent)
        del changed.fitness.values
        return changed

    def _evaluate(self, population: list[Any], best: dict[int, tuple[float, Expression]]) -> None:
        for one in population:
            if not one.fitness.valid:
                form = self._expression(one)
                fitted = levenberg_marquardt(form, self.columns, self.y, self.config.constant_iterations)
                self._keep_constants(one, constants(fitted))
                error = self._error(fitted)
                one.fitness.values = (error if np.isfinite(error) else _WORST,)
                if np.isfinite(error) and error < best.get(len(one), (np.inf, None))[0]:
                    best[len(one)] = (error, fitted)

    def _error(self, fitted: Expression) -> float:
        relative = relative_errors(fitted, self.columns, self.y)
        if self.config.metric == "mape":
            return float(np.abs(relative).mean())
        squared = float(((relative * self.y) ** 2).mean())
        return squared if self.config.metric == "mse" else float(np.sqrt(squared))

    def _keep_constants(self, one: Any, numbers: Sequence[float]) -> None:
        places = [place for place, node in enumerate(one) if self._is_constant(node)]
        for place, number in zip(places, numbers, strict=True):
            fresh = type(one[place])()
            fresh.value = number
            one[place] = fresh

    def _is_constant(self, node: Any) -> bool:
        return isinstance(type(node), self.gp.MetaEphemeral)

    def _expression(self, one: Any) -> Expression:
        stack: list[Expression] = []
        for node in reversed(one):
            if self._is_constant(node):
                stack.append(Constant(node.value))
            elif node.arity == 0:
                stack.append(self.variables[node.value])
            else:
                stack.append(_applied(node.name, [stack.pop() for _ in range(node.arity)]))
        return stack.pop()


def _applied(name: str, parts: list[Expression]) -> Expression:
    if name == "square":
        return Power(parts[0], 2)
    if name == "cube":
        return Power(parts[0], 3)
    if name == "multiply":
        return Product(tuple(parts))
    return Sum(tuple(parts)) if name == "add" else Maximum(tuple(parts))

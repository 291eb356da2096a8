"""Routing expressions: a little arithmetic over key columns that means the same in Spark SQL and in a reader (K3).

    tenant % 16                      pmod(xxhash64(tenant), 16)                      (region * 4 + kind) % 32

Whole numbers, key columns that are whole numbers or dates (as days since 1970-01-01), `+ - * // %`, and the functions
`pmod`, `abs`, `least`, `greatest`, `length` (of text or bytes, in bytes) and `xxhash64` (of any columns). `%` and `//`
round towards minus infinity, as in Python; the SQL says so explicitly. Numbers are 64 bits wide.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.arrow_memory import fixed_values
from holdfast.errors import BadInput
from holdfast.kv.keys import KeyKind, KeySchema
from holdfast.xxh64 import Hashes

__all__ = ["Expression"]

Numbers = npt.NDArray[np.int64]
_NODES_MAX = 200

_ARITY: Mapping[str, tuple[int, int]] = {
    "abs": (1, 1),
    "greatest": (2, 16),
    "least": (2, 16),
    "length": (1, 1),
    "pmod": (2, 2),
    "xxhash64": (1, 16),
}
_OPERATORS: Mapping[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Mod: "%",
    ast.FloorDiv: "//",
}


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression over the columns of one key."""

    text: str
    key: KeySchema

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise BadInput(f"a routing expression is text, not {self.text!r:.60}")
        self._check(self._tree())

    def evaluate(self, arrays: Sequence[pa.Array]) -> Numbers:
        """Its value for each row of canonical key columns."""
        columns = dict(zip(self.key.names, arrays, strict=True))
        rows = len(arrays[0])
        with np.errstate(all="ignore"):
            return np.broadcast_to(self._number(self._tree(), columns), (rows,)).astype(np.int64)

    def to_sql(self, columns: Mapping[str, str]) -> str:
        """The same in Spark SQL, given how each key column is spelled there in its canonical form."""
        return self._sql(self._tree(), columns)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _tree(self) -> ast.expr:
        try:
            return ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self._refused("it cannot be read") from None

    def _refused(self, why: str) -> BadInput:
        return BadInput(
            f"routing expression {self.text!r:.120}: {why}; use whole numbers, the key columns "
            f"({', '.join(self.key.names)}), + - * // %, and {', '.join(_ARITY)}"
        )

    def _kind(self, name: str) -> KeyKind:
        for column in self.key.columns:
            if column.name == name:
                return column.kind
        raise self._refused(f"{name!r} is no key column")

    def _check(self, tree: ast.expr) -> None:
        if sum(1 for _ in ast.walk(tree)) > _NODES_MAX:
            raise self._refused("it is too long")
        self._check_node(tree)

    def _check_node(self, node: ast.expr) -> None:
        match node:
            case ast.Constant(value=int(number)) if not isinstance(number, bool) and abs(number) < 1 << 63:
                return
            case ast.Name(id=name):
                kind = self._kind(name)
                if not (kind.is_integer or kind is KeyKind.DATE):
                    raise self._refused(f"{name!r} is {kind}: put it into xxhash64(…) or length(…)")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                self._check_node(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                self._check_node(left)
                self._check_node(right)
                if isinstance(op, ast.Mod | ast.FloorDiv):
                    self._check_divisor(right)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _ARITY:
                self._check_call(name, arguments)
            case _:
                raise self._refused(f"{ast.unparse(node)!r:.60} is not allowed")

    def _check_call(self, name: str, arguments: list[ast.expr]) -> None:
        least, most = _ARITY[name]
        if not least <= len(arguments) <= most:
            raise self._refused(f"{name} takes {least} argument{'s' * (least > 1)}, not {len(arguments)}")
        if name in {"length", "xxhash64"}:
            for argument in arguments:
                if not isinstance(argument, ast.Name):
                    raise self._refused(f"{name} takes key columns")
                kind = self._kind(argument.id)
                if name == "length" and not kind.is_variable:
                    raise self._refused(f"{argument.id!r} is {kind}, which has no length")
            return
        for argument in arguments:
            self._check_node(argument)
        if name == "pmod":
            self._check_divisor(arguments[1])

    def _check_divisor(self, node: ast.expr) -> None:
        if not (isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value > 0):
            raise self._refused("what is divided by must be a number above 0")

    # -- evaluating ---------------------------------------------------------------------------------------------------

    def _number(self, node: ast.expr, columns: Mapping[str, pa.Array]) -> Numbers:
        match node:
            case ast.Constant(value=int(number)):
                return np.array(number, np.int64)
            case ast.Name(id=name):
                if self._kind(name) is KeyKind.DATE:
                    return fixed_values(columns[name], "<i4").astype(np.int64)
                return _as_numbers(columns[name])
            case ast.UnaryOp(operand=operand):
                return -self._number(operand, columns)
            case ast.BinOp(left=left, op=op, right=right):
                a, b = self._number(left, columns), self._number(right, columns)
                match _OPERATORS[type(op)]:
                    case "+":
                        return a + b
                    case "-":
                        return a - b
                    case "*":
                        return a * b
                    case "%":
                        return a % b
                    case _:
                        return a // b
            case ast.Call(func=ast.Name(id="length"), args=[ast.Name(id=name)]):
                return _as_numbers(pc.binary_length(columns[name]))
            case ast.Call(func=ast.Name(id="xxhash64"), args=arguments):
                return self._hash([argument.id for argument in arguments if isinstance(argument, ast.Name)], columns)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                values = [self._number(argument, columns) for argument in arguments]
                match name:
                    case "pmod":
                        return values[0] % values[1]
                    case "abs":
                        return np.abs(values[0])
                    case "least":
                        return reduce(np.minimum, values)
                    case _:
                        return reduce(np.maximum, values)
            case _:
                raise self._refused(f"{ast.unparse(node)!r:.60} is not allowed")

    def _hash(self, names: list[str], columns: Mapping[str, pa.Array]) -> Numbers:
        chosen = {column.name: column for column in self.key.columns}
        hashes: Hashes | None = None
        for name in names:
            hashes = chosen[name].hash_array(columns[name], hashes)
        assert hashes is not None, "it has at least one argument"
        return hashes.view(np.int64)

    # -- SQL ----------------------------------------------------------------------------------------------------------

    def _sql(self, node: ast.expr, columns: Mapping[str, str]) -> str:
        match node:
            case ast.Constant(value=int(number)):
                return f"{number}L"
            case ast.Name(id=name):
                return columns[name]
            case ast.UnaryOp(operand=operand):
                return _with([self._sql(operand, columns)], _NEGATED)
            case ast.BinOp(left=left, op=op, right=right):
                return _with([self._sql(left, columns), self._sql(right, columns)], _SQL[_OPERATORS[type(op)]])
            case ast.Call(func=ast.Name(id="length"), args=[ast.Name(id=name)]):
                return f"CAST(octet_length({columns[name]}) AS BIGINT)"
            case ast.Call(func=ast.Name(id="abs"), args=[argument]):
                return _with([self._sql(argument, columns)], _ABSOLUTE)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return f"{name}({', '.join(self._sql(argument, columns) for argument in arguments)})"
            case _:
                raise self._refused(f"{ast.unparse(node)!r:.60} is not allowed")


def _as_numbers(array: pa.Array) -> Numbers:
    found: Numbers = array.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


_INLINE_MAX = 200
_LEAST = "(-9223372036854775807L - 1L)"
# Spark may be set to refuse numbers that leave 64 bits; readers wrap around. So the SQL wraps around by itself.
_NEGATED = f"CASE WHEN {{0}} = {_LEAST} THEN {{0}} ELSE -{{0}} END"
_ABSOLUTE = f"CASE WHEN {{0}} = {_LEAST} THEN {{0}} ELSE abs({{0}}) END"
_SQL: Mapping[str, str] = {
    "+": f"coalesce(try_add({{0}}, {{1}}), ({{0}} ^ {_LEAST}) + ({{1}} ^ {_LEAST}))",
    "-": f"coalesce(try_subtract({{0}}, {{1}}), ({{0}} ^ {_LEAST}) - ({{1}} ^ {_LEAST}))",
    "*": "coalesce(try_multiply({0}, {1}), CAST("
    "pmod(CAST({0} AS DECIMAL(19, 0)) * CAST({1} AS DECIMAL(19, 0)) + 9223372036854775808BD, 18446744073709551616BD)"
    " - 9223372036854775808BD AS BIGINT))",
    "%": "pmod({0}, {1})",
    "//": "({0} div {1}) - CASE WHEN {0} < 0L AND pmod({0}, {1}) <> 0L THEN 1L ELSE 0L END",
}


def _with(operands: list[str], template: str) -> str:
    """A template around operands. Long ones are given a name first: each level would otherwise double the text."""
    if sum(map(len, operands)) <= _INLINE_MAX:
        return "(" + template.format(*operands) + ")"
    named = ", ".join(f"'p{index}', {operand}" for index, operand in enumerate(operands))
    body = template.format(*(f"x.p{index}" for index in range(len(operands))))
    return f"transform(array(named_struct({named})), x -> {body})[0]"

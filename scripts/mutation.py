"""Small faults for the mutation test: what can be changed in a named query, and in a Python module.

Nothing runs here. A fault of SQL is another text of the query; a fault of Python is a change of one node
in a syntax tree. What only words a message, an annotation or a docstring is left alone.
"""

from __future__ import annotations

import ast
import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

_TOKEN = re.compile(r"--[^\n]*|'(?:[^']|'')*'|:\w+|\w+(?:\.\w+)*|<>|<=|>=|\|\||[^\s\w]")
_CLAUSES = {
    "SELECT",
    "FROM",
    "WHERE",
    "ON",
    "CONFLICT",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "CASE",
    "SET",
    "VALUES",
}
_CLAUSES |= {"GROUP", "ORDER", "LIMIT", "OFFSET", "RETURNING", "JOIN", "AS", "UNION", "HAVING"}
_CONDITIONAL = {"WHERE", "ON", "WHEN", "HAVING"}
_INSTEAD = {"=": "<>", "<>": "=", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "OR": "AND"}
_INSTEAD |= {"EXISTS": "NOT EXISTS", "IN": "NOT IN", "IS": "IS NOT", "MAX": "min", "MIN": "max"}


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        return self.text.upper()


@dataclass(frozen=True, slots=True)
class _Piece:
    """What stands between two separators at one depth of parentheses.

    Attributes:
        clause: the keyword that it belongs to.
        joins: the AND or OR beside it, if there is one.
    """

    tokens: tuple[_Token, ...]
    clause: str
    joins: frozenset[str]


def sql_mutants(sql: str) -> Iterator[tuple[str, str]]:
    """Every fault of a query: what was changed into what, and the whole text with it."""
    tokens = [
        _Token(match[0], match.start(), match.end())
        for match in _TOKEN.finditer(sql)
        if not match[0].startswith("--")
    ]
    for start, end, instead in dict.fromkeys([*_words(tokens), *_pieces_changed(tokens)]):
        line = sql[sql.rfind("\n", 0, start) + 1 :].partition("\n")[0].strip()
        before = " ".join(sql[start:end].split())
        shown = before if before == line else f"{line}: {before}"
        yield f"{shown} -> {instead.strip()}", f"{sql[:start]}{instead}{sql[end:]}"


def _words(tokens: list[_Token]) -> Iterator[tuple[int, int, str]]:
    """Other operators, other numbers, a member less in a list."""
    assigned = {
        piece.tokens[1] for piece in _pieces(tokens) if piece.clause == "SET" and len(piece.tokens) > 2
    }
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        following = after.word if after else ""
        if before and before.word == "NOT":
            yield before.start, token.end, token.text
        elif token.word == "IS" and after and following == "NOT":
            yield token.start, after.end, "IS"
        elif token.word in _INSTEAD and token not in assigned:
            if token.word not in ("MAX", "MIN") or following == "(":
                yield token.start, token.end, _INSTEAD[token.word]
        elif token.text.isdecimal():
            yield token.start, token.end, str(int(token.text) + 1)
        elif token.text.startswith("'") and before and after:
            if before.text == "," and following in (",", ")"):
                yield before.start, token.end, ""
            elif before.text == "(" and following == ",":
                yield token.start, after.end, ""


def _pieces_changed(tokens: list[_Token]) -> Iterator[tuple[int, int, str]]:
    """A condition less, a column not written, another order, no limit, one side of a `coalesce`."""
    for piece in _pieces(tokens):
        start, end = piece.tokens[0].start, piece.tokens[-1].end
        if piece.joins or piece.clause in _CONDITIONAL:
            yield start, end, "0" if piece.joins == {"OR"} else "1"
        elif piece.clause == "SET" and len(piece.tokens) > 2:
            yield start, end, f"{piece.tokens[0].text} = {piece.tokens[0].text}"
        elif piece.clause == "ORDER":
            if piece.tokens[-1].word == "DESC":
                yield piece.tokens[-1].start, end, "ASC"
            else:
                yield end, end, " DESC"
        elif piece.clause == "LIMIT":
            yield start, end, "-1"
        elif piece.clause == "COALESCE":
            yield start, end, "NULL"


def _pieces(tokens: list[_Token], clause: str = "") -> Iterator[_Piece]:
    found: list[_Token] = []
    joins: set[str] = set()
    outer: list[str] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.text == "(":
            close = _closing(tokens, at)
            caller = tokens[at - 1].word if at else ""
            yield from _pieces(tokens[at + 1 : close], caller if caller == "COALESCE" else "")
            found += tokens[at : close + 1]
            at = close
        elif token.word in ("AND", "OR"):
            if found:
                yield _Piece(tuple(found), clause, frozenset(joins | {token.word}))
            found, joins = [], {token.word}
        elif token.word == "BY" and tokens[at - 1].word in ("ORDER", "GROUP"):
            pass
        elif token.text == "," or token.word in _CLAUSES:
            if found:
                yield _Piece(tuple(found), clause, frozenset(joins))
            found, joins = [], set()
            if token.word == "CASE":
                outer.append(clause)
            clause = clause if token.text == "," else outer.pop() if token.word == "END" else token.word
        else:
            found.append(token)
        at += 1
    if found:
        yield _Piece(tuple(found), clause, frozenset(joins))


def _closing(tokens: list[_Token], opening: int) -> int:
    depth = 0
    for at in range(opening, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[at].text, 0)
        if depth == 0:
            return at
    raise ValueError("a parenthesis is not closed")


def program(db: sqlite3.Connection, sql: str) -> list[tuple[object, ...]] | None:
    """What SQLite makes of a statement, to compare it with another one's; None: it is no statement."""
    names = dict.fromkeys(re.findall(r":(\w+)", sql))
    try:
        return [tuple(row[:7]) for row in db.execute(f"EXPLAIN {sql}", names)]
    except sqlite3.Error:
        return None


@dataclass(frozen=True, slots=True)
class Site:
    """A place in a syntax tree, and what is made of it there.

    Attributes:
        function: where it stands, as `Class.method`; empty in the module's own lines.
        line: the line on which its statement begins.
        apply: changes the tree that the site was found in.
    """

    function: str
    line: int
    change: str
    apply: Callable[[], object]


_PAIRS: list[tuple[type[ast.AST], type[ast.AST]]] = [
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.And, ast.Or),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.FloorDiv),
    (ast.LShift, ast.RShift),
]
_OPERATORS = dict([*_PAIRS, *((second, first) for first, second in _PAIRS)])
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


class _Sites(ast.NodeVisitor):
    """Collects the sites of a module."""

    def __init__(self, enums: Mapping[str, Collection[str]]) -> None:
        self.found: list[Site] = []
        self._enums = enums
        self._names: list[str] = []
        self._line = 0

    def _add(self, node: ast.AST, to: str, apply: Callable[[], object]) -> None:
        before = " ".join(ast.unparse(node).split())
        short = before if len(before) <= 90 else f"{before[:87]}..."
        self.found.append(Site(".".join(self._names), self._line, f"{short} -> {to}", apply))

    def visit(self, node: ast.AST) -> None:
        outer = self._line
        if isinstance(node, ast.stmt):
            self._line = node.lineno
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._names.append(node.name)
                for part in node.body:
                    if not (isinstance(node, ast.ClassDef) and isinstance(part, ast.AnnAssign)):
                        self.visit(part)
                self._names.pop()
            case ast.AnnAssign(value=ast.expr() as value):
                self.visit(value)
            case ast.arg() | ast.JoinedStr() | ast.AnnAssign() | ast.Expr(value=ast.Constant()):
                pass
            case _:
                self._mutate(node)
                self.generic_visit(node)
        self._line = outer

    def _mutate(self, node: ast.AST) -> None:
        match node:
            case ast.Compare(ops=operators):
                for at, operator in enumerate(operators):
                    self._swap(node, operator, partial(operators.__setitem__, at))
            case ast.BoolOp(op=operator, values=values):
                self._swap(node, operator, partial(setattr, node, "op"))
                for at, value in enumerate(values):
                    neutral = ast.Constant(value=isinstance(operator, ast.And))
                    self._add(node, f"without {ast.unparse(value)}", partial(values.__setitem__, at, neutral))
            case ast.BinOp(op=operator) | ast.AugAssign(op=operator):
                self._swap(node, operator, partial(setattr, node, "op"))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._add(node, "without not", partial(setattr, node, "operand", _negated(operand)))
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                if isinstance(node, ast.IfExp) or not isinstance(
                    test, ast.Compare | ast.BoolOp | ast.UnaryOp
                ):
                    self._add(test, "negated", partial(setattr, node, "test", _negated(test)))
            case _:
                self._mutate_leaf(node)

    def _mutate_leaf(self, node: ast.AST) -> None:
        match node:
            case ast.Constant(value=bool(value)):
                self._add(node, str(not value), partial(setattr, node, "value", not value))
            case ast.Constant(value=int(value)):
                self._add(node, str(value + 1), partial(setattr, node, "value", value + 1))
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if attr in self._enums.get(name, ()):
                members = list(self._enums[name])
                other = members[(members.index(attr) + 1) % len(members)]
                self._add(node, other, partial(setattr, node, "attr", other))
            case ast.Call(func=ast.Name(id=name) as function) if name in _CALLS:
                self._add(node, _CALLS[name], partial(setattr, function, "id", _CALLS[name]))
            case ast.Expr(value=ast.Call() | ast.Await()):
                self._add(node, "not called", partial(setattr, node, "value", ast.Constant(value=None)))
            case _:
                self._mutate_choice(node)

    def _mutate_choice(self, node: ast.AST) -> None:
        match node:
            case ast.comprehension(ifs=tests):
                for at, test in enumerate(tests):
                    self._add(test, "no filter", partial(tests.__setitem__, at, ast.Constant(value=True)))
            case ast.Match(cases=cases) if len(cases) > 1:
                for at, case in enumerate(cases):
                    self._add(case.pattern, "no such case", partial(cases.__delitem__, at))
            case ast.match_case(guard=ast.expr() as guard):
                self._add(guard, "no guard", partial(setattr, node, "guard", None))

    def _swap(self, node: ast.AST, operator: ast.AST, put: Callable[[ast.AST], object]) -> None:
        other = _OPERATORS.get(type(operator))
        if other is not None:
            self._add(node, f"{type(operator).__name__} becomes {other.__name__}", partial(put, other()))


def _negated(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(op=ast.Not(), operand=test)


def sites(tree: ast.Module, enums: Mapping[str, Collection[str]]) -> list[Site]:
    """Every place of a module that can be changed, in an order that is the same for the same source.

    Args:
        enums: name -> its members, of the enumerations that the module uses.
    """
    visitor = _Sites(enums)
    visitor.visit(tree)
    return visitor.found


class _Probes(ast.NodeTransformer):
    def visit(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and not isinstance(node, ast.Module | ast.ClassDef):
                setattr(node, field, [part for step in block for part in (*self._probe(step), step)])
        return node

    def _probe(self, step: ast.stmt) -> Iterator[ast.stmt]:
        if not (isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant)):
            yield ast.copy_location(ast.parse(f"_reached({step.lineno})").body[0], step)


def probed(tree: ast.Module) -> ast.Module:
    """The module, in which each statement of a function first calls `_reached` with its line."""
    _Probes().visit(tree)
    return ast.fix_missing_locations(tree)

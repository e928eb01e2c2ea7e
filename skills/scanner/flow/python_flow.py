"""Reads the data flow of Python."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from skills.scanner.data_files import word_set
from skills.scanner.flow import sources
from skills.scanner.flow.calls import Call, record_call
from skills.scanner.flow.shell_flow import read_shell
from skills.scanner.flow.values import EMPTY, Flow, Value, join, of_label

_MAX_DEPTH = 80
_HEADERS = frozenset({"headers", "auth", "cookies"})
_IGNORED = frozenset({"cert", "verify", "timeout", "env", "cwd", "proxies", "pkey", "key_filename"})
_INTERPRETERS = word_set("sh bash zsh python python3 node perl ruby osascript -c -e -u")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def read_python(text: str, first_line: int = 1) -> Flow | None:
    """The data flow of a module or snippet; None if it cannot be parsed or nests too deep."""
    try:
        tree = ast.parse(text)
        reader = _Reader(tree, first_line)
        reader.read(tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return reader.flow


class _Reader:
    """Names of a function are qualified by it, so that equal names of others stay apart."""

    def __init__(self, tree: ast.Module, first_line: int) -> None:
        self.flow = Flow()
        self._first = first_line - 1
        self._scope = ""
        self._locals: dict[str, set[str]] = {}
        self._functions: dict[str, list[str]] = {}
        self._declare(tree)

    def _declare(self, tree: ast.Module) -> None:
        """Note the functions of a module, their parameters and the names that they assign."""
        rest: list[tuple[ast.AST, set[str]]] = [(tree, set())]
        while rest:
            node, names = rest.pop()
            if isinstance(node, _Function):
                names = self._locals.setdefault(node.name, set())
                listed = [arg.arg for arg in node.args.args if arg.arg not in ("self", "cls")]
                self._functions[node.name] = listed
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Store):
                    names.add(node.id)
                continue
            rest += [(child, names) for child in ast.iter_child_nodes(node)]

    def read(self, statements: Sequence[ast.stmt]) -> None:
        """Record what statements assign and use."""
        for statement in statements:
            if isinstance(statement, _Function):
                self._read_function(statement)
            else:
                self._read_statement(statement)

    def _read_function(self, function: _Function) -> None:
        outer, self._scope = self._scope, function.name
        self.read(function.body)
        self._scope = outer

    def _read_statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=targets, value=value):
                self._assign(targets, self._value(value))
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign([target], self._value(value))
            case ast.AugAssign(target=target, value=value):
                self._assign([target], self._value(value))
            case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
                self._assign([target], self._value(value))
            case ast.With(items=items) | ast.AsyncWith(items=items):
                for item in items:
                    self._open(item)
            case ast.Return(value=ast.expr() as value):
                self.flow.assign(f"{self._scope}()", self._value(value))
            case _:
                for child in ast.iter_child_nodes(statement):
                    if isinstance(child, ast.expr):
                        self._value(child)
        for name in ("body", "orelse", "finalbody"):
            self.read(getattr(statement, name, []))
        for handler in getattr(statement, "handlers", []):
            self.read(handler.body)

    def _open(self, item: ast.withitem) -> None:
        value = self._value(item.context_expr)
        if item.optional_vars is None:
            return
        self._assign([item.optional_vars], value)
        # What is written to the file is what its path stands for later.
        match item.context_expr, item.optional_vars:
            case ast.Call(args=[path, *_]), ast.Name(id=handle):
                for name in self._path_names(path):
                    self.flow.assign(name, Value(names=frozenset({self._qualify(handle)})))

    def _path_names(self, path: ast.expr) -> Iterator[str]:
        if isinstance(path, ast.Constant) and isinstance(path.value, str):
            yield f"path:{path.value}"
        for node in ast.walk(path):
            if isinstance(node, ast.Name):
                yield self._qualify(node.id)

    def _assign(self, targets: Sequence[ast.expr], value: Value) -> None:
        for target in targets:
            for node in ast.walk(target):
                if isinstance(node, ast.Name):
                    self.flow.assign(self._qualify(node.id), value)
                elif isinstance(node, ast.Attribute) and _dotted(node).startswith("self."):
                    self.flow.assign(_dotted(node), value)

    def _qualify(self, name: str) -> str:
        inside = name in self._locals.get(self._scope, ())
        return f"{self._scope}.{name}" if inside else name

    def _value(self, node: ast.AST, depth: int = 0) -> Value:
        if depth > _MAX_DEPTH:
            return EMPTY
        match node:
            case ast.Constant(value=str() as text):
                return sources.label_path(text) | Value(names=frozenset({f"path:{text[:200]}"}))
            case ast.Name(id=name):
                return Value(names=frozenset({self._qualify(name)}))
            case ast.Attribute():
                return self._attribute(node, depth)
            case ast.Subscript(value=value, slice=key):
                of_key = self._value(key, depth + 1)
                is_one = isinstance(key, ast.Constant) or _dotted(value) == "os.environ"
                held = self._value(value, depth + 1)
                return (held.after("pick") if is_one else held) | of_key
            case ast.Call():
                return self._call(node, depth)
            case ast.Compare() | ast.Lambda():
                return EMPTY
            case ast.BinOp(op=ast.Div()):
                parts = self._children(node, depth)
                below = parts.after("below") if _literals(node.right, "") else parts
                return below | sources.label_path(_literals(node, "/"))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for loop in node.generators:
                    self._assign([loop.target], self._value(loop.iter, depth + 1))
                made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
                return join(self._value(part, depth + 1) for part in made)
        return self._children(node, depth)

    def _children(self, node: ast.AST, depth: int) -> Value:
        return join(self._value(child, depth + 1) for child in ast.iter_child_nodes(node))

    def _attribute(self, node: ast.Attribute, depth: int) -> Value:
        dotted = _dotted(node)
        if dotted in ("os.environ", "environ"):
            return of_label("environment")
        if dotted == "sys.argv":
            return of_label("argument")
        if dotted.startswith("self."):
            return Value(names=frozenset({dotted}))
        return self._value(node.value, depth + 1)

    def _call(self, call: ast.Call, depth: int) -> Value:
        name = _dotted(call.func)
        last = name.rpartition(".")[2]
        inner = call.func.value if isinstance(call.func, ast.Attribute) else None
        arguments = [self._value(one, depth + 1) for one in call.args]
        named = {one.arg or "": self._value(one.value, depth + 1) for one in call.keywords}
        line = call.lineno + self._first
        if name in sources.RUNNING and call.args:
            self._run(call.args[0], line)
        known = self._functions.get(last)
        if known is not None and (inner is None or name.startswith("self.")):
            for parameter, value in [*zip(known, arguments, strict=False), *named.items()]:
                self.flow.assign(f"{last}.{parameter}", value)
            return Value(names=frozenset({f"{last}()"}))
        plain = [value for key, value in named.items() if key not in _HEADERS | _IGNORED]
        recorded = Call(
            line,
            name,
            receiver=self._value(inner, depth + 1) if inner else EMPTY,
            variable=self._qualify(inner.id) if isinstance(inner, ast.Name) else "",
            sent=join([*arguments, *plain]),
            headers=join(named[key] for key in named.keys() & _HEADERS),
            text=_literals(call, " "),
            targets=[target for one in call.args for target in self._path_names(one)],
        )
        return record_call(self.flow, recorded)

    def _run(self, command: ast.expr, line: int) -> None:
        """A command that is run: its program, and what its words are as a shell command."""
        match command:
            case ast.List(elts=words) | ast.Tuple(elts=words):
                for word in words:
                    text = word.value if isinstance(word, ast.Constant) else ""
                    if _dotted(word) == "sys.executable" or text in _INTERPRETERS:
                        continue
                    self.flow.use(line, "execute", self._value(word))
                    break
            case ast.Name() | ast.Call() | ast.Attribute():
                self.flow.use(line, "execute", self._value(command))
        text = ("" if isinstance(command, ast.JoinedStr) else " ").join(self._as_shell(command))
        if text.strip():
            self.flow.add(read_shell(text, line, self._qualify))

    def _as_shell(self, command: ast.expr) -> Iterator[str]:
        for node in getattr(command, "elts", None) or getattr(command, "values", [command]):
            match node:
                case ast.Constant(value=str() as text):
                    yield text
                case ast.FormattedValue(value=ast.Name(id=name)) | ast.Name(id=name):
                    yield "${" + name + "}"


def _dotted(node: ast.AST) -> str:
    """The name of a function as written, `a.b.c`; calls within are left out."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{_dotted(value)}.{name}".lstrip(".")
        case ast.Call(func=function):
            return _dotted(function)
    return ""


def _literals(node: ast.AST, separator: str) -> str:
    """The texts of an expression, joined: of a path its parts, of a call its arguments."""
    match node:
        case ast.Constant(value=str() as text):
            return text[:300]
        case ast.Call(args=parts) | ast.JoinedStr(values=parts) | ast.List(elts=parts):
            return separator.join(filter(None, (_literals(part, separator) for part in parts)))
        case ast.BinOp(left=left, right=right):
            return separator.join(
                filter(None, (_literals(left, separator), _literals(right, separator)))
            )
    return ""

"""Reads the data flow of JavaScript; types of TypeScript are read over as far as they parse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache

from tree_sitter import Language, Node, Parser

from skills.scanner.data_files import word_set
from skills.scanner.flow import sources
from skills.scanner.flow.calls import Call, record_call
from skills.scanner.flow.shell_flow import read_shell
from skills.scanner.flow.values import EMPTY, Flow, Value, join, of_label

_MAX_DEPTH = 80
_FUNCTIONS = word_set(
    "function_declaration function_expression arrow_function method_definition "
    "generator_function_declaration"
)
_IGNORED = word_set("env cwd timeout agent cert signal")
_HEADERS = word_set("headers auth")


@cache
def _parser() -> Parser:
    import tree_sitter_javascript

    return Parser(Language(tree_sitter_javascript.language()))


def read_javascript(text: str, first_line: int = 1) -> Flow:
    """The data flow of a program or snippet; what is broken or nests too deep is left out."""
    reader = _Reader(first_line)
    with suppress(RecursionError):
        reader.read(_parser().parse(text.encode("utf-8", "replace")).root_node, "")
    return reader.flow


class _Reader:
    """Names are qualified by the function that declares them."""

    def __init__(self, first_line: int) -> None:
        self.flow = Flow()
        self._first = first_line
        self._declared: dict[str, set[str]] = {"": set()}
        self._functions: dict[str, list[str]] = {}

    def read(self, node: Node, scope: str, depth: int = 0) -> Value:
        """Record what a node assigns and uses; returns its value."""
        if depth > _MAX_DEPTH:
            return EMPTY
        match node.type:
            case "program" | "statement_block":
                self._hoist(node)
            case "string" | "template_string":
                return self._string(node, scope, depth)
            case "identifier" | "shorthand_property_identifier":
                return Value(names=frozenset({self._qualify(_text(node), scope)}))
            case "member_expression":
                return self._member(node, scope, depth)
            case "call_expression" | "new_expression":
                return self._call(node, scope, depth)
            case "variable_declarator" | "assignment_expression" | "for_in_statement":
                return self._assign(node, scope, depth)
            case "pair":
                return self._pair(node, scope)
            case "return_statement":
                self.flow.assign(f"{scope}()", self._all(node, scope, depth))
                return EMPTY
            case kind if kind in _FUNCTIONS:
                return self._function(node, scope, depth)
            case "binary_expression":
                return self._binary(node, scope, depth)
        return self._all(node, scope, depth)

    def _pair(self, node: Node, scope: str) -> Value:
        key = _text(node.child_by_field_name("key")).strip("\"'`")
        value = self._field(node, "value", scope)
        if key in _IGNORED:
            return EMPTY
        return value.after("pick") if key in _HEADERS else value

    def _binary(self, node: Node, scope: str, depth: int) -> Value:
        if _text(node.child_by_field_name("operator"))[:1] in ("=", "!", "<", ">"):
            return EMPTY
        path = "/".join(_literals(node)).replace("//", "/")
        return self._all(node, scope, depth) | sources.label_path(path)

    def _all(self, node: Node, scope: str, depth: int) -> Value:
        return join([self.read(child, scope, depth + 1) for child in node.named_children])

    def _field(self, node: Node, name: str, scope: str, depth: int = 0) -> Value:
        child = node.child_by_field_name(name)
        return self.read(child, scope, depth + 1) if child else EMPTY

    def _hoist(self, node: Node) -> None:
        for child in node.named_children:
            if child.type == "function_declaration":
                names = _identifiers(child.child_by_field_name("parameters"))
                self._functions[_text(child.child_by_field_name("name"))] = list(names)

    def _function(self, node: Node, scope: str, depth: int) -> Value:
        name = _text(node.child_by_field_name("name")) or self._name_of(node) or scope
        names = list(
            _identifiers(
                node.child_by_field_name("parameters") or node.child_by_field_name("parameter")
            )
        )
        inner = name if name != scope else scope
        self._declared.setdefault(inner, set()).update(names)
        if inner not in self._functions:
            self._functions[inner] = names
        body = node.child_by_field_name("body")
        if body is None:
            return EMPTY
        value = self.read(body, inner, depth + 1)
        if body.type != "statement_block":
            self.flow.assign(f"{inner}()", value)
        return Value(names=frozenset({f"{inner}()"}))

    def _name_of(self, node: Node) -> str:
        parent = node.parent
        if parent is not None and parent.type == "variable_declarator":
            return _text(parent.child_by_field_name("name"))
        return ""

    def _string(self, node: Node, scope: str, depth: int) -> Value:
        text = "".join(_literals(node))
        value = sources.label_path(text) | Value(names=frozenset({f"path:{text[:200]}"}))
        return value | self._all(node, scope, depth)

    def _member(self, node: Node, scope: str, depth: int) -> Value:
        text = _text(node)
        if text == "process.env":
            return of_label("environment")
        if text.startswith("process.env."):
            return EMPTY
        if text in ("process.argv", "Deno.args"):
            return of_label("argument")
        if text.startswith("this."):
            return Value(names=frozenset({text}))
        return self._field(node, "object", scope, depth)

    def _assign(self, node: Node, scope: str, depth: int) -> Value:
        left = node.child_by_field_name("name") or node.child_by_field_name("left")
        right = node.child_by_field_name("value") or node.child_by_field_name("right")
        value = self.read(right, scope, depth + 1) if right else EMPTY
        self._field(node, "body", scope, depth)
        if node.type == "variable_declarator":
            self._declared.setdefault(scope, set()).update(_identifiers(left))
        self._bind(left, value, scope)
        return value

    def _bind(self, target: Node | None, value: Value, scope: str) -> None:
        if target is not None and target.type == "member_expression":
            self.flow.assign(_text(target) if "this." in _text(target) else "", value)
        for name in _identifiers(target):
            self.flow.assign(self._qualify(name, scope), value)

    def _qualify(self, name: str, scope: str) -> str:
        return f"{scope}.{name}" if scope and name in self._declared.get(scope, ()) else name

    def _call(self, node: Node, scope: str, depth: int) -> Value:
        function = node.child_by_field_name("function") or node.child_by_field_name("constructor")
        listed = node.child_by_field_name("arguments")
        nodes = listed.named_children if listed else []
        arguments = [self.read(one, scope, depth + 1) for one in nodes]
        name = _dotted(function)
        last = name.rpartition(".")[2]
        inner = function.child_by_field_name("object") if function else None
        line = self._first + node.start_point[0]
        if last in sources.RUNNING and nodes and (inner is None or "child_process" in name):
            self._run(nodes[0], arguments[0], line, scope)
            name = f"child_process.{last}"
        known = self._functions.get(last) if inner is None else None
        if known is not None:
            for parameter, value in zip(known, arguments, strict=False):
                self.flow.assign(f"{last}.{parameter}", value)
            return Value(names=frozenset({f"{last}()"}))
        receiver = self.read(inner, scope, depth + 1) if inner else EMPTY
        is_name = inner is not None and inner.type == "identifier"
        variable = self._qualify(_text(inner), scope) if is_name else ""
        texts = _literals(listed)
        targets = [f"path:{text}" for text in texts]
        targets += [self._qualify(one, scope) for one in _identifiers(listed)]
        call = Call(
            line, name, receiver, variable, join(arguments), EMPTY, " ".join(texts), targets
        )
        return record_call(self.flow, call)

    def _run(self, node: Node, value: Value, line: int, scope: str) -> None:
        """A command that is run: a value as it is, or a text with values in it."""
        if node.type not in ("string", "template_string"):
            self.flow.use(line, "execute", value)
            return
        text = _text(node)[1:-1]
        self.flow.add(read_shell(text, line, lambda name: self._qualify(name, scope)))


def _literals(node: Node | None, depth: int = 0) -> Sequence[str]:
    """The texts within an expression."""
    if node is None or depth > _MAX_DEPTH:
        return []
    if node.type == "string_fragment":
        return [_text(node)[:300]]
    return [text for child in node.named_children for text in _literals(child, depth + 1)]


def _identifiers(node: Node | None, depth: int = 0) -> Iterator[str]:
    if node is None or depth > _MAX_DEPTH:
        return
    if node.type in ("identifier", "shorthand_property_identifier_pattern"):
        yield _text(node)
    elif node.type != "member_expression":
        for child in node.named_children:
            yield from _identifiers(child, depth + 1)


def _dotted(node: Node | None) -> str:
    """The name of a function as written, `a.b.c`; calls within are left out."""
    if node is None:
        return ""
    if node.type == "member_expression":
        name = _text(node.child_by_field_name("property"))
        return f"{_dotted(node.child_by_field_name('object'))}.{name}".lstrip(".")
    if node.type in ("call_expression", "await_expression", "parenthesized_expression"):
        inner = node.child_by_field_name("function") or next(iter(node.named_children), None)
        return "child_process" if "child_process" in _text(node) else _dotted(inner)
    return _text(node) if node.type == "identifier" else ""


def _text(node: Node | None) -> str:
    return (node.text or b"").decode("utf-8", "replace") if node else ""

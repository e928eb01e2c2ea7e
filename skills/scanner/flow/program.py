"""Reads the data flow of Python and JavaScript by one walk over their syntax trees.

The nodes of both languages play the same parts, which a table names. Types of TypeScript are read over
as far as they parse.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import cache

from tree_sitter import Language, Node, Parser, Query, QueryCursor

from skills.scanner.code_blocks import Code
from skills.scanner.data_files import word_set
from skills.scanner.flow import sources
from skills.scanner.flow.shell import read_shell
from skills.scanner.flow.values import EMPTY, Flow, Value, join, of_label, of_name

_MAX_DEPTH = 80
_PIPED = re.compile(r"\b(?:curl|wget)\s[^|]{4,200}\|\s*(?:sudo\s+)?(?:ba|z)?sh\b")
_PARTS = {
    "call": "call call_expression new_expression",
    "assign": "assignment augmented_assignment named_expression variable_declarator for_in_statement "
    "assignment_expression augmented_assignment_expression for_statement for_in_clause",
    "open": "as_pattern",
    "function": "function_definition lambda function_declaration function_expression arrow_function "
    "method_definition generator_function_declaration",
    "return": "return_statement yield",
    "string": "string template_string concatenated_string",
    "name": "identifier shorthand_property_identifier",
    "member": "attribute member_expression",
    "subscript": "subscript subscript_expression",
    "pair": "pair keyword_argument",
    "binary": "binary_operator binary_expression",
    "import": "import_statement import_from_statement",
    "nothing": "comparison_operator comment",
}
_PART_OF = {kind: part for part, kinds in _PARTS.items() for kind in kinds.split()}
_LITERALS = word_set("string_content string_fragment")
_IGNORED = word_set(
    "cert verify timeout env cwd proxies pkey key_filename agent signal stdout stderr"
)
_HEADERS = word_set("headers auth cookies")
_INTERPRETERS = word_set("sh bash zsh python python3 node perl ruby osascript -c -e -u")
_WRAPPERS = word_set("await await_expression parenthesized_expression")
_LISTS = word_set("list tuple array")
_ENVIRONMENT = word_set("os.environ environ process.env Deno.env")
_ARGUMENTS = word_set("sys.argv process.argv Deno.args")


_DECLARATIONS = {
    "python": "(function_definition) @function [(import_statement) (import_from_statement)] @module",
    "javascript": "[(function_declaration) (function_expression) (arrow_function) (method_definition)]"
    " @function [(import_statement) (variable_declarator)] @module",
}


@cache
def _grammar(language: str) -> Language:
    if language == "python":
        import tree_sitter_python as grammar
    else:
        import tree_sitter_javascript as grammar
    return Language(grammar.language())


@cache
def _query(language: str) -> Query:
    return Query(_grammar(language), _DECLARATIONS[language])


class ProgramReader:
    """Reads the programs of a skill in a language, which share their functions.

    Names are qualified by the function that declares them, and by the program, so that equal names of
    others stay apart.
    """

    def __init__(self, language: str) -> None:
        self.flow = Flow()
        self._language, self._is_python = language, language == "python"
        self._parser = Parser(_grammar(language))
        self._first = 1
        self._scopes: list[str] = []
        self._declared: dict[str, set[str]] = {}
        self._functions: dict[str, list[str]] = {}
        self._modules: set[str] = set()
        self._own: set[str] = set()

    def read(self, programs: Sequence[Code]) -> Flow:
        """The data flow of programs; what nests too deep is left out."""
        trees = [
            self._parser.parse(textwrap.dedent(one.text).encode("utf-8", "replace")) for one in programs
        ]
        self._own = {one.module for one in programs}
        for tree in trees:
            self._declare(tree.root_node)
        for tree, program in zip(trees, programs, strict=True):
            self._first = program.first_line
            self._scopes = [f"{program.first_line}:"]
            self._value(tree.root_node)
        return self.flow

    def _declare(self, root: Node) -> None:
        """Note the modules of a program, and its functions by name, with their parameters."""
        found = QueryCursor(_query(self._language)).captures(root)
        for node in found.get("function", ()):
            self._functions.setdefault(_name_of(node), _parameters(node))
        for node in found.get("module", ()):
            if b"require(" in (node.text or b"")[:80] or "import" in node.type:
                self._modules.update(_identifiers(node))

    def _value(self, node: Node | None, depth: int = 0) -> Value:
        """Record what a node assigns and uses; returns its value."""
        if node is None or depth > _MAX_DEPTH:
            return EMPTY
        depth += 1
        match _PART_OF.get(node.type):
            case None:
                return join([self._value(child, depth) for child in node.named_children])
            case "call":
                return self._call(node, depth)
            case "assign" | "open":
                return self._assign(node, depth)
            case "function":
                return self._function(node, depth)
            case "return":
                self.flow.assign(f"{self._scopes[-1]}()", self._children(node, depth))
            case "string":
                text = "".join(_literals(node))
                value = sources.label_path(text) | of_name(f"path:{text[:200]}")
                if _PIPED.search(text):  # a command that is written elsewhere to be run
                    command = text.replace("\\n", "\n")
                    self._add(read_shell(command, self._first + node.start_point[0])[0])
                return value | self._children(node, depth)
            case "name":
                return of_name(self._qualify(_text(node)))
            case "member":
                return self._member(node, depth)
            case "subscript":
                return self._subscript(node, depth)
            case "pair":
                key = _text(_field(node, "key", "name")).strip("\"'`")
                value = self._value(_field(node, "value"), depth)
                if key in _IGNORED:
                    return EMPTY
                return value.after("pick") if key in _HEADERS else value
            case "binary":
                return self._binary(node, depth)
        return EMPTY

    def _children(self, node: Node, depth: int) -> Value:
        return join([self._value(child, depth) for child in node.named_children])

    def _binary(self, node: Node, depth: int) -> Value:
        if _text(_field(node, "operator"))[:1] in ("=", "!", "<", ">"):
            return EMPTY
        value = self._children(node, depth)
        texts = list(_literals(node))
        if texts and self._is_python and _text(_field(node, "operator")) == "/":
            value = value.after("below")
        return value | sources.label_path("/".join(texts).replace("//", "/"))

    def _member(self, node: Node, depth: int) -> Value:
        dotted = _text(node)
        if dotted in _ENVIRONMENT:
            return of_label("environment")
        if dotted in _ARGUMENTS:
            return of_label("argument")
        if dotted.startswith("process.env."):
            return sources.label_variable(dotted.rpartition(".")[2])
        if dotted.startswith(("self.", "this.")):
            return of_name(dotted.replace("this.", "self."))
        return self._value(_field(node, "object"), depth)

    def _subscript(self, node: Node, depth: int) -> Value:
        held, key = _field(node, "value", "object"), _field(node, "subscript", "index")
        value = self._value(held, depth) | self._value(key, depth)
        if _dotted(held) in _ENVIRONMENT:
            return sources.label_variable("".join(_literals(key)))
        is_one = key is not None and key.type in ("string", "integer", "number")
        return value.after("pick") if is_one else value

    def _assign(self, node: Node, depth: int) -> Value:
        left = _field(node, "left", "name", "alias")
        right = _field(node, "right", "value") or (node.named_children or [None])[0]
        if left is None:  # a loop of JavaScript over numbers
            return self._children(node, depth)
        value = self._value(right, depth)
        self._bind(left, value)
        if node.type == "as_pattern" and _dotted(right).rpartition(".")[2] == "open":
            # What is written to the file is what its path stands for later.
            for name in self._targets(_field(right, "arguments")):
                self.flow.assign(name, self._value(left.named_children[0] if left.named_children else left))
        for name in ("body", "alternative"):
            self._value(node.child_by_field_name(name), depth)
        return value

    def _bind(self, target: Node, value: Value) -> None:
        if _PART_OF.get(target.type) == "member":
            dotted = _text(target).replace("this.", "self.")
            self.flow.assign(dotted if dotted.startswith("self.") else "", value)
            return
        for name in _identifiers(target):
            if self._is_python or (target.parent is not None and "declarator" in target.parent.type):
                self._declared.setdefault(self._scopes[-1], set()).add(name)
            self.flow.assign(self._qualify(name), value)

    def _qualify(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in self._declared.get(scope, ()):
                return f"{scope}.{name}"
        return name

    def _function(self, node: Node, depth: int) -> Value:
        body = _field(node, "body")
        name = _name_of(node)
        if name:
            self._declared.setdefault(name, set()).update(_parameters(node))
            self._scopes.append(name)
        else:
            self._declared.setdefault(self._scopes[-1], set()).update(_parameters(node))
        value = self._value(body, depth)
        if not name:
            return value
        self._scopes.pop()
        if body is not None and body.type not in ("statement_block", "block"):
            self.flow.assign(f"{name}()", value)
        return of_name(f"{name}()")

    def _call(self, node: Node, depth: int) -> Value:
        function, listed = _field(node, "function", "constructor"), _field(node, "arguments")
        name = _dotted(function)
        last = name.rpartition(".")[2]
        receiver = _field(function, "object") if function else None
        nodes = listed.named_children if listed else []
        arguments = [self._value(one, depth) for one in nodes]
        line = self._first + node.start_point[0]
        if function is not None and _PART_OF.get(function.type) == "call":
            self._value(function, depth)
        if nodes and self._is_run(name, receiver):
            return self._run(nodes, arguments, line)
        known = self._functions.get(last)
        owner = name.rpartition(".")[0]
        if known is not None and (receiver is None or owner in ("self", "this", *self._own)):
            for place, (one, value) in enumerate(zip(nodes, arguments, strict=True)):
                at = known[place] if place < len(known) else ""
                at = _text(_field(one, "name")) if one.type == "keyword_argument" else at
                self.flow.assign(f"{last}.{at}" if at else "", value)
            return of_name(f"{last}()")
        is_object = receiver is not None and receiver.type == "identifier"
        changed = self._qualify(_text(receiver)) if is_object else ""
        if changed in self._modules:
            changed = ""
        value = self._value(receiver, depth)
        self._call_back(nodes, value, name)
        return self._outer_call(
            line,
            name,
            value,
            join(arguments),
            " ".join(_literals(listed)),
            [*(self._targets(listed) if last in sources.COPYING else ()), changed],
        )

    def _call_back(self, nodes: Sequence[Node], receiver: Value, name: str) -> None:
        """Functions that are given to a call get what its object holds, or what the call fetches."""
        value = receiver
        if ".".join(name.split(".")[-2:]) in sources.NETWORK:
            value |= join([sources.label_download(" ".join(_literals(one))) for one in nodes[:1]])
        for node in nodes:
            if _PART_OF.get(node.type) == "function":
                for parameter in _parameters(node):
                    self.flow.assign(self._qualify(parameter), value)
            elif _text(node) in sources.EXECUTING:
                self.flow.use(self._first + node.start_point[0], "execute", value)

    def _outer_call(
        self, line: int, name: str, receiver: Value, sent: Value, text: str, targets: Sequence[str]
    ) -> Value:
        """What a call of a library uses and assigns; returns its value.

        sent: the arguments. text: the literals in them. targets: the variables and files that take it.
        """
        last = name.rpartition(".")[2]
        is_network = ".".join(name.split(".")[-2:]) in sources.NETWORK or last in sources.NETWORK
        if is_network and not sources.is_local(text):
            self.flow.use(line, "network", sent, text)
        elif last in sources.SENDING_METHODS:
            self.flow.use(line, "method", sent, text, receiver)
        if name in sources.EXECUTING:
            self.flow.use(line, "execute", sent)
        elif last in sources.DELETING:
            self.flow.use(line, "delete", sent)
        elif last == "chmod":
            self.flow.use(line, "mark", sent)
        if last in sources.HARMLESS or name.startswith("console."):
            return EMPTY
        if last in ("home", "homedir"):
            return of_label("home path")
        if last == "parse_args":
            return of_label("argument")
        if last == "getenv" or (last == "get" and "environ" in name):
            return sources.label_variable(text)
        if last in ("get", "pop") and "." in name and text and not is_network and "://" not in text:
            return receiver.after("pick")
        below = last in ("join", "joinpath") and text
        result = receiver | (sent.after("below") if below else sent)
        result |= sources.label_path("/".join(text.split()).replace("//", "/"))
        if last in sources.CONNECTION or name in sources.CONNECTION:
            result |= of_label("connection")
        if last in sources.DECODING or (name == "Buffer.from" and "base64" in text):
            result |= of_label("decoded")
        if is_network:
            result |= sources.label_download(text)
        if last in sources.READING:
            result = result.after("read")
        for target in targets:
            self.flow.assign(target, result)
        return result

    def _is_run(self, name: str, receiver: Node | None) -> bool:
        """Whether a function runs a command."""
        if self._is_python:
            return name in sources.RUNNING
        last = name.rpartition(".")[2]
        return last in sources.RUNNING and (receiver is None or "child_process" in name)

    def _run(self, nodes: Sequence[Node], arguments: Sequence[Value], line: int) -> Value:
        """A command that is run: a text or words, with values in it; returns its output."""
        words = [nodes[0]]
        if nodes[0].type in _LISTS:
            words = nodes[0].named_children
        elif len(nodes) > 1 and nodes[1].type in _LISTS:
            words = [nodes[0], *nodes[1].named_children]
        for word in words:
            if "".join(_literals(word)) in _INTERPRETERS or _text(word) == "sys.executable":
                continue
            if len(words) > 1 or _PART_OF.get(word.type) not in ("string", "binary"):
                self.flow.use(line, "execute", self._value(word))
            break
        parts = [self._as_shell(word) for word in words]
        flow, output = read_shell(" ".join(parts), line, self._qualify)
        self._add(flow)
        return output | join(arguments)

    def _add(self, flow: Flow) -> None:
        self.flow.assignments += flow.assignments
        self.flow.uses += flow.uses

    def _as_shell(self, node: Node, depth: int = 0) -> str:
        """The text of a command, with variables for its values."""
        if node.type in _LITERALS:
            return _text(node)
        if _PART_OF.get(node.type) in ("string", "binary") and depth < _MAX_DEPTH:
            return "".join(self._as_shell(child, depth + 1) for child in node.named_children)
        inner = node.named_children
        if node.type in ("interpolation", "template_substitution") and inner:
            return self._as_shell(inner[0], depth + 1)
        if node.type == "identifier":
            return "${" + _text(node) + "}"
        if _PART_OF.get(node.type) is None or node.type == "string_start":
            return ""
        name = f"value_{node.start_byte}"
        self.flow.assign(name, self._value(node))
        return "${" + name + "}"

    def _targets(self, listed: Node | None) -> Iterator[str]:
        """The names of variables and files in the arguments of a call."""
        yield from (f"path:{text}" for text in _literals(listed))
        yield from (self._qualify(name) for name in _identifiers(listed))


def _field(node: Node | None, *names: str) -> Node | None:
    """The child in the first of these fields that a node has."""
    if node is None:
        return None
    found = (node.child_by_field_name(name) for name in names)
    return next((child for child in found if child is not None), None)


def _name_of(function: Node) -> str:
    """The name of a function, also of one that is assigned; "" without one."""
    parent = function.parent
    named = _field(function, "name")
    if named is None and parent is not None and parent.type in ("variable_declarator", "assignment"):
        named = _field(parent, "name", "left")
    return _text(named)


def _parameters(function: Node) -> list[str]:
    names = _identifiers(_field(function, "parameters", "parameter"))
    return [name for name in names if name not in ("self", "cls")]


def _literals(node: Node | None, depth: int = 0) -> Iterator[str]:
    """The texts within an expression."""
    if node is None or depth > _MAX_DEPTH:
        return
    if node.type in _LITERALS:
        yield _text(node)[:300]
    else:
        for child in node.named_children:
            yield from _literals(child, depth + 1)


def _identifiers(node: Node | None, depth: int = 0) -> Iterator[str]:
    """The variables in a target or in arguments, without attributes of objects."""
    if node is None or depth > _MAX_DEPTH:
        return
    if node.type in ("identifier", "shorthand_property_identifier_pattern"):
        yield _text(node)
    elif _PART_OF.get(node.type) != "member" and node.type != "type":
        for child in node.named_children:
            yield from _identifiers(child, depth + 1)


def _dotted(node: Node | None, depth: int = 0) -> str:
    """The name of a function as written, `a.b.c`; calls within are left out."""
    if node is None or depth > _MAX_DEPTH:
        return ""
    depth += 1
    match _PART_OF.get(node.type):
        case "name":
            return _text(node)
        case "member":
            name = _text(_field(node, "property", "attribute"))
            return f"{_dotted(_field(node, 'object'), depth)}.{name}".lstrip(".")
        case "call":
            if "child_process" in _text(node)[:60]:
                return "child_process"
            return _dotted(_field(node, "function", "constructor"), depth)
    inner = node.named_children if node.type in _WRAPPERS else ()
    return _dotted(inner[0], depth) if inner else ""


def _text(node: Node | None) -> str:
    return (node.text or b"").decode("utf-8", "replace") if node else ""

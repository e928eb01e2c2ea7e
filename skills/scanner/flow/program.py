"""Reads the data flow of Python and JavaScript by one walk over their syntax trees.

The nodes of both languages play the same parts, which a table names. JavaScript is read as the
TypeScript that it is a part of.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import cache

from tree_sitter import Language, Node, Parser

from skills.scanner.code_blocks import Code
from skills.scanner.data_files import word_set
from skills.scanner.flow import sources
from skills.scanner.flow.labels import NONE, Labels, Store, below, join, pick, read
from skills.scanner.flow.shell import read_shell
from skills.scanner.flow.syntax_nodes import (
    LITERALS,
    MAX_DEPTH,
    PART_OF,
    find_identifiers,
    find_literals,
    get_dotted_name,
    get_field,
    get_function_name,
    get_text,
    list_parameters,
)

_PIPED = re.compile(r"\b(?:curl|wget)\s[^|]{4,200}\|\s*(?:sudo\s+)?(?:ba|z)?sh\b")
_IGNORED = word_set(
    "cert verify timeout env cwd proxies pkey key_filename agent signal stdout stderr"
)
_HEADERS = word_set("headers auth cookies")
_INTERPRETERS = word_set("sh bash zsh python python3 node perl ruby osascript -c -e -u")
_LISTS = word_set("list tuple array")
_DECLARED = re.compile(
    r"\b(?:def|function)[ \t]{1,3}(\w{1,80})[ \t]?\(([^()]{0,300})\)"
    r"|\b(\w{1,80}) = (?:async )?\(?([\w\s,]{0,200})\)? =>|\b(\w{1,80}) = lambda ([\w, ]{0,100}):"
)
"""Functions with their parameters; those that this misses are known once they have been read."""
_PARAMETER = re.compile(r"(?:^|,)[\s*]*(\w+)")


@cache
def _grammar(language: str) -> Language:
    if language == "python":
        import tree_sitter_python

        return Language(tree_sitter_python.language())
    import tree_sitter_typescript

    return Language(tree_sitter_typescript.language_tsx())


class ProgramReader:
    """Reads the programs of a skill in a language, which share their functions.

    Names are qualified by the function that declares them, and by the program, so that equal names
    of others stay apart.
    """

    def __init__(self, programs: Sequence[Code], store: Store) -> None:
        """programs: of one language. store: takes what they assign and use."""
        language = programs[0].language
        self._is_python = language == "python"
        self._programs = programs
        parser = Parser(_grammar(language))
        texts = [textwrap.dedent(one.text).encode("utf-8", "replace") for one in programs]
        self._roots = [parser.parse(text).root_node for text in texts]
        self._own = {one.module for one in programs}
        self._readers = {kind: getattr(self, f"_{part}", None) for kind, part in PART_OF.items()}
        self._store = store
        self._first = 1
        self._scopes: list[str] = []
        self._deep: list[tuple[Node, list[str]]] = []
        self._names: dict[int, str] = {}
        self._declared: dict[str, set[str]] = {}
        self._functions: dict[str, list[str]] = {}
        self._modules: set[str] = set()
        for program in programs:
            for found in _DECLARED.finditer(program.text):
                name, listed = (one for one in found.groups() if one is not None)
                parameters = [
                    one for one in _PARAMETER.findall(listed) if one not in ("self", "cls")
                ]
                self._functions.setdefault(name, parameters)

    def read(self) -> None:
        """Record what the programs assign and use.

        What nests too deep is read by itself: its value is known, but not who takes it.
        """
        for root, program in zip(self._roots, self._programs, strict=True):
            self._first, self._scopes = program.first_line, [f"{program.first_line}:"]
            self._value(root)
            while self._deep:
                node, self._scopes = self._deep.pop()
                self._value(node)

    def _value(self, node: Node | None, depth: int = 0) -> Labels:
        """Record what a node assigns and uses; returns the labels of its value."""
        if node is None:
            return NONE
        if depth > MAX_DEPTH:
            self._deep.append((node, [*self._scopes]))
            return NONE
        reader = self._readers.get(node.type, self._children)
        return reader(node, depth + 1) if reader else NONE

    def _children(self, node: Node, depth: int) -> Labels:
        children = node.named_children
        return join(*[self._value(child, depth) for child in children]) if children else NONE

    def _import(self, node: Node, _: int) -> Labels:
        self._modules.update(find_identifiers(node))
        return NONE

    def _return(self, node: Node, depth: int) -> Labels:
        self._store.assign(f"{self._scopes[-1]}()", self._children(node, depth))
        return NONE

    def _name(self, node: Node, _: int) -> Labels:
        return self._store.get(self._qualify(get_text(node)))

    def _string(self, node: Node, depth: int) -> Labels:
        text = "".join(find_literals(node))
        if _PIPED.search(text):  # a command that is written elsewhere to be run
            command = text.replace("\\n", "\n")
            read_shell(self._store, command, self._first + node.start_point[0])
        of_path = sources.label_path(text) | self._store.get(f"path:{text[:200]}")
        return of_path | self._children(node, depth)

    def _pair(self, node: Node, depth: int) -> Labels:
        key = get_text(get_field(node, "key", "name")).strip("\"'`")
        labels = self._value(get_field(node, "value"), depth)
        if key in _IGNORED:
            return NONE
        return pick(labels) if key in _HEADERS else labels

    def _binary(self, node: Node, depth: int) -> Labels:
        operator = get_text(get_field(node, "operator"))
        if operator[:1] in ("=", "!", "<", ">"):
            return NONE
        labels, texts = self._children(node, depth), list(find_literals(node))
        if texts and operator == "/":
            labels = below(labels)
        return labels | sources.label_path("/".join(texts).replace("//", "/"))

    def _member(self, node: Node, depth: int) -> Labels:
        dotted = get_text(node)
        if dotted in sources.VARIABLES:
            return sources.VARIABLES[dotted]
        if dotted.startswith("process.env."):
            return NONE
        if dotted.startswith(("self.", "this.")):
            return self._store.get(dotted.replace("this.", "self."))
        return self._value(get_field(node, "object"), depth)

    def _subscript(self, node: Node, depth: int) -> Labels:
        held, key = get_field(node, "value", "object"), get_field(node, "subscript", "index")
        if sources.VARIABLES.get(get_dotted_name(held)) == sources.ENVIRONMENT:
            return NONE
        labels = self._value(held, depth) | self._value(key, depth)
        is_one = key is not None and key.type in ("string", "integer", "number")
        return pick(labels) if is_one else labels

    def _assign(self, node: Node, depth: int) -> Labels:
        left = get_field(node, "left", "name", "alias")
        right = get_field(node, "right", "value") or next(iter(node.named_children), None)
        if left is None:  # a loop of JavaScript over numbers
            return self._children(node, depth)
        if "require" in get_text(right)[:10]:
            return self._import(left, depth)
        labels = self._value(right, depth)
        if left.type == "object_pattern":
            labels = pick(labels)
        if PART_OF.get(left.type) == "member":
            dotted = get_text(left).replace("this.", "self.")
            self._store.assign(dotted if dotted.startswith("self.") else "", labels)
            return labels
        for name in find_identifiers(left):
            if self._is_python or "declarator" in node.type:
                self._declared.setdefault(self._scopes[-1], set()).add(name)
            self._store.assign(self._qualify(name), labels)
            if get_dotted_name(right).rpartition(".")[2] == "open":
                # What is written to the file is what its path stands for later.
                for target in self._targets(get_field(right, "arguments")):
                    self._store.assign(target, self._store.get(self._qualify(name)))
        for field in ("body", "alternative"):
            self._value(node.child_by_field_name(field), depth)
        return labels

    def _qualify(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in self._declared.get(scope, ()):
                return f"{scope}.{name}"
        return name

    def _function(self, node: Node, depth: int) -> Labels:
        """A function without a name shares the scope that it is in, and its value is its result."""
        name, body = get_function_name(node), get_field(node, "body")
        self._scopes.append(name or self._scopes[-1])
        parameters = list_parameters(node)
        self._declared.setdefault(self._scopes[-1], set()).update(parameters)
        self._functions.setdefault(name, parameters)
        labels = self._value(body, depth)
        self._scopes.pop()
        if name and body is not None and "block" not in body.type:
            self._store.assign(f"{name}()", labels)
        return self._store.get(f"{name}()") if name else labels

    def _call(self, node: Node, depth: int) -> Labels:
        function, listed = get_field(node, "function", "constructor"), get_field(node, "arguments")
        name = get_dotted_name(function, self._names)
        owner, _, last = name.rpartition(".")
        receiver = get_field(function, "object") if function else None
        nodes = listed.named_children if listed else []
        arguments = [self._value(one, depth) for one in nodes]
        line = self._first + node.start_point[0]
        if function is not None and PART_OF.get(function.type) == "call":
            self._value(function, depth)
        runs = name if self._is_python else last * (receiver is None or "child_process" in name)
        if nodes and runs in sources.RUNNING:
            return self._run(nodes, arguments, line)
        parameters = self._functions.get(last)
        if parameters is not None and (receiver is None or owner in ("self", "this", *self._own)):
            for place, (one, labels) in enumerate(zip(nodes, arguments, strict=True)):
                at = parameters[place] if place < len(parameters) else ""
                at = get_text(get_field(one, "name")) if one.type == "keyword_argument" else at
                self._store.assign(f"{last}.{at}" if at else "", labels)
            return self._store.get(f"{last}()")
        held, text = self._value(receiver, depth), " ".join(find_literals(listed))
        self._call_back(nodes, held | sources.label_result(name, text), line)
        result = self._library(line, name, held, join(*arguments), text)
        changed = self._qualify(owner)
        self._store.assign("" if changed in self._modules else changed, result)
        if last in sources.COPYING:
            for target in self._targets(listed):
                self._store.assign(target, result)
        return result

    def _call_back(self, nodes: Sequence[Node], held: Labels, line: int) -> None:
        """Functions that a call is given get what its object holds, or what the call fetches."""
        for node in nodes:
            if PART_OF.get(node.type) == "function":
                for parameter in list_parameters(node):
                    self._store.assign(self._qualify(parameter), held)
            elif get_text(node) in sources.EXECUTING:
                self._store.use(line, "execute", held)

    def _library(self, line: int, name: str, held: Labels, sent: Labels, text: str) -> Labels:
        """Record what a function of a library uses; returns the labels of its result.

        held: labels of its object. sent: of its arguments. text: the literals in these.
        """
        last = name.rpartition(".")[2]
        network = sources.is_network(name)
        if network and not sources.is_local(text):
            self._store.use(line, "network", sent)
        elif last in sources.SENDING_METHODS:
            self._store.use(line, "network", sent, held)
        if name in sources.EXECUTING:
            self._store.use(line, "execute", sent)
        elif last in sources.DELETING:
            self._store.use(line, "delete", sent)
        elif last == "chmod":
            self._store.use(line, "mark", sent)
        if last in sources.HARMLESS or name.startswith("console."):
            return NONE
        if last == "getenv" or (last == "get" and "environ" in name):
            return NONE
        if last in ("get", "pop") and text and not network and "://" not in text:
            return pick(held)
        if last in ("join", "joinpath") and text:
            sent = below(sent)
        result = held | sent | sources.label_result(name, text)
        result |= sources.label_path("/".join(text.split()).replace("//", "/"))
        return read(result) if last in sources.READING else result

    def _run(self, nodes: Sequence[Node], arguments: Sequence[Labels], line: int) -> Labels:
        """A command that is run: a text or words, with values in it; returns its output."""
        words = [nodes[0]]
        if nodes[0].type in _LISTS:
            words = nodes[0].named_children
        elif len(nodes) > 1 and nodes[1].type in _LISTS:
            words = [nodes[0], *nodes[1].named_children]
        program = next((word for word in words if not _is_interpreter(word)), None)
        if program and (len(words) > 1 or PART_OF.get(program.type) not in ("string", "binary")):
            self._store.use(line, "execute", self._value(program))
        command = " ".join(self._as_shell(word) for word in words)
        return join(read_shell(self._store, command, line, self._qualify), *arguments)

    def _as_shell(self, node: Node, depth: int = 0) -> str:
        """The text of a command, with variables for its values."""
        part, inner = PART_OF.get(node.type), node.named_children
        if node.type in LITERALS:
            return get_text(node)
        if part in ("string", "binary") and depth < MAX_DEPTH:
            return "".join(self._as_shell(child, depth + 1) for child in inner)
        if node.type in ("interpolation", "template_substitution") and inner:
            return self._as_shell(inner[0], depth + 1)
        if part == "name":
            return "${" + get_text(node) + "}"
        if part is None:
            return ""
        name = f"value_{node.start_byte}"
        self._store.assign(name, self._value(node))
        return "${" + name + "}"

    def _targets(self, listed: Node | None) -> Iterator[str]:
        """The names of variables and files in the arguments of a call."""
        yield from (f"path:{text}" for text in find_literals(listed))
        yield from (self._qualify(name) for name in find_identifiers(listed))


def _is_interpreter(word: Node) -> bool:
    return "".join(find_literals(word)) in _INTERPRETERS or get_text(word) == "sys.executable"

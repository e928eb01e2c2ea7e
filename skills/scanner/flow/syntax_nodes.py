"""Nodes of syntax trees: the parts that they play, in either language, and their names."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from skills.scanner.data_files import word_set

MAX_DEPTH = 80
"""Deeper nodes are not read: walks are recursive."""

_PARTS = {
    "call": "call call_expression new_expression",
    "assign": "assignment augmented_assignment named_expression variable_declarator "
    "for_in_statement "
    "assignment_expression augmented_assignment_expression for_statement for_in_clause as_pattern",
    "function": "function_definition lambda function_declaration function_expression "
    "arrow_function "
    "method_definition generator_function_declaration",
    "return": "return_statement yield",
    "string": "string template_string concatenated_string",
    "name": "identifier shorthand_property_identifier",
    "member": "attribute member_expression",
    "subscript": "subscript subscript_expression",
    "pair": "pair keyword_argument",
    "binary": "binary_operator binary_expression",
    "import": "import_statement import_from_statement",
    "nothing": "comparison_operator comment integer none",
}
PART_OF = {kind: part for part, kinds in _PARTS.items() for kind in kinds.split()}
"""The part that each kind of node plays."""

LITERALS = word_set("string_content string_fragment")
WRAPPERS = word_set("await await_expression parenthesized_expression")


def get_field(node: Node | None, *names: str) -> Node | None:
    """The child in the first of these fields that a node has."""
    if node is None:
        return None
    found = (node.child_by_field_name(name) for name in names)
    return next((child for child in found if child is not None), None)


def get_function_name(function: Node) -> str:
    """The name of a function, also of one that is assigned; "" without one."""
    parent = function.parent
    named = get_field(function, "name")
    if (
        named is None
        and parent is not None
        and parent.type in ("variable_declarator", "assignment")
    ):
        named = get_field(parent, "name", "left")
    return get_text(named)


def list_parameters(function: Node) -> list[str]:
    """The names of a function's parameters, without the object of a method."""
    names = find_identifiers(get_field(function, "parameters", "parameter"))
    return [name for name in names if name not in ("self", "cls")]


def find_literals(node: Node | None, depth: int = 0) -> Iterator[str]:
    """The texts within an expression."""
    if node is None or depth > MAX_DEPTH:
        return
    if node.type in LITERALS:
        yield get_text(node)[:300]
    else:
        for child in node.named_children:
            yield from find_literals(child, depth + 1)


def find_identifiers(node: Node | None, depth: int = 0) -> Iterator[str]:
    """The variables in a target or in arguments, without attributes of objects."""
    if node is None or depth > MAX_DEPTH:
        return
    if node.type in ("identifier", "shorthand_property_identifier_pattern"):
        yield get_text(node)
    elif PART_OF.get(node.type) != "member" and node.type != "type":
        for child in node.named_children:
            yield from find_identifiers(child, depth + 1)


def get_dotted_name(node: Node | None, known: dict[int, str] | None = None, depth: int = 0) -> str:
    """The name of a function as written, `a.b.c`; calls within are left out.

    known: names by node, of which those that are found are added, since a chain of calls asks for
    the names of all its parts.
    """
    if node is None or depth > MAX_DEPTH:
        return ""
    if known is not None and node.id in known:
        return known[node.id]
    depth += 1
    match PART_OF.get(node.type):
        case "name":
            return get_text(node)
        case "member":
            name = get_text(get_field(node, "property", "attribute"))
            name = f"{get_dotted_name(get_field(node, 'object'), known, depth)}.{name}".lstrip(".")
        case "call":
            name = "child_process"
            if name not in get_text(node)[:60]:
                name = get_dotted_name(get_field(node, "function", "constructor"), known, depth)
        case _:
            inner = node.named_children if node.type in WRAPPERS else ()
            name = get_dotted_name(inner[0], known, depth) if inner else ""
    if known is not None:
        known[node.id] = name
    return name


def get_text(node: Node | None) -> str:
    """The text of a node, "" without one."""
    return (node.text or b"").decode("utf-8", "replace") if node else ""

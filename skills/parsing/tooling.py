"""Finds the tools, commands, packages and formats that a skill mentions, and its scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from skills.parsing.front_matter_fields import FrontmatterFields, unique_texts
from skills.record import Passage, PassageKind, SiblingFile
from skills.scanner.data_files import word_set

_FIELDS = ("tool-ecosystem", "framework", "frameworks", "python-tools", "stack", "packages", "bins")
_SHELL = frozenset({"bash", "sh", "shell", "zsh", "console", "terminal", "powershell", "ps1"})
_NO_TOOL = frozenset(
    {"text", "txt", "plaintext", "markdown", "md", "mdx", "output", "plain", "console", "terminal"}
)
_SCRIPT_ENDS = (".py", ".sh", ".bash", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".ps1", ".r")
_COMMAND = re.compile(r"[ \t]*(?:[$>%] )?(?:sudo )?([a-z][a-z0-9_.+-]{1,30})(?=\s|$)")
_INSTALL = re.compile(
    r"\b(?:pip3?|uv pip|npm|pnpm|yarn|brew|cargo|gem|apt(?:-get)?|go|conda)"
    r" (?:install|add|get|i)((?: [^\s|&;#]{1,60}){1,12})"
)
_PACKAGE = re.compile(r"@?[A-Za-z][\w.@/-]{1,60}")
_FORMAT = re.compile(r"(?<![\w/.])\.([a-z][a-z0-9]{1,4})\b(?!\.)")
_NO_COMMANDS = word_set(
    "if then else elif fi for do done while until case esac function return in echo cd export set "
    "source exit true false local read printf test shift eval exec unset trap wait mkdir cat rm ls "
    "cp mv touch chmod sleep head tail import from with def class except break continue"
)
"""Words of the shell, commands of every system, and words of programs in a shell's quotes."""
_HERE_DOCUMENT = re.compile(r"(?<!<)<<-?[ \t]{0,3}[\"'\\]?([A-Za-z_]\w{0,60})")
_SHELL_LINES = 400
_MAX_COMMAND_CHARACTERS = 2_000


def find_tools(
    fields: FrontmatterFields, lines: Sequence[str], passages: Sequence[Passage], summary: str
) -> tuple[str, ...]:
    """Return names of tools: from fields, languages and commands of code, and file formats."""
    found = [item.lower() for item in fields.get_scalars(*_FIELDS) if not item.isdigit()]
    found += [match.lower() for match in _FORMAT.findall(summary)]
    left, open_end = _SHELL_LINES, ""
    for passage in passages:
        if passage.kind is not PassageKind.CODE:
            continue
        if passage.language and passage.language not in _NO_TOOL:
            found.append(passage.language)
        if passage.language in _SHELL and left > 0:
            block = lines[passage.first_line - 1 : passage.last_line][:left]
            left -= len(block)
            # A long block is several passages; only the first of them has the opening fence.
            is_next_part = not block[0].lstrip().startswith(("```", "~~~"))
            names, open_end = _commands(block, open_end if is_next_part else "")
            found += names
    return unique_texts(found)


def _commands(lines: Sequence[str], end: str) -> tuple[list[str], str]:
    """Return the first words of commands, and the packages that commands install.

    end: the last line of the here-document in which the lines begin, "" without one. The same is
    returned for the end of the lines. Lines of here-documents are no commands.
    """
    found: list[str] = []
    continued = False
    for line in lines:
        if end:
            end = "" if line.strip() == end else end
            continue
        short = line[:_MAX_COMMAND_CHARACTERS]
        if not continued and (match := _COMMAND.match(short)):
            if match[1] not in _NO_COMMANDS and not short[match.end() :].startswith(" ="):
                found.append(match[1])
            for names in _INSTALL.findall(short):
                found += [name.lower() for name in names.split() if _PACKAGE.fullmatch(name)]
        continued = line.endswith("\\")
        if opened := _HERE_DOCUMENT.search(short):
            end = opened[1]
    return found, end


def find_entrypoints(files: Sequence[SiblingFile]) -> tuple[str, ...]:
    """Return the paths of the folder's scripts, sorted."""
    return tuple(sorted(file.path for file in files if file.path.lower().endswith(_SCRIPT_ENDS)))

"""Installation of the hook in the settings files of coding agents.

Claude Code reads `hooks` of `settings.json`, Codex the same table of `hooks.json`; both have
groups of commands by event (code.claude.com/docs/en/hooks, developers.openai.com/codex/hooks).
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from config.errors import UsageError
from config.settings import Settings
from workers.agent_hook.json_text import append_item, parse_json, remove_item
from workers.agent_hook.prompt_hook import SOCKET_NAME
from workers.library.user_files import read_bytes, write_atomically

Scope = Literal["user", "project"]

SCOPES: tuple[Scope, ...] = ("user", "project")

EVENTS: dict[str, str | None] = {"UserPromptSubmit": None, "SessionStart": "compact"}
"""Events that the hook is installed for, each with its matcher, None for no matcher. Of the starts
of a session, the hook handles only those after a compaction."""

_LAUNCHER = Path(__file__).with_name("launcher.py")
_TIMEOUT_SECONDS = 5
"""Time limit after which the agent ends the hook; the hook's own limit is shorter."""

_NEW_FILE = "{}\n"


@dataclass(frozen=True, slots=True)
class HookFile:
    """The settings file of an agent in one scope.

    content: its text, None if it is missing.
    """

    agent: str
    scope: Scope
    path: Path
    content: str | None

    @property
    def installed(self) -> dict[str, str]:
        """The command of this hook by event. Raises UsageError if the file cannot be used."""
        return {event: command for event, _, _, command in self._list_own(self._text)}

    @property
    def _text(self) -> str:
        return _NEW_FILE if self.content is None or not self.content.strip() else self.content

    def with_hook(self, command: str) -> str:
        """Return the text with the hook for each event; an earlier hook of skillbus is replaced."""
        wanted = dict.fromkeys(EVENTS, command)
        if self.installed == wanted and len(list(self._list_own(self._text))) == len(wanted):
            return self._text
        text = self._text if not self.installed else self.without_hook()
        for event, matcher in EVENTS.items():
            group: dict[str, Any] = {} if matcher is None else {"matcher": matcher}
            handler = {"type": "command", "command": command, "timeout": _TIMEOUT_SECONDS}
            group["hooks"] = [handler]
            hooks = self._get_hooks(text)
            if hooks is None:
                text = append_item(text, [], {event: [group]}, "hooks")
            elif event not in hooks:
                text = append_item(text, ["hooks"], [group], event)
            else:
                text = append_item(text, ["hooks", event], group)
        return text

    def without_hook(self) -> str:
        """Return the text without the hook, and without containers that this leaves empty."""
        text = self._text
        while own := next(self._list_own(text), None):
            event, group, place, _ = own
            path: list[str | int] = ["hooks", event, group, "hooks", place]
            text = remove_item(text, path)
            groups = parse_json(text).value["hooks"][event]
            if groups[group]["hooks"]:
                continue
            text = remove_item(text, ["hooks", event, group])
            if len(groups) == 1:
                text = remove_item(text, ["hooks", event])
                if not parse_json(text).value["hooks"]:
                    text = remove_item(text, ["hooks"])
        return text

    def write(self, text: str) -> None:
        """Replace the file; raises UsageError if it has changed since it was read."""
        path = self.path.resolve()  # a link stays a link
        if _read(self.path) != self.content:
            raise UsageError(f"{self.path} has changed meanwhile; try again")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        except OSError as error:
            raise UsageError(f"{path.parent}: {error.strerror}") from error
        write_atomically(path, text.encode(), mode)

    def _list_own(self, text: str) -> Iterator[tuple[str, int, int, str]]:
        """Yield event, group, place and command of each handler that is this hook."""
        own = _own_command(self.agent)
        for event, groups in (self._get_hooks(text) or {}).items():
            for number, group in enumerate(groups):
                for place, handler in enumerate(group.get("hooks", ())):
                    command = handler.get("command")
                    if isinstance(command, str) and own.search(command):
                        yield event, number, place, command

    def _get_hooks(self, text: str) -> dict[str, list[dict[str, Any]]] | None:
        """Return the table of hooks, or None; raises UsageError if it is invalid."""
        try:
            root = parse_json(text).value
        except UsageError as error:
            raise UsageError(f"{self.path}: {error}; correct it first") from None
        hooks = root.get("hooks") if isinstance(root, dict) else root
        if isinstance(root, dict) and "hooks" not in root:
            return None
        if not isinstance(hooks, dict) or not all(map(_are_groups, hooks.values())):
            raise UsageError(
                f"{self.path}: `hooks` is not of the form that {self.agent} documents, "
                '{"EVENT": [{"hooks": [{"type": "command", "command": "…"}]}]}; correct it first'
            )
        return hooks


def _are_groups(groups: object) -> bool:
    return isinstance(groups, list) and all(
        isinstance(group, dict)
        and isinstance(handlers := group.get("hooks", []), list)
        and all(isinstance(handler, dict) for handler in handlers)
        for group in groups
    )


def _own_command(agent: str) -> re.Pattern[str]:
    name = re.escape(agent)
    return re.compile(rf"agent_hook/launcher\.py'? {name}\b|\bskillbus\b[^;&|]* hook {name}\b")


def open_hook_file(agent: str, scope: Scope, folder: Path) -> HookFile:
    """Read the settings file of an agent: the user's, or that of the project in a folder.

    Raises UsageError if it cannot be read.
    """
    if agent == "claude-code":
        name, home, variable = "settings.json", Path("~/.claude"), "CLAUDE_CONFIG_DIR"
    else:
        name, home, variable = "hooks.json", Path("~/.codex"), "CODEX_HOME"
    base = Path(os.environ.get(variable) or home).expanduser()
    path = (base if scope == "user" else folder / home.name) / name
    return HookFile(agent, scope, path, _read(path))


def _read(path: Path) -> str | None:
    if not path.exists():
        return None
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text; correct it first") from None


def build_command(agent: str, scope: Scope, settings: Settings) -> str:
    """Return the command line that the agent runs.

    In the user's settings it names this installation and the settings in force. As each prompt
    waits for it, the shell first looks for the socket of a server, and starts no interpreter
    without one. The settings of a project are shared, so there it is the `skillbus` on the path
    of each user. A failure, also of the start, must not be an error: exit code 2 blocks the prompt.
    """
    if scope == "project":
        return f"skillbus hook {agent} || exit 0"
    home = settings.home.absolute()
    words = [sys.executable, "-I", "-S", str(_LAUNCHER), agent]
    words += ["--home", str(home), "--without-settings"]
    for name, value in settings.hook.model_dump().items():
        if value != type(settings.hook).model_fields[name].default:
            words += [f"--{name.replace('_', '-')}", str(value)]
    if settings.hook.url:
        return f"{shlex.join(words)} || exit 0"
    socket = shlex.quote(str(home / SOCKET_NAME))
    # An agent may treat unread standard input as an error.
    return f"[ -S {socket} ] && {shlex.join(words)} || cat > /dev/null; exit 0"

"""Files that `up` writes: ports and processes for `down` and `status`, and the settings."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from deploy.stack.errors import StackError
from deploy.stack.language_model import LanguageModel
from deploy.stack.processes import Process
from deploy.stack.server import Server, write_private

STATE = "state.json"
SETTINGS = "servers.env"


def save(folder: Path, servers: Mapping[str, Server]) -> None:
    """Record the ports and processes of servers."""
    entries = {
        name: {
            "ports": dict(server.place.ports),
            "process": _written(server.process),
            "helpers": {helper: _written(process) for helper, process in server.helpers.items()},
        }
        for name, server in servers.items()
    }
    draft = folder / f"{STATE}.draft"
    write_private(draft, json.dumps(entries, indent=2) + "\n")
    draft.replace(folder / STATE)


def load(folder: Path) -> dict[str, tuple[dict[str, int], Process | None, dict[str, Process]]]:
    """Return server name -> ports, process and helpers; empty if no server was started.

    Raises StackError if the file is invalid.
    """
    path = folder / STATE
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: (
                {use: int(port) for use, port in entry["ports"].items()},
                _read(entry["process"]),
                {
                    helper: process
                    for helper, written in entry["helpers"].items()
                    if (process := _read(written)) is not None
                },
            )
            for name, entry in entries.items()
        }
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StackError(
            f"{path} cannot be read ({error!r}): end the servers by hand and remove {folder}"
        ) from None


def write_settings(folder: Path, servers: Mapping[str, Server], broker: str) -> Path:
    """Write the settings of these servers as a shell script; return its path."""
    named = {"broker": servers[broker]}
    named |= {name: servers[name] for name in ("redis", "elasticsearch", "neo4j")}
    lines = []
    for setting, server in named.items():
        variable = f"SKILLBUS_SERVERS__{setting.upper()}"
        joined = [other.url for other in servers.values() if other.joins == server.name]
        lines.append(f"export {variable}={shlex.quote(','.join([server.url, *joined]))}")
        if server.password_file is not None:
            path = shlex.quote(str(server.password_file))
            lines.append(f"export {variable}_PASSWORD_FILE={path}")
    model = servers.get("language_model")
    if isinstance(model, LanguageModel):
        for setting, value in model.settings().items():
            variable = f"SKILLBUS_LANGUAGE_MODEL__{setting.upper()}"
            lines.append(f"export {variable}={shlex.quote(value)}")
    file = folder / SETTINGS
    write_private(file, "\n".join(lines) + "\n")
    return file


def forget(folder: Path) -> None:
    """Delete the files of `save` and `write_settings`."""
    (folder / STATE).unlink(missing_ok=True)
    (folder / SETTINGS).unlink(missing_ok=True)


def _written(process: Process | None) -> dict[str, int] | None:
    return None if process is None else {"pid": process.pid, "started": process.started}


def _read(written: dict[str, int] | None) -> Process | None:
    return None if written is None else Process(int(written["pid"]), int(written["started"]))

"""What calls of functions do to values, in Python and JavaScript alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skills.scanner.flow import sources
from skills.scanner.flow.values import EMPTY, Flow, Value, join, of_label

_NETWORK_ALONE = frozenset(name for name in sources.NETWORK if "." not in name)


@dataclass(frozen=True, slots=True)
class Call:
    """A call in a line. name: as written, `a.b.c`. receiver: the value before the last dot, and
    `variable` its name if it is one, else "". sent: the arguments but for `headers`. text: the
    literals in the arguments, joined by spaces. targets: the names of variables and files in them.
    """

    line: int
    name: str
    receiver: Value
    variable: str
    sent: Value
    headers: Value
    text: str
    targets: Sequence[str]

    @property
    def last(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]

    @property
    def is_network(self) -> bool:
        """Whether the function sends or fetches something by itself."""
        last_two = ".".join(self.name.split(".")[-2:])
        return last_two in sources.NETWORK or self.last in _NETWORK_ALONE


def record_call(flow: Flow, call: Call) -> Value:
    """Record what a call uses and assigns; returns its value."""
    _record_uses(flow, call)
    last = call.last
    if last in sources.HARMLESS or call.name.startswith("console."):
        return EMPTY
    if last in ("home", "homedir"):
        return of_label("home path")
    if last in ("get", "pop") and "." in call.name and call.text and "://" not in call.text:
        return call.receiver.after("pick")
    below = last in ("join", "joinpath") and call.text
    sent = call.sent.after("below") if below else call.sent
    result = join((call.receiver, sent, sources.label_path("/".join(call.text.split()))))
    if last in sources.CONNECTION or call.name in sources.CONNECTION:
        result |= of_label("connection")
    if last in sources.DECODING or (call.name == "Buffer.from" and "base64" in call.text):
        result |= of_label("decoded")
    if call.is_network:
        result |= sources.label_download(call.text)
    if last in sources.READING:
        result = result.after("read")
    targets = call.targets if last in sources.COPYING else [call.variable]
    for name in filter(None, targets):
        flow.assign(name, result)
    return result


def _record_uses(flow: Flow, call: Call) -> None:
    if call.is_network:
        if not sources.is_local(call.text):
            flow.use(call.line, "network", call.sent)
            flow.use(call.line, "header", call.headers)
    elif call.last in sources.SENDING_METHODS:
        flow.use(call.line, "method", call.sent, call.receiver)
    if call.name in sources.EXECUTING:
        flow.use(call.line, "execute", call.sent)
    elif call.last in sources.DELETING:
        flow.use(call.line, "delete", call.sent)

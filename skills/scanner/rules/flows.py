"""Rules for what flows where in code: secrets to the network, downloads to where they are run."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

from skills.scanner.code_blocks import Code
from skills.scanner.flow.javascript_flow import read_javascript
from skills.scanner.flow.python_flow import read_python
from skills.scanner.flow.shell_flow import read_shell
from skills.scanner.flow.values import Flow, Reached

SECRET_SENT = "secret-sent"
ENVIRONMENT_SENT = "environment-sent"
DOWNLOAD_RUN = "download-run"
KNOWN_DOWNLOAD_RUN = "known-download-run"
BARE_DOWNLOAD_RUN = "bare-download-run"
DECODED_RUN = "decoded-run"
HOME_DELETED = "home-deleted"
FILE_SENT = "file-sent"

_SOURCE = re.compile(
    r"\.ssh|\.aws|\.env\b|environ|printenv|\benv\b|process\.env|id_rsa|\.gnupg|\.kube|\.npmrc|\.netrc|keychain"
    r"|Login Data|[Cc]ookies|wallet|key[34]\.db|credential|\.pypirc|argv|\$1|\$@|\$\{1|shadow|secret-tool|homedir"
    r"|Path\.home|keystore|\.config|\.docker|export-secret|Exodus|Electrum|rmtree|rmSync"
)
_SINK = re.compile(
    r"curl|wget|requests|httpx|urllib|urlopen|fetch\(|axios|http|socket|smtplib|ftplib|\bnc\b|/dev/tcp|scp|rsync"
    r"|rmtree|rmSync|paramiko|dig |nslookup"
)
_FETCH = re.compile(
    r"curl|wget|urlopen|urlretrieve|requests\.|httpx|fetch\(|axios|b64|base64|atob|unhexlify|fromhex|xxd|openssl"
)
_RUN = re.compile(
    r"\bexec|\beval|system\(|popen|subprocess|spawn|Function\(|\bsh\b|bash|zsh|python|node|perl|\./|chmod|source|/tmp/"
)


def find_flows(codes: Iterable[Code]) -> Iterator[tuple[int, str]]:
    """(line, rule) of what reaches where it does harm, in the code of a file.

    Shell commands share their variables and files from block to block, programs do not.
    """
    shell = Flow()
    for code in codes:
        if not _may_matter(code.text):
            continue
        if code.language == "shell":
            inner = read_shell(code.text, code.first_line)
            shell.assignments += inner.assignments
            shell.uses += inner.uses
        elif code.language == "python":
            flow = read_python(textwrap.dedent(code.text), code.first_line)
            yield from _find_in(flow.evaluate() if flow else ())
        else:
            yield from _find_in(read_javascript(code.text, code.first_line).evaluate())
    yield from _find_in(shell.evaluate())


def _may_matter(text: str) -> bool:
    sends = _SOURCE.search(text) and _SINK.search(text)
    return bool(sends or (_FETCH.search(text) and _RUN.search(text)))


def _find_in(reached: Iterable[Reached]) -> Iterator[tuple[int, str]]:
    found = {(one.line, rule) for one in reached for rule in _judge(one)}
    yield from sorted(found, )


def _judge(one: Reached) -> Iterator[str]:
    match one.sink:
        case "network" if one.labels & {"secret", "settings"}:
            yield SECRET_SENT
        case "header" if "secret" in one.labels:
            yield SECRET_SENT
        case "network" if "environment" in one.labels:
            yield ENVIRONMENT_SENT
        case "network" if "file" in one.labels:
            yield FILE_SENT
        case "delete" if "home path" in one.labels:
            yield HOME_DELETED
        case "mark" if "decoded" in one.labels:
            yield DECODED_RUN
        case "execute":
            if "decoded" in one.labels:
                yield DECODED_RUN
            elif "bare download" in one.labels:
                yield BARE_DOWNLOAD_RUN
            elif "download" in one.labels:
                yield DOWNLOAD_RUN
            elif "known download" in one.labels:
                yield KNOWN_DOWNLOAD_RUN

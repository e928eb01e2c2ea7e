"""Rules for what flows where in code: secrets to the network, downloads to where they are run."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

from skills.scanner.code_blocks import Code
from skills.scanner.data_files import word_set
from skills.scanner.flow.javascript_flow import read_javascript
from skills.scanner.flow.python_flow import read_python
from skills.scanner.flow.shell_flow import read_shell
from skills.scanner.flow.values import Flow, Reached

SECRET_SENT = "secret-sent"  # noqa: S105 - the id of a rule
ENVIRONMENT_SENT = "environment-sent"
DOWNLOAD_RUN = "download-run"
KNOWN_DOWNLOAD_RUN = "known-download-run"
BARE_DOWNLOAD_RUN = "bare-download-run"
DECODED_RUN = "decoded-run"
HOME_DELETED = "home-deleted"
FILE_SENT = "file-sent"

# What code must hold for a flow to be in it; to search for words takes less than to parse.
_SECRETS = word_set(
    ".ssh id_rsa id_ed25519 .aws .gnupg .kube .azure .npmrc .pypirc .netrc eychain "
    "Login+Data ookies wallet "
    "key4.db key3.db logins.json credential find- /shadow secret-tool .config/gh gcloud .docker/ ex"
    "port-secret Exodus Electrum Ethereum Bitcoin solana printenv /proc/"
)
_SETTINGS = re.compile(
    r"\.env\b|\benviron\b(?!\[|\.get\b|\.setdefault)|process\.env\b(?![.\[])|(?:^|[\n"
    r"|;&(`] ?)(?:env|set) ?[|>)\n]"
)
_GIVEN = word_set("argv argparse $1 $@ $* ${1")
_UPLOADS = word_set("files= -F+ -T+ --data --upload FormData body: data=")
_SHELL_SENDS = word_set("curl wget /dev/tcp scp+ rsync dig+ nslookup nc+ ncat+ telnet")
_SENDS = {
    "python": word_set(
        "requests. httpx urlopen aiohttp socket smtplib ftplib http.client paramiko curl"
    ),
    "javascript": word_set(
        "fetch( axios http.request https.request sendBeacon got( got. WebSocket curl"
    ),
    "shell": _SHELL_SENDS,
}
_FETCHES = word_set(
    "urlopen urlretrieve requests.get httpx.get fetch( axios curl wget b64decode base64 atob "
    "unhexlify fromhex "
    "xxd openssl"
)
_RUNS = {
    "python": word_set("exec( eval( os.system( shell=True os.popen( chmod sys.executable Popen("),
    "javascript": word_set("exec( eval( execSync( spawn( spawnSync( Function( runIn"),
    "shell": word_set(
        "|+bash |+sh |sh "
        "|bash <( bash+ sh+ eval source+ chmod ./ /tmp/ python3 node+ perl+ $( sudo+"
    ),
}
_DELETES = word_set("rmtree rmSync rimraf")
_HOME = word_set("home expanduser '~")


def _holds(text: str, words: Iterable[str]) -> bool:
    """Whether a text holds any of the words, in which a + stands for a space."""
    return any(word.replace("+", " ") in text for word in words)


def find_flows(codes: Iterable[Code]) -> Iterator[tuple[int, str]]:
    """(line, rule) of what reaches where it does harm, in the code of a file.

    Shell commands share their variables and files from block to block, programs do not.
    """
    listed = list(codes)
    shell = [code for code in listed if code.language == "shell"]
    if shell and _may_matter(Code("shell", "\n".join(code.text for code in shell), 1)):
        flow = Flow()
        for code in shell:
            flow.add(read_shell(code.text, code.first_line))
        yield from _find_in(flow.evaluate())
    for code in listed:
        if code.language == "python" and _may_matter(code):
            read = read_python(textwrap.dedent(code.text), code.first_line)
            yield from _find_in(read.evaluate() if read else ())
        elif code.language == "javascript" and _may_matter(code):
            yield from _find_in(read_javascript(code.text, code.first_line).evaluate())


def _may_matter(code: Code) -> bool:
    text = code.text
    if _holds(text, _SENDS[code.language]):
        if _holds(text, _SECRETS) or _SETTINGS.search(text):
            return True
        if _holds(text, _GIVEN) and _holds(text, _UPLOADS):
            return True
    if _holds(text, _DELETES) and _holds(text, _HOME):
        return True
    return _holds(text, _FETCHES) and _holds(text, _RUNS[code.language])


def _find_in(reached: Iterable[Reached]) -> Iterator[tuple[int, str]]:
    found = {(one.line, rule) for one in reached for rule in _judge(one)}
    yield from sorted(
        found,
    )


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

"""Harmful data flows in code, such as secrets to the network and downloads to an interpreter."""

from __future__ import annotations

from collections.abc import Sequence, Set

from skills.scanner.code_blocks import LANGUAGES, Code, Language
from skills.scanner.flow import meanings
from skills.scanner.flow.follow import Follower
from skills.scanner.flow.statements import Statements
from skills.scanner.words import Concept, Places

# Code without these is not read, since a search for words takes a fraction of the time.
SECRETS = Concept(
    "printenv secret-tool kubectl git_credential find-generic-password find-internet-password "
    "dump-keychain --export-secret-keys",
    *meanings.SECRET_PATHS,
    *meanings.SETTINGS_PATHS,
    r"\benviron\b(?! ?\[|\.(?:get|pop|setdefault)\b)|\b(?:process|deno)\.env\b(?! ?\[|\??\.\w)",
)
_DUMPS = Concept("", r"\b(?:history|env|set) ?[|>)]|\b(?:export|declare) -p\b")
_SENDS = Concept(
    "requests httpx urlopen urlretrieve urllib urllib3 aiohttp socket smtplib smtp ftplib ftp sftp "
    "http.client paramiko curl wget fetch axios http.request https.request http.get https.get "
    "sendbeacon needle superagent undici request( request.post resolver. xmlhttprequest websocket "
    "net.connect net.createconnection tls.connect createtransport /dev/tcp /dev/udp scp rsync nc "
    "ncat netcat socat telnet xh nslookup",
    r"[\"'](?:node:)?https?[\"']|\bdns\.\w",
    r"\bgot(?:\(|\.(?:get|post|put|patch|stream)\b|[\"'])",
    r"(?m)(?:^|[;&|(`]|\b(?:sudo|then|do|else|echo)\b)[ \t]{0,80}(?:https?|mail|dig|ping|drill|host) ",
)
_GIVEN = Concept("argv argparse $1 $@ $* ${1 git_archive git_bundle git_diff format-patch")
_UPLOADS = Concept("files= -f_ -t_ -d_ --data --upload formdata body: data= nc")
_FETCHES = Concept(
    "curl wget urlopen urlretrieve requests httpx fetch( node-fetch axios http.get https.get got( "
    "b64decode b32decode a85decode b85decode unhexlify fromhex base64 codecs.decode decompress "
    "atob",
    r"[\"'](?:node:)?(?:https?|got)[\"']",
)
_RUNS = Concept(
    "exec( eval( eval) system( popen execv execvp execl execlp subprocess chmod child_process "
    "execsync execfile spawn function( runinthiscontext runinnewcontext runincontext"
)
_SHELL_FETCHES = Concept("curl wget base64 base32 xxd openssl")
_SHELL_RUNS = Concept(
    "bash sh zsh dash ksh ash eval source sudo chmod python python3 node perl ruby php osascript "
    "pwsh ./ /tmp/ <( $( _._"
)
_DELETES = Concept("rmtree rmsync rmdirsync rimraf")
_HOME = Concept("home expanduser homedir /root /users c:\\", r"[\"']~")
_SHELL, _PROGRAMS = frozenset[Language]({"shell"}), frozenset[Language]({"python", "javascript"})
_FLOWS: list[tuple[frozenset[Language], list[tuple[Concept, ...]]]] = [
    (_SHELL | _PROGRAMS, [(SECRETS, _DUMPS), (_SENDS,)]),
    (_SHELL | _PROGRAMS, [(_GIVEN,), (_UPLOADS,), (_SENDS,)]),
    (_SHELL, [(_SHELL_FETCHES,), (_SHELL_RUNS,)]),
    (_PROGRAMS, [(_FETCHES,), (_RUNS,)]),
    (_PROGRAMS, [(_DELETES,), (_HOME,)]),
]
"""(languages, ideas that meet in code with a harmful flow, one of each group)."""
FLOW_IDEAS = [idea for _, flow in _FLOWS for group in flow for idea in group]


def may_have_flows(places: Places, languages: Set[Language]) -> bool:
    """Return whether code of these languages in a text may have a harmful flow."""
    return any(places.has_each(ideas) for of, ideas in _FLOWS if not languages.isdisjoint(of))


def may_send_secrets(places: Places) -> bool:
    """Return whether code in a text may send a secret."""
    return places.has_each([(SECRETS,), (_SENDS,)])


def find_flows(codes: Sequence[Code]) -> list[tuple[int, str]]:
    """Return (line, rule) of harmful flows in the code of a skill, sorted.

    All shell blocks share variables and files; all programs of a language share functions.
    """
    found: set[tuple[int, str]] = set()
    for language in LANGUAGES:
        chosen = [code for code in codes if code.language == language]
        if chosen:
            found |= Follower(Statements(chosen)).find_harm()
    return sorted(found)

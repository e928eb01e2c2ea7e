"""Harmful data flows in code, such as secrets to the network and downloads to an interpreter."""

from __future__ import annotations

from collections.abc import Sequence, Set

from skills.scanner.code_blocks import Code, Language
from skills.scanner.data_files import word_set
from skills.scanner.flow.labels import Store
from skills.scanner.flow.program import ProgramReader
from skills.scanner.flow.shell import read_shell

# Words that code with a harmful flow contains; a search for words is faster than reading the code.
# They are in lower case, with + for a space.
_PATHS = (
    ".ssh id_rsa id_dsa id_ecdsa id_ed25519 .aws .gnupg .kube .npmrc .pypirc .netrc keychain "
    "login+data logins.json wallet.dat exodus electrum environ) environ} environ, environ.items "
    "environ.copy import+environ process.env) process.env, process.env} .kdbx"
)
_SOURCES = (
    f"{_PATHS} .azure cookies keystore key4.db key3.db credentials.json default_credentials "
    "git-credentials git+credential find-generic find-internet dump-keychain /shadow secret-tool "
    ".config/gh gcloud .docker export-secret ethereum bitcoin solana atomic ledger printenv /proc/ "
    "bash_history zsh_history history+| \\.env '.env \".env /.env +.env =.env @.env process.env; "
    "process.env+} env+| env| env) env+> set+| .pem *.key *.p12 get+secret vault-token "
    ".claude.json .credentials.json auth.json .openclaw .clawdbot"
)
_SENDS = (
    "requests httpx urlopen urlretrieve urllib aiohttp socket smtp ftp http.client paramiko dns. "
    "curl fetch( fetch? -fetch axios http.request https.request http.get https.get "
    "'http' 'https' \"http\" \"https\" node:http sendbeacon got( got. 'got' \"got\" needle "
    "superagent undici request( request.post resolver. xmlhttprequest net.connect "
    "net.createconnection tls.connect createtransport"
)
_SHELL_SENDS = (
    "curl wget /dev/tcp /dev/udp scp+ rsync +nc+ |nc+ ;nc+ &nc+ (nc+ /nc+ ncat+ netcat socat "
    "telnet http+ https+ ftp+ +mail+ dig+ nslookup ping+ drill+ +host+"
)
_GIVEN = "argv argparse $1 $@ $* ${1 git+archive git+bundle git+diff format-patch"
_UPLOADS = "files= -f+ -t+ --data --upload formdata body: data= +nc+ |nc+ ;nc+ &nc+ (nc+ /nc+"
_FETCHES = (
    "urlopen urlretrieve requests httpx curl wget base64 b32decode unhexlify fromhex a85decode "
    "codecs.decode decompress fetch( -fetch axios http.get https.get 'https' \"https\" got( 'got' "
    '"got" atob'
)
_SHELL_FETCHES = "curl wget base64 base32 xxd openssl"
_RUNS = (
    "exec( eval( eval) os.system( system( os.popen( popen( os.exec subprocess chmod sys.executable "
    "|+bash |+sh child_process execsync( execfile spawn( function( runin"
)
_SHELL_RUNS = (
    "|+bash |+sh |sh |bash |+zsh |+sudo <( bash+ +sh+ /sh+ ;sh+ &sh+ (sh+ 'sh+ \"sh+ "
    "eval+ source+ chmod ./ /tmp/ python3 node+ perl+ $( sudo+"
)
_DELETES, _HOME = "rmtree rmsync rmdirsync rimraf", "home expanduser '~ \"~ /root /users c:\\"


def _words(plain: str) -> frozenset[str]:
    return frozenset(word.replace("+", " ") for word in plain.split())


SECRET_FILES, SECRET_WORDS = _words(_PATHS), _words(_SOURCES)
_PROGRAM_FLOWS, _SHELL_FLOWS = (
    [
        [*map(_words, groups)]
        for groups in (
            (sends, _SOURCES),
            (sends, _GIVEN, _UPLOADS),
            (_DELETES, _HOME),
            (fetches, runs),
        )
    ]
    for sends, fetches, runs in (
        (_SENDS, _FETCHES, _RUNS),
        (_SHELL_SENDS, _SHELL_FETCHES, _SHELL_RUNS),
    )
)
_FLOWS: dict[Language, list[list[frozenset[str]]]] = {
    "python": _PROGRAM_FLOWS,
    "javascript": _PROGRAM_FLOWS,
    "shell": _SHELL_FLOWS,
}
"""Language -> lists of groups of words; code with a flow has a word of each group of some list."""
FLOW_WORDS = frozenset().union(
    *(one for flows in _FLOWS.values() for flow in flows for one in flow)
)
_HARM = (
    ("network", word_set("secret settings"), "secret-sent"),
    ("network", word_set("environment"), "environment-sent"),
    ("network", word_set("file"), "file-sent"),
    ("delete", frozenset({"home path"}), "deletes-system"),
    ("mark", word_set("decoded"), "decoded-run"),
    ("execute", word_set("decoded"), "decoded-run"),
    ("execute", frozenset({"bare download"}), "bare-download-run"),
    ("execute", word_set("download"), "download-run"),
    ("execute", frozenset({"known download"}), "known-download-run"),
)
"""(sink, labels that must not reach it, rule); the first match for a use counts."""


def may_have_flows(found: Set[str]) -> frozenset[Language]:
    """Return the languages in which code with these words of FLOW_WORDS may have a harmful flow."""
    return frozenset(
        language
        for language, flows in _FLOWS.items()
        if any(not any(map(found.isdisjoint, flow)) for flow in flows)
    )


def find_flows(codes: Sequence[Code]) -> list[tuple[int, str]]:
    """Return (line, rule) of harmful flows in the code of a skill, sorted.

    All shell blocks share variables and files; all programs of a language share functions.
    """
    stores = [Store()]
    for code in codes:
        if code.language == "shell":
            read_shell(stores[0], code.text, code.first_line)
    for language in ("python", "javascript"):
        programs = [code for code in codes if code.language == language]
        if programs:
            stores.append(Store())
            ProgramReader(programs, stores[-1]).read()
    found: set[tuple[int, str]] = set()
    for use in (use for store in stores for use in store.follow()):
        rules = (rule for sink, bad, rule in _HARM if sink == use.sink and bad & use.labels)
        found.update((use.line, rule) for rule in [next(rules, "")] if rule)
    return sorted(found)

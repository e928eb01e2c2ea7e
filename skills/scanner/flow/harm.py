"""Rules for what flows where in code: secrets to the network, downloads to where they are run."""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Sequence

from skills.scanner.code_blocks import Code
from skills.scanner.data_files import word_set
from skills.scanner.flow.labels import Store, Use
from skills.scanner.flow.program import ProgramReader
from skills.scanner.flow.shell import read_shell

# What code must hold for a flow to be in it; to search for words takes less than to parse. In lower
# case, with a + for a space.
_SECRET_FILES = word_set(
    ".ssh id_rsa id_dsa id_ecdsa id_ed25519 .aws .gnupg .kube .npmrc .pypirc .netrc keychain "
    "login+data logins.json wallet.dat exodus electrum environ) environ} environ, environ.items "
    "environ.copy process.env) process.env, process.env} .kdbx"
)
_SECRETS = _SECRET_FILES | word_set(
    ".azure cookies wallet.dat keystore key4.db key3.db credentials.json default_credentials "
    "git-credentials git+credential find-generic find-internet dump-keychain /shadow secret-tool "
    ".config/gh gcloud .docker export-secret ethereum bitcoin solana atomic ledger printenv /proc/ "
    "bash_history zsh_history history+| \\.env '.env \".env /.env +.env =.env @.env process.env; "
    "process.env+} env+| env| env) env+> set+| .pem *.key *.p12 get+secret vault-token "
    ".claude.json .credentials.json auth.json .openclaw .clawdbot"
)
_GIVEN = word_set("argv argparse $1 $@ $* ${1 git+archive git+bundle git+diff format-patch")
_UPLOADS = word_set(
    "files= -f+ -t+ --data --upload formdata body: data= +nc+ |nc+ ;nc+ &nc+ (nc+ /nc+"
)
_SENDS = {
    "python": "requests. httpx urlopen aiohttp socket smtplib ftp http.client paramiko dns. curl",
    "javascript": "fetch( axios http.request https.request sendbeacon got( websocket curl dns.",
    "shell": "curl wget /dev/tcp scp+ rsync dig+ nslookup +nc+ |nc+ ;nc+ &nc+ (nc+ /nc+ ncat+ "
    "netcat socat telnet http+ https+ ftp+ +mail+ ping+ drill+ +host+",
}
_FETCHES = {
    "python": "urlopen urlretrieve requests.get httpx.get curl wget b64decode base64 b32decode "
    "a85decode unhexlify fromhex decompress",
    "javascript": "fetch( axios curl wget http.get https.get got( base64 atob",
    "shell": "curl wget base64 base32 xxd openssl",
}
_RUNS = {
    "python": "exec( eval( os.system( shell=true os.popen( chmod sys.executable popen( |+bash |+sh",
    "javascript": "exec( eval( execsync( spawn( spawnsync( function( runin |+bash |+sh then(eval",
    "shell": "|+bash |+sh |sh |bash |+zsh |+sudo <( bash+ +sh+ /sh+ ;sh+ &sh+ (sh+ 'sh+ \"sh+ "
    "eval+ source+ chmod ./ /tmp/ python3 node+ perl+ $( sudo+",
}
_DELETES = word_set("rmtree rmsync rimraf")
_HOME = word_set("home expanduser '~")
_FLOWS = {
    language: [
        [frozenset(word.replace("+", " ") for word in group) for group in flow]
        for flow in (
            (_SENDS[language].split(), _SECRETS),
            (_SENDS[language].split(), _GIVEN, _UPLOADS),
            (_DELETES, _HOME),
            (_FETCHES[language].split(), _RUNS[language].split()),
        )
    ]
    for language in _SENDS
}
"""Groups of words by language; code with a flow holds a word of each of some groups."""
SECRET_FILES = frozenset(word.replace("+", " ") for word in _SECRET_FILES)
SECRET_WORDS = frozenset(word.replace("+", " ") for word in _SECRETS)
"""Code that sends a secret holds one of them, in lower case."""
FLOW_WORDS = frozenset(
    word for flows in _FLOWS.values() for flow in flows for group in flow for word in group
)


def may_have_flows(language: str, found: KeysView[str]) -> bool:
    """Whether code of a language that holds some of FLOW_WORDS may have a flow."""
    return any(not any(map(found.isdisjoint, flow)) for flow in _FLOWS[language])


def find_flows(codes: Sequence[Code]) -> list[tuple[int, str]]:
    """(line, rule) of what reaches where it does harm, in code of a skill.

    Shell commands share their variables and files from block to block, programs their functions.
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
    uses = (use for store in stores for use in store.follow())
    return sorted({(use.line, rule) for use in uses for rule in _judge(use)})


def _judge(one: Use) -> Iterator[str]:
    match one.sink:
        case "network" if one.labels & {"secret", "settings"}:
            yield "secret-sent"
        case "network" if "environment" in one.labels:
            yield "environment-sent"
        case "network" if "file" in one.labels:
            yield "file-sent"
        case "delete" if "home path" in one.labels:
            yield "deletes-system"
        case "mark" if "decoded" in one.labels:
            yield "decoded-run"
        case "execute":
            if "decoded" in one.labels:
                yield "decoded-run"
            elif "bare download" in one.labels:
                yield "bare-download-run"
            elif "download" in one.labels:
                yield "download-run"
            elif "known download" in one.labels:
                yield "known-download-run"

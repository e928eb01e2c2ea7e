"""Meaning of paths, addresses and functions for data flow."""

from __future__ import annotations

import re

from skills.scanner import addresses
from skills.scanner.data_files import word_set
from skills.scanner.flow.labels import NONE, Labels

SECRET_PATHS = (
    r"(?<!\w)\.(?:ssh|aws|gnupg|azure|kube)(?![\w-])"
    r"(?![/\\]{1,2}[\w.-]{0,80}(?:config$|known_hosts|\.pub\b))"
    r"|\.kube[/\\]{1,2}config|\bid_(?:rsa|dsa|ecdsa|ed25519)(?!\w|\.pub)"
    r"|/proc/(?:self|\d{1,9})/environ|\.(?:bash|zsh)_history\b|\*\.(?:pem|key|kdbx|p12)\b",
    r"application_default_credentials|/etc/shadow\b|\bwallet\.dat\b|[/\\]keystore\b|login data"
    r"|\b(?:logins\.json|key[34]\.db)\b|\bcookies\.sqlite\b|login\.keychain|library/keychains"
    r"|/(?:default|profile \d)/(?:network/)?cookies\b|\.kdbx\b"
    r"|\.(?:claude(?:/\.credentials)?|codex/auth)\.json\b",
    r"(?:exodus|electrum|ethereum|atomic|ledger live|bitcoin)[/\\]"
    r"|\.(?:electrum|bitcoin|ethereum|solana|config/solana)[/\\]",
)
SETTINGS_PATHS = (
    r"(?<![\w)\]])\.env(?:\.(?:local|prod\w{0,9}|dev\w{0,9}))?(?![\w.-])",
    r"(?<!\w)\.(?:npmrc|pypirc|netrc|git-credentials|vault-token|(?:openclaw|clawdbot)[/\\](?!(?:workspace|skills)[/\\](?!.*\.\.))"
    r"|(?:config/gh|docker)(?![\w-]))|credentials\.json\b",
)
"""Patterns of paths of secrets, and of files with settings that may be secret, in lower case."""
_SECRET, _SETTINGS = (re.compile("|".join(paths)) for paths in (SECRET_PATHS, SETTINGS_PATHS))
_HOME_PATH = re.compile(r"^(?:~|\$HOME|\$\{HOME\}|C:\\?|/home|/Users|/root)/?\*?$")

HOME = frozenset({"home path"})
ENVIRONMENT = frozenset({"environment"})
VARIABLES = {
    **dict.fromkeys(("os.environ", "environ", "process.env", "Deno.env"), ENVIRONMENT),
    **dict.fromkeys(("sys.argv", "process.argv", "Deno.args"), frozenset({"argument"})),
}
# Functions by the last part of their name, or by the last two parts.
NETWORK = word_set(
    "requests.post requests.put requests.get requests.patch requests.request httpx.post httpx.put "
    "httpx.get httpx.request urlopen urlretrieve urllib3.request fetch node-fetch axios axios.post "
    "axios.put axios.get axios.request got got.post needle.post superagent.post http.request "
    "https.request https.get http.get sendBeacon Request request.post undici.request "
    "resolver.resolve dns.resolve dns.lookup socket.gethostbyname"
)
CONNECTION = word_set(
    "Session Client AsyncClient ClientSession HTTPConnection HTTPSConnection socket.socket "
    "create_connection SMTP SMTP_SSL FTP FTP_TLS PoolManager http.request https.request "
    "net.connect net.createConnection tls.connect WebSocket XMLHttpRequest open_sftp "
    "createTransport connect_ex"
)
SENDING_METHODS = word_set(
    "post put patch request send sendall sendto sendmail send_message sendMail storbinary get "
    "storlines write end connect putfo open"
)
READING = word_set(
    "open read_text read_bytes read readFile readFileSync createReadStream copy copyfile copy2 "
    "copytree make_archive add write walk glob load cpSync copyFileSync file read_csv connect"
)
COPYING = word_set(
    "copy copyfile copy2 copytree move make_archive cpSync copyFileSync urlretrieve writeFileSync "
    "writeFile"
)
WRITING = word_set("write writelines write_text write_bytes")
DECODING = word_set("b64decode b32decode unhexlify fromhex atob decompress a85decode b85decode")
EXECUTING = word_set("exec eval Function runInThisContext runInNewContext runInContext")
_OF_CHILD_PROCESS = "exec execSync spawn spawnSync execFile execFileSync"
RUNNING = word_set(
    "os.system os.popen os.execv os.execvp os.execl os.execlp subprocess.run subprocess.call "
    "subprocess.Popen subprocess.check_output subprocess.check_call subprocess.getoutput "
    "subprocess.getstatusoutput asyncio.create_subprocess_shell asyncio.create_subprocess_exec"
) | {f"child_process.{name}" for name in _OF_CHILD_PROCESS.split()}
DELETING = word_set("rmtree rmSync rmdirSync rimraf")


def label_path(text: str) -> Labels:
    """Return the labels of a sensitive path, NONE for any other text."""
    if not text or len(text) > 300 or "\n" in text:
        return NONE
    if _SECRET.search(text.lower()):
        return frozenset({"secret path"})
    if _SETTINGS.search(text.lower()):
        return frozenset({"settings path"})
    return HOME if _HOME_PATH.match(text) else NONE


def label_download(text: str) -> Labels:
    """Return the label of a download from the address in a text; the address may be in a variable.

    The label is NONE for a local address and for a text without an address.
    """
    address = addresses.ADDRESS.search(text)
    if address is None:
        return NONE if text and "$" not in text and not is_host(text) else frozenset({"download"})
    if addresses.is_local(address):
        return NONE
    if addresses.is_bare(address):
        return frozenset({"bare download"})
    known = addresses.is_known(address, "installers")
    return frozenset({"known download" if known else "download"})


def is_host(text: str) -> bool:
    """Return whether a text is an address with a path and without a scheme."""
    return bool(re.match(r"[\w-]+(?:\.[\w-]+)+/\S", text))


def is_network(name: str) -> bool:
    """Return whether a function, by its name as written, sends or fetches without a connection."""
    owner, _, last = name.rpartition(".")
    return last in NETWORK or f"{owner.rpartition('.')[2]}.{last}" in NETWORK


def is_running(name: str, language: str) -> bool:
    """Return whether a function, by its name with its module, runs a command."""
    return name in RUNNING or (language == "javascript" and f"child_process.{name}" in RUNNING)


def label_result(name: str, text: str) -> Labels:
    """Return the labels that a function adds to its result. text: the texts among its arguments."""
    last = name.rpartition(".")[2]
    if last in ("home", "homedir"):
        return HOME
    if last == "parse_args":
        return frozenset({"argument"})
    fetched = label_download(text) if is_network(name) else NONE
    if last in CONNECTION or name in CONNECTION:
        return fetched | {"connection"}
    of_base64 = name == "Buffer.from" and "base64" in text
    if last in DECODING or name == "codecs.decode" or of_base64:
        return frozenset({"decoded"})
    return fetched


def is_local(text: str) -> bool:
    """Return whether a text contains an address on this machine or in its network."""
    address = addresses.ADDRESS.search(text)
    return address is not None and addresses.is_local(address)


def is_known_installer(text: str) -> bool:
    """Return whether the address in a text is of a known installer; its scheme is optional."""
    if "://" not in text:
        text = re.sub(r"\s(?=[\w-]+\.[a-z]{2,})", " https://", text, count=1)
    return "known download" in label_download(text)

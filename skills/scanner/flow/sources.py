"""What paths, addresses and functions mean for data flow."""

from __future__ import annotations

import re

from skills.scanner.data_files import matches_host, read_list, word_set
from skills.scanner.flow.values import EMPTY, Value, of_label

_SECRET_PATH = re.compile(
    r"(?:^|[/\\~@])\.(?:ssh|aws|gnupg|azure|kube)(?:[/\\](?![\w.-]*(?:config$|known_hosts|\.pub\b))"
    r"|$)"
    r"|\.kube[/\\]config|\bid_(?:rsa|dsa|ecdsa|ed25519)(?!\w|\.pub)|application_default_credentials"
    r"|/etc/shadow\b|\bwallet\.dat\b|[/\\]keystore\b|Login Data|\b(?:logins\.json|key[34]\.db)\b"
    r"|\bcookies\.sqlite\b|/(?:Default|Profile \d)/(?:Network/)?Cookies\b|login\.keychain"
    r"|Library/Keychains|(?:Exodus|Electrum|Ethereum|Atomic|Ledger Live|Bitcoin)[/\\]"
    r"|\.(?:electrum|bitcoin|ethereum|solana|config/solana)[/\\]|\.kdbx\b|/proc/(?:self"
    r"|\d+)/environ|\.(?:bash|zsh)_history\b|\*\.(?:pem|key|kdbx|p12)\b"
    r"|\.(?:claude(?:/\.credentials)?|codex/auth)\.json\b",
    re.IGNORECASE,
)
_SETTINGS_PATH = re.compile(
    r"(?:^|[/\\@\s\"'=])\.env(?:\.(?:local|prod\w*|dev\w*))?$|(?:^|[/\\~])\.(?:npmrc|pypirc|netrc"
    r"|git-credentials|vault-token|openclaw[/\\]|clawdbot[/\\]|(?:config/gh|docker)(?:[/\\]|$))|credentials\.json$",
    re.IGNORECASE,
)
_HOME_PATH = re.compile(r"^(?:~|\$HOME|\$\{HOME\}|C:\\?|/home|/Users|/root)/?\*?$")
_ADDRESS = re.compile(r"(?:https?|ftps?|wss?)://([^\s/\"'<>)`]+)([^\s\"'<>)`]*)", re.IGNORECASE)
_BARE = re.compile(r"(?:[^@]*@)?(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?$")
_LOCAL = re.compile(
    r"(?:localhost|127\.|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|0\.0\.0\.0|\[::1\])"
    r"|^[\w.-]+\.(?:local|lan|internal|test)(?::|$)|^[\w-]+(?::\d+)?$"
)

# Functions by their last names, in Python and JavaScript; "requests." stands for all of a module.
NETWORK = word_set(
    "requests.post requests.put requests.get requests.patch requests.request httpx.post httpx.put "
    "httpx.get httpx.request urlopen urlretrieve urllib3.request fetch axios axios.post axios.put "
    "axios.get axios.request got got.post needle.post superagent.post http.request https.request "
    "https.get http.get sendBeacon Request request.post request.Request resolver.resolve "
    "dns.resolve dns.lookup socket.gethostbyname"
)
CONNECTION = word_set(
    "Session Client AsyncClient ClientSession HTTPConnection HTTPSConnection socket.socket "
    "create_connection SMTP SMTP_SSL FTP FTP_TLS PoolManager http.request https.request "
    "net.connect net.createConnection tls.connect WebSocket XMLHttpRequest open_sftp "
    "createTransport create_connection connect_ex"
)
SENDING_METHODS = word_set(
    "post put patch request send sendall sendto sendmail send_message sendMail storbinary get "
    "storlines write end connect putfo open"
)
READING = word_set(
    "open read_text read_bytes read readFile readFileSync createReadStream copy copyfile copy2 copytree "
    "make_archive add write walk glob load cpSync copyFileSync file read_csv dotenv_values connect"
)
COPYING = word_set(
    "copy copyfile copy2 copytree move make_archive cpSync copyFileSync urlretrieve "
    "writeFileSync writeFile"
)
DECODING = word_set("b64decode b32decode unhexlify fromhex atob decompress a85decode b85decode")
EXECUTING = word_set("exec eval Function runInThisContext runInNewContext runInContext")
RUNNING = word_set(
    "os.system os.popen subprocess.run subprocess.call subprocess.Popen subprocess.check_output "
    "subprocess.check_call exec execSync spawn spawnSync execFile execFileSync execvp execv "
    "create_subprocess_shell create_subprocess_exec getoutput"
)
DELETING = word_set("rmtree rmSync rmdirSync rimraf")
SERVICES = {
    "GITHUB": "github", "GH": "github", "GITLAB": "gitlab", "OPENAI": "openai", "ANTHROPIC": "anthropic",
    "AWS": "amazonaws", "GEMINI": "googleapis", "GOOGLE": "google", "AZURE": "azure", "STRIPE": "stripe",
    "SLACK": "slack", "NPM": "npm", "PYPI": "pypi", "HF": "huggingface", "DATABASE": "", "SSH": "",
}
"""Well-known services by how the names of their variables begin, with what their hosts hold."""
_SERVICE_KEY = re.compile(rf"({'|'.join(SERVICES)})_(?:\w+_)?(?:TOKEN|KEY|SECRET|PASSWORD|URL)$")
HARMLESS = word_set(
    "len bool exists existsSync isfile is_file isdir is_dir isinstance type stat int print log "
    "getsize access debug info warning error load_dotenv set_defaults add_argument"
)


def label_path(text: str) -> Value:
    """The labels of a path, EMPTY for any other text."""
    if len(text) > 300 or "\n" in text:
        return EMPTY
    if _SECRET_PATH.search(text):
        return of_label("secret path")
    if _SETTINGS_PATH.search(text):
        return of_label("settings path")
    return of_label("home path") if _HOME_PATH.match(text) else EMPTY


def label_variable(name: str) -> Value:
    """The label of the key of a well-known service in a variable of the environment, else EMPTY."""
    service = _SERVICE_KEY.match(name)
    return of_label(f"key of {service[1]}") if service else EMPTY


def is_foreign_key(label: str, address: str) -> bool:
    """Whether a label is of the key of a service to which an address does not belong."""
    service = label.removeprefix("key of ")
    found = _ADDRESS.search(address)
    if service == label or found is None or "$" in found[1] or is_local(address):
        return False
    return not SERVICES[service] or SERVICES[service] not in found[1].lower()


def label_download(text: str) -> Value:
    """The label of what is fetched from the address in a text, which may be in a variable; EMPTY
    without an address and for a local one."""
    address = _ADDRESS.search(text)
    if address is None:
        return EMPTY if text and "$" not in text and not is_host(text) else of_label("download")
    host = address[1].lower()
    if _LOCAL.match(host):
        return EMPTY
    if _BARE.match(host):
        return of_label("bare download")
    known = matches_host(host, address[2], read_list("hosts.json", "installers"))
    return of_label("known download" if known else "download")


def is_host(text: str) -> bool:
    """Whether a text is an address without a scheme, with a path."""
    return bool(re.match(r"[\w-]+(?:\.[\w-]+)+/\S", text))


def is_local(text: str) -> bool:
    """Whether a text has an address, and it is one of this machine or network."""
    address = _ADDRESS.search(text)
    return address is not None and bool(_LOCAL.match(address[1].lower()))


def is_known_installer(text: str) -> bool:
    """Whether the address in a text is of a known installer; the scheme may be left out."""
    whole = (
        text if "://" in text else re.sub(r"\s(?=[\w-]+\.[a-z]{2,})", " https://", text, count=1)
    )
    return "known download" in label_download(whole).labels

"""Starts the hook without site packages: `python -I -S launcher.py AGENT`.

It is short, as Python compiles a script at each start, but caches the bytecode of modules.
"""

import os
import sys

if __name__ == "__main__":
    # `pathlib` is slow to import.
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    code = __import__("prompt_hook").main(sys.argv[1:])
    os._exit(code)  # the end of the interpreter takes milliseconds

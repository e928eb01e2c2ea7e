"""Starts the hook without site packages: `python -I -S launcher.py AGENT`.

A script is compiled at each start and a module is not, so this one is short.
"""

import os
import sys

if __name__ == "__main__":
    # `pathlib` is slow to import.
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    code = __import__("prompt_hook").main(sys.argv[1:])
    os._exit(code)  # the end of the interpreter takes milliseconds

"""Starts the hook without site packages: `python -I -S launcher.py AGENT`.

A script is compiled at each start and a module is not, so this one is short.
"""

import os
import sys

sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 (pathlib is slow to import)
main = __import__("prompt_hook").main
os._exit(main(sys.argv[1:]))  # the end of the interpreter takes milliseconds

"""`python -m workers.cli`: the same program as `skillbus`."""

from workers.cli import main

main()

"""Skills that come by value: archives unpacked within bounds, and the store that keeps them.

Nothing that an archive names ever becomes a path on this machine: its members become members of
packages that this code writes, one file a skill.
"""

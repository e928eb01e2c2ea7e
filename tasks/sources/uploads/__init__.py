"""Uploads as sources: archives unpacked within limits, and the store of the skills in them.

No name in an archive becomes a path on this machine: the members are written to packages, one file
per skill.
"""

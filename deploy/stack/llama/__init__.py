"""A small language model that is made on this machine, and llama.cpp's server for it.

Unlike the rest of the stack, it needs packages that are not in the standard library, so it runs in
its own process, with a Python that has them.
"""

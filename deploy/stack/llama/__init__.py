"""A small language model made on this machine, and llama.cpp's server for it.

Unlike the rest of the stack it needs packages that are not in the standard library: it runs in its
own process, with the Python that has them.
"""

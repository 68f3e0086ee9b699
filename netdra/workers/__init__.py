"""Processes for untrusted and costly work, with limits of time and memory.

`process` is what such a process does · `pool` keeps a few of them and asks. The webhook and the controller each state
the question and the answer, in a module of their own that the pool starts.
"""

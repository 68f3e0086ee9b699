"""Processes for what is untrusted and costly, in time and memory that are limited.

`process` is what such a process does · `pool` keeps a few of them and asks. The webhook and the controller each state
what is asked and answered, in a module of their own that the pool starts.
"""

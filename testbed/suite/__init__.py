"""`make test`: all levels of the tests in one run, side by side as far as the machine's cores reach.

`levels` states what there is to do, `run` does it, `results` reads what becomes of it, `screen` and `summary` show it,
`retry` looks once more at what failed on a real machine, and `times` compares runs. Only the standard library is used:
the run begins before anything is installed.
"""

"""`make test`: all levels of the tests in one run, side by side as far as the machine's cores reach.

`levels` defines the work, `run` does it, `results` reads the outcomes, `screen` and `summary` show them,
`retry` runs once more the tests that failed on a real machine, and `times` compares runs. Only the standard library is
used: the run begins before anything is installed.
"""

"""Small mistakes in the code of netdra, and the share of them that the unit tests notice.

`mistakes` reads a module and yields its mutants. `python -m testbed.mutants` takes a random sample of them, writes each
into a copy of the checkout, and runs the unit tests that import the module.
"""

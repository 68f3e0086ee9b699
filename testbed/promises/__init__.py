"""Promises of the documentation, each with a mistake that breaks it, and the test that must notice the mistake.

The mistakes are in `tests/promises`, one file for each page. `rows` reads and applies them, `trial` runs a test on a
copy of the checkout, and `python -m testbed.promises` reports the results.
"""

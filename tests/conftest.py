"""The common part of all levels: the allowed paths, the seed of random tests, and the report for `make test`."""

from __future__ import annotations

import gc
import os
import signal

import pytest

from tests import draws, reporting

pytest_plugins = ["tests.confined"]
# The assertions there belong to tests, too.
pytest.register_assert_rewrite("tests.servers.facts")

_HYPOTHESIS = "hypothesispytest"


# Before the plugin of hypothesis, which reads the option in its own.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Use one seed in all processes of a run, and report the outcome of each test."""
    os.environ["NETDRA_SEED"] = str(draws.seed())  # that of processes which run a part of these tests, too
    if config.pluginmanager.has_plugin(_HYPOTHESIS):
        _have_hypothesis_draw(config)
    reporting.register(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has what it begins in the background ignore Ctrl-C, which tests send to programs that inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _have_hypothesis_draw(config: pytest.Config) -> None:
    # Only where it is loaded anyway: in the SR-IOV machine the import takes seconds, and nothing draws.
    from hypothesis import HealthCheck, settings

    # Examples touch the kernel, threads and files, on machines that do other things too: none of them is timed.
    unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
    settings.register_profile("unhurried", unhurried)
    settings.load_profile("unhurried")
    if config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = str(draws.seed())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests that repeat others to `make explore`, unless one is named."""
    if draws.ANEW or any("::" in argument for argument in config.args):
        return
    repeats = [item for item in items if item.get_closest_marker("repeats") is not None]
    if repeats:
        config.hook.pytest_deselected(items=repeats)
        items[:] = [item for item in items if item not in repeats]


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of garbage collections, which would inspect them again and again."""
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    """How to draw the same again."""
    return f"drawn from NETDRA_SEED={draws.seed()}"

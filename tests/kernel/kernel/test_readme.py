"""The example of the library's page that needs a namespace of its own runs."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "netdra" / "kernel" / "README.md"


def test_the_example_in_a_namespace_runs() -> None:
    (code,) = re.findall(r'^```python title="root"\n(.*?)^```$', PAGE.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})

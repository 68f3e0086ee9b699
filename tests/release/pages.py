"""The pages of a release's site as a reader has them: unpacked from the archive, with their blocks of code."""

from __future__ import annotations

import html
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

from testbed import archives
from tests.cluster.install.releases import HOST, Release

_BLOCK = re.compile(r"<pre>(.*?)</pre>", re.DOTALL)
_CODE = re.compile(r'<code class="docutils literal notranslate">(.*?)</code>', re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_COMMENT = re.compile(r" +# .*$", re.MULTILINE)


@dataclass(frozen=True)
class Pages:
    """The unpacked site of a release."""

    release: Release
    folder: Path

    def blocks(self, page: str, section: str, host: str = HOST) -> list[str]:
        """The blocks of code of a section, without its subsections, for the release's version and a registry."""
        return [self.release.written(text, host) for text in _texts(_BLOCK, self._section(page, section))]

    def files(self, page: str) -> dict[str, str]:
        """The objects in a page's blocks, as YAML by their kind."""
        texts = _texts(_BLOCK, self._text(page))
        return {kind[1]: text for text in texts if (kind := re.search(r"^kind: (\w+)$", text, re.MULTILINE))}

    def lines(self, page: str, section: str, host: str = HOST, number: int = 0) -> list[str]:
        """The commands of a block of a section, without comments."""
        text = self.blocks(page, section, host)[number].replace("\\\n", " ")
        return _COMMENT.sub("", text).splitlines()

    def line(self, page: str, section: str, pattern: str) -> str:
        """The only command of a section's first block of a form."""
        (found,) = (line for line in self.lines(page, section) if re.fullmatch(pattern, line))
        return found

    def code(self, page: str, section: str, pattern: str) -> str:
        """The only command within the text of a section of a form."""
        (found,) = (text for text in _texts(_CODE, self._section(page, section)) if re.fullmatch(pattern, text))
        return self.release.written(found)

    def names(self, page: str, section: str) -> list[str]:
        """The names in the text of a section, for the release's version."""
        return [self.release.written(text) for text in _texts(_CODE, self._section(page, section))]

    def commands(self, section: str) -> list[tuple[str, str]]:
        """The commands of a section of the tutorial, each with its printed output."""
        (text,) = self.blocks("tutorial", section)
        parts = [part.partition("\n") for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]
        return [(command, printed) for command, _, printed in parts]

    def _section(self, page: str, section: str) -> str:
        """The HTML of a section up to the next one."""
        _, found, rest = self._text(page).partition(f'<section id="{section}">')
        assert found, f"{page}.html has no section {section}"
        return re.split(r"<section |</section>", rest, maxsplit=1)[0]

    def _text(self, page: str) -> str:
        return (self.folder / f"{page}.html").read_text(encoding="utf-8")


def _texts(pattern: re.Pattern[str], text: str) -> list[str]:
    return [html.unescape(_TAG.sub("", found)) for found in pattern.findall(text)]


def unpacked(release: Release, folder: Path) -> Pages:
    """The site of a release, unpacked into a folder."""
    with tarfile.open(release.folder / f"netdra-{release.version}-site.tar.gz") as archive:
        archives.unpack(archive, folder)
    (top,) = folder.iterdir()
    return Pages(release, top)

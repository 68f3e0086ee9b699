"""The base of sockets, folders and watches, here and in `netdra.discovery`: leaving one as a context closes it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self


class Closing:
    """An object that has descriptors until it is closed."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close its descriptors; none is open afterwards."""

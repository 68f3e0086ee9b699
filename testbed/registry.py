"""`python -m testbed.registry ARCHIVE PORT`: an image registry with one image, for a runtime that takes no archives.

Serves the OCI image layout of a tar file (the distribution specification's pull, without TLS) on loopback, to
`testbed.crio`; every name and tag is that image.
"""

from __future__ import annotations

import json
import sys
import tarfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def contents(archive: Path) -> dict[str, bytes]:
    """The layout's files by their names."""
    with tarfile.open(archive) as layout:
        read = {member.name: layout.extractfile(member) for member in layout.getmembers()}
        return {name: file.read() for name, file in read.items() if file is not None}


def handler(files: dict[str, bytes]) -> type[BaseHTTPRequestHandler]:
    """The handler of a runtime's requests."""
    (manifest,) = json.loads(files["index.json"])["manifests"]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, *, with_body: bool) -> None:
            *_, what, name = self.path.rstrip("/").split("/")
            digest = manifest["digest"] if what == "manifests" and ":" not in name else name
            body = files.get(f"blobs/{digest.replace(':', '/')}") if what in ("manifests", "blobs") else b""
            self.send_response(404 if body is None else 200)
            kind = manifest["mediaType"] if what == "manifests" else "application/octet-stream"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body or b"")))
            self.send_header("Docker-Content-Digest", digest)
            self.end_headers()
            if with_body and body:
                self.wfile.write(body)

    return Handler


def main() -> None:
    """Serve until killed."""
    archive, port = sys.argv[1:]
    ThreadingHTTPServer(("127.0.0.1", int(port)), handler(contents(Path(archive)))).serve_forever()


if __name__ == "__main__":
    main()

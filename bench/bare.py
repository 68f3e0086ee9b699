"""`python -m bench.bare PORT FOLDER`: a webhook that reads each request and admits it, and does nothing else.

The cost of aiohttp and TLS by themselves; `bench.webhook` measures it beside netdra's.
"""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import msgspec
from aiohttp import web


async def _validate(http: web.Request) -> web.Response:
    uid = msgspec.json.decode(await http.read())["request"]["uid"]
    response = {"uid": uid, "allowed": True}
    body = msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    return web.Response(body=body, content_type="application/json")


async def _ready(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def main(port: int, folder: Path) -> None:
    """Serve until killed."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    app = web.Application()
    app.router.add_post("/validate", _validate)
    app.router.add_get("/readyz", _ready)
    web.run_app(app, host="127.0.0.1", port=port, ssl_context=tls, access_log=None, print=None)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))

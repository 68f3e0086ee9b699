"""Ask a netdra process of the same pod whether it is alive or ready: what a probe of the kubelet runs.

A program of its own that imports nothing of netdra, because the kubelet runs it every few seconds: the image has it as
`netdra-health`, started by Python without its site (`-IS`). The process answers on a unix socket (`netdra.ops.server`),
which no other pod has, even where all pods share the host's network.
"""

import socket
import sys

SOCKET = "/run/netdra/health.sock"
PATHS = {"live": "/healthz", "ready": "/readyz"}
SECONDS = 4.0
"""How long the process may take to answer."""
_USAGE = 2


def ask(path: str, where: str) -> tuple[bool, str]:
    """Ask the process: whether it answers yes, and its text.

    Args:
        path: of `PATHS`.
        where: the socket.
    """
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(SECONDS)
            client.connect(where)
            client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            answer = b""
            while chunk := client.recv(65536):
                answer += chunk
    except FileNotFoundError:
        return False, f"{where} is not there: netdra has not begun, or listens elsewhere (--health-socket)"
    except ConnectionRefusedError:
        return False, f"{where}: connection refused: netdra has ended"
    except TimeoutError:
        return False, f"{where}: no answer in {SECONDS:.0f} s"
    except OSError as problem:
        return False, f"{where}: {problem.strerror or problem}"
    head, _, body = answer.decode(errors="replace").partition("\r\n\r\n")
    return head.split(" ")[1:2] == ["200"], body


def main() -> int:
    """Print what the process states; 0 for yes, 1 for no, 2 for a wrong call."""
    what, *where = sys.argv[1:] or [""]
    if what not in PATHS or len(where) > 1:
        print(f"usage: netdra-health {'|'.join(PATHS)} [SOCKET]  (default: {SOCKET})", file=sys.stderr)
        return _USAGE
    yes, text = ask(PATHS[what], *(where or [SOCKET]))
    print(text)
    return 0 if yes else 1


if __name__ == "__main__":
    sys.exit(main())

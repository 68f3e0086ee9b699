"""The site's pages of codes of errors: one for each part of netdra, from the list that `netdra explain-code` reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netdra.cli.codes import ErrorCode, every

TITLES: Mapping[str, str] = {
    "admission": "the webhook",
    "api-server": "answers of the API server",
    "bundle": "support bundles",
    "cel": "CEL expressions",
    "chain": "the steps of a pod",
    "cli": "commands",
    "cluster": "objects of the cluster",
    "cni": "CNI on the node",
    "cni-plugins": "CNI plugins",
    "console": "the console",
    "controller": "the controller",
    "discovery": "discovery",
    "doctor": "netdra doctor",
    "exposure": "policies",
    "kernel": "the kernel library",
    "kernel-errors": "error numbers of the kernel",
    "kube": "the client of the API server",
    "lab": "netdra lab",
    "model": "objects and their fields",
    "netdra": "other parts",
    "networks": "addresses of PodNetworks",
    "neutron": "Neutron",
    "node": "the driver of a node",
    "nri": "NRI",
    "ops": "files and sockets of processes",
    "review": "reviews of objects",
    "rules": "rules of objects",
    "services": "Services",
    "slices": "ResourceSlices and allocation",
    "steps": "steps",
    "story": "netdra why",
    "topology": "topologies",
    "workers": "workers of checks",
}
_OTHERS = {"7": "cni-plugins", "8": "api-server", "9": "kernel-errors"}


def coded_parts() -> list[str]:
    """The parts of netdra with codes, as their pages are called."""
    return sorted({_part(code) for code in every().values()})


def list_of_pages() -> str:
    """The end of the page on codes: the pages of all parts."""
    return "\n## Pages\n\n" + "".join(f"- [{TITLES[part]}](codes/{part}.md)\n" for part in coded_parts())


def page_of_codes(part: str) -> str:
    """The page of a part: a section for each code."""
    own = [code for code in every().values() if _part(code) == part]
    title = (
        f"# Codes: {TITLES[part]}\n\nThe [page on codes](../codes.md) shows where they are. `{{name}}` is a value.\n"
    )
    return "\n".join([title, *(line for code in own for line in _section(code))])


def _part(code: ErrorCode) -> str:
    top, _, below = code.file.partition("/")
    return _OTHERS.get(code.code[2]) or (top if below else "netdra")


def _section(code: ErrorCode) -> Iterator[str]:
    yield from (f"## {code.code}", "")
    yield from _list("Cause", code.texts or ("It is in the text before the code.",))
    yield from _list("Next step", code.hints)
    if (example := code.example) is not None:
        yield from ("Wrong:", "", *_block(example.wrong), "Right:", "", *_block(example.right))
        yield from ("`netdra validate` reports:", "", *_block(example.said))


def _list(title: str, texts: tuple[str, ...]) -> Iterator[str]:
    if texts:
        yield from (f"{title}:", "", *(f"- {_quoted(text)}" for text in texts), "")


def _quoted(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _block(text: str) -> Iterator[str]:
    yield from ("````", text.rstrip("\n"), "````", "")

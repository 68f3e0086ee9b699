// The versions of a folder with several sites; `python3 -m release site` writes them. A site of its own has no list.
"use strict";
window.netdraVersions = [];

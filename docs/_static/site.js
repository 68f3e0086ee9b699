// Copy buttons, labels of narrow tables, tasks above the results of a search, and a list of versions if there are several.
// Nothing is fetched.
"use strict";

// A page that was opened as a file must not read other files, which Sphinx's search does for its summaries.
if (location.protocol === "file:") { DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false; }

function copy(text, button) {
  const done = () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500); };
  if (navigator.clipboard && window.isSecureContext) { navigator.clipboard.writeText(text).then(done); return; }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  done();
}

function addCopyButtons() {
  for (const block of document.querySelectorAll("div.highlight")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    const code = block.querySelector("pre");
    button.addEventListener("click", () => copy(code.textContent, button));
    block.append(button);
  }
}

function labelCells() {
  for (const table of document.querySelectorAll("table.docutils")) {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.children].forEach((cell, at) => cell.setAttribute("data-label", heads[at] || ""));
    }
  }
}

// The tasks of which a word begins as the query, or one of the query's words, does.
function tasksFor(query) {
  const asked = query.toLowerCase().trim();
  if (!asked) { return []; }
  const words = asked.split(/[\s-]+/).filter((word) => word.length > 2);
  const rank = (task) => {
    if (task.words.includes(asked)) { return 3; }
    if (task.words.some((word) => word.startsWith(asked))) { return 2; }
    return words.length && words.every((word) => task.words.some((each) => each.split(/[\s-]+/).some((one) => one.startsWith(word)))) ? 1 : 0;
  };
  return window.netdraTasks.map((task) => [rank(task), task]).filter(([found]) => found)
    .sort((a, b) => b[0] - a[0]).map(([, task]) => task);
}

function showTasks() {
  const results = document.getElementById("search-results");
  const found = results ? tasksFor(new URLSearchParams(location.search).get("q") || "") : [];
  if (!found.length) { return; }
  const box = document.createElement("div");
  box.className = "tasks";
  const title = document.createElement("h2");
  title.textContent = "Tasks";
  const list = document.createElement("ul");
  for (const task of found) {
    const link = document.createElement("a");
    link.href = task.page;
    link.textContent = task.title;
    const entry = document.createElement("li");
    entry.append(link);
    list.append(entry);
  }
  box.append(title, list);
  results.before(box);
}

// A version is the name of its site's folder. A page that another version does not have leads to its first page.
function showVersions() {
  const versions = window.netdraVersions, place = document.querySelector(".sidebar-brand");
  if (versions.length < 2 || !place) { return; }
  const root = new URL(document.documentElement.dataset.content_root, location.href);
  const own = decodeURIComponent(root.pathname.split("/").at(-2));
  const page = decodeURIComponent(location.pathname.slice(root.pathname.length)) || "index.html";
  const list = document.createElement("select");
  list.className = "versions";
  list.setAttribute("aria-label", "Version");
  for (const { version } of versions) { list.append(new Option(version, version, false, version === own)); }
  list.addEventListener("change", () => {
    const chosen = versions.find(({ version }) => version === list.value);
    const target = chosen.pages.includes(page) ? page : "index.html";
    location.href = new URL(`../${encodeURIComponent(chosen.version)}/${target}`, root);
  });
  place.after(list);
}

function start() { showVersions();  addCopyButtons(); labelCells(); showTasks(); }
if (document.readyState === "loading") { document.addEventListener("DOMContentLoaded", start); } else { start(); }

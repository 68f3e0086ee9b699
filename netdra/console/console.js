// Brings the page up to date where it differs when the server says that the cluster changed. The page works without it.
"use strict";
(() => {
  const main = document.getElementById("main");
  const status = document.getElementById("live");
  const say = (text) => {
    if (status) status.textContent = text;
  };

  // Times: as the server writes them, and once more every few seconds, by the cluster's clock.
  let ahead = main.dataset.now ? Date.parse(main.dataset.now) - Date.now() : 0;
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  const age = (time) => {
    const seconds = Math.max(0, Math.floor((Date.now() + ahead - Date.parse(time)) / 1000));
    const unit = units.find(([size]) => seconds >= size);
    return (unit ? Math.floor(seconds / unit[0]) + " " + unit[1] : seconds + " s") + " ago";
  };
  const refresh = () => {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const text = age(time.dateTime);
      if (!Number.isNaN(Date.parse(time.dateTime)) && time.textContent !== text) time.textContent = text;
    }
  };
  setInterval(refresh, 5000);

  // Only what differs is changed, so nothing flickers, and focus, scrolling and open parts stay.
  const alike = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName && one.namespaceURI === other.namespaceURI;
  const update = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (old.nodeName === "FORM") return;
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const wanted = [...fresh.childNodes];
    wanted.forEach((child, at) => {
      const present = old.childNodes[at];
      if (!present) old.append(child);
      else if (alike(present, child)) update(present, child);
      else present.replaceWith(child);
    });
    while (old.childNodes.length > wanted.length) old.lastChild.remove();
  };

  let loading = false;
  let again = false;
  const load = () => {
    if (loading) {
      again = true;
      return;
    }
    loading = true;
    again = false;
    const request = new XMLHttpRequest();
    request.open("GET", location.pathname + location.search);
    request.responseType = "document";
    request.onloadend = () => {
      loading = false;
      const fresh = request.status === 200 && request.response && request.response.getElementById("main");
      if (!fresh) {
        say("The page could not be loaded again. Reload it.");
      } else {
        if (fresh.dataset.now) ahead = Date.parse(fresh.dataset.now) - Date.now();
        update(main, document.adoptNode(fresh));
        say("Updated " + new Date().toLocaleTimeString());
      }
      if (again) load();
    };
    request.send();
  };

  document.addEventListener("keydown", (event) => {
    const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement && document.activeElement.tagName);
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const search = document.getElementById("search");
    search.focus();
    search.select();
  });

  if (!main.dataset.live) return;
  const of = encodeURIComponent(location.pathname + location.search);
  const source = new EventSource("/live?of=" + of + "&since=" + encodeURIComponent(main.dataset.version || ""));
  source.addEventListener("changed", load);
  source.addEventListener("lost", () => say("The cluster cannot be read just now."));
  source.addEventListener("error", () => source.readyState === EventSource.CLOSED && say("Not live. Reload the page."));
  addEventListener("pagehide", () => source.close());
  source.addEventListener("open", () => say("Live"));
})();

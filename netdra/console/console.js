// Loads the page's content again when the server says that the cluster changed. The page works without it.
"use strict";
(() => {
  const status = document.getElementById("live");
  const say = (text) => {
    status.textContent = text;
  };
  let loading = false;
  let again = false;

  // The element that has the focus is found again by what it leads to.
  const focused = () => {
    const active = document.activeElement;
    if (!active || !document.getElementById("main").contains(active)) return null;
    return active.getAttribute("href") || active.getAttribute("name");
  };
  const focus = (main, key) => {
    const found = [...main.querySelectorAll("a[href], input, select, button")].find(
      (element) => (element.getAttribute("href") || element.getAttribute("name")) === key && element.tabIndex >= 0,
    );
    if (found) found.focus({ preventScroll: true });
  };
  const isTyping = () => ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement && document.activeElement.tagName);

  const load = () => {
    if (loading || isTyping()) {
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
        const main = document.getElementById("main");
        const key = focused();
        main.replaceChildren(...fresh.childNodes);
        if (key) focus(main, key);
        say("Updated " + new Date().toLocaleTimeString());
      }
      if (again) load();
    };
    request.send();
  };

  document.addEventListener("focusout", () => again && setTimeout(load));
  const since = document.getElementById("main").dataset.version || "";
  const of = encodeURIComponent(location.pathname + location.search);
  const source = new EventSource("/live?of=" + of + "&since=" + encodeURIComponent(since));
  source.addEventListener("changed", load);
  source.addEventListener("lost", () => say("The cluster cannot be read just now."));
  source.addEventListener("error", () => source.readyState === EventSource.CLOSED && say("Not live. Reload the page."));
  source.addEventListener("open", () => say("Live"));
})();

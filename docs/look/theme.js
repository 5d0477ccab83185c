// Light or dark is chosen once: the explorer gets the choice of the site.

(() => {
  const KEY = "fragmenta-theme"; // where the explorer keeps its own
  const chosen = () => (document.body.dataset.mdColorScheme === "slate" ? "dark" : "light");
  let before = chosen();
  new MutationObserver(() => {
    if (chosen() === before) return;
    before = chosen();
    try {
      localStorage.setItem(KEY, before);
    } catch {
      return; // storage may be closed to a page on the file system
    }
    for (const frame of document.querySelectorAll(".fm-window iframe")) frame.src = frame.src;
  }).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
  document.querySelector(".md-search")?.setAttribute("aria-label", "search");
})();

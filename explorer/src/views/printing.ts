// The printed page: the title, the facts and the whole picture, in light colours, then what
// is known of the pinned element and the tab that is open.

import { byId, h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import type { Figure } from "./figure.js";

/** The card of the pinned element, and the panel of the tab, without what is for pressing. */
function copies({ state }: Explorer): HTMLElement[] {
  const shown = [byId("panel"), ...(state.pinned ? [byId("element")] : [])].reverse();
  return shown.map((each) => {
    const copy = h("section", { class: "on-paper" });
    copy.innerHTML = each.innerHTML;
    for (const named of copy.querySelectorAll("[id]")) named.removeAttribute("id");
    for (const tool of copy.querySelectorAll("button, .controls, .own")) tool.remove();
    return copy;
  });
}

export function listenToPrinting(explorer: Explorer, figure: Figure): void {
  const page = h("div", { id: "printed", "aria-hidden": "true" });
  document.querySelector(".about")!.after(page);
  const root = document.documentElement;
  let theme: string | undefined;
  window.addEventListener("beforeprint", () => {
    theme = root.dataset.theme;
    root.dataset.theme = "light";
    explorer.update({});
    page.innerHTML = figure.svg();
    const svg = page.querySelector("svg")!;
    const size = ["width", "height"].map((name) => parseFloat(svg.getAttribute(name)!));
    if (!svg.hasAttribute("viewBox")) svg.setAttribute("viewBox", `0 0 ${size.join(" ")}`);
    svg.removeAttribute("width");
    svg.removeAttribute("height");
    page.append(...copies(explorer));
  });
  window.addEventListener("afterprint", () => {
    page.replaceChildren();
    if (theme === undefined) delete root.dataset.theme;
    else root.dataset.theme = theme;
    explorer.update({});
  });
}

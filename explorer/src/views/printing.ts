// The printed page: the title, the facts and the whole picture, in light colours.

import { h } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import type { Figure } from "./figure.js";

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
  });
  window.addEventListener("afterprint", () => {
    page.replaceChildren();
    if (theme === undefined) delete root.dataset.theme;
    else root.dataset.theme = theme;
    explorer.update({});
  });
}

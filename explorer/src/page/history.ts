// The address and the Back button.  The address always says what is shown.  Picking an
// instruction is a step that Back undoes; other changes replace the address.

import { byId } from "./dom.js";
import type { Explorer } from "./explorer.js";

/** The address that the page wrote last; another is a link that is about to open. */
let last = "";

export function keepAddress(explorer: Explorer): void {
  last = location.hash;
  // To write an address takes a browser as long as to draw: not at every step of a zoom.
  explorer.listen((change) => change !== "view" && writeAddress(explorer));
  window.addEventListener("hashchange", () => {
    last = location.hash;
    explorer.open(last);
  });
  // "Skip to the picture" moves the focus; it is not a link to an instruction.
  document.querySelector(".skip")!.addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
}

export function writeAddress(explorer: Explorer): void {
  const hash = explorer.hash;
  const { picked } = explorer;
  explorer.picked = false;
  if (location.hash === hash || location.hash !== last) return;
  try {
    if (picked) history.pushState(null, "", hash);
    else history.replaceState(null, "", hash);
    last = location.hash;
  } catch {
    // A page inside another may not have an address of its own.
  }
}

// What of the link could not be shown?  It stands above the picture until it is closed.

import { byId, h } from "./dom.js";

const box = () => byId("notice");

export function showNotice(complaints: readonly string[]): void {
  box().hidden = !complaints.length;
  box().replaceChildren();
  if (!complaints.length) return;
  const close = h(
    "button",
    { type: "button", "aria-label": "Close", onclick: () => void closeNotice() },
    "×",
  );
  box().append(
    h("strong", {}, "This link is not right"),
    close,
    ...complaints.map((each) => h("p", {}, each)),
  );
}

/** Whether there was something to close. */
export function closeNotice(): boolean {
  if (box().hidden) return false;
  showNotice([]);
  return true;
}

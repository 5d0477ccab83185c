// A notice about what a link names and the page cannot show.  It is above the picture
// until it is closed.

import { byId, h } from "./dom.js";

const box = () => byId("notice");

/** Complaints are wrong; remarks only say what is shown. */
export function showNotice(complaints: readonly string[], remarks: readonly string[] = []): void {
  const said = [...remarks, ...complaints];
  const wrong = complaints.length > 0;
  box().hidden = !said.length;
  box().classList.toggle("wrong-link", wrong);
  box().replaceChildren();
  if (!said.length) return;
  const close = h(
    "button",
    { type: "button", "aria-label": "Close", onclick: () => void closeNotice() },
    "×",
  );
  const title = wrong ? "This link is not right" : "About this link";
  box().append(h("strong", {}, title), close, ...said.map((each) => h("p", {}, each)));
}

/** Remarks have been read when somebody goes on; complaints stay until they are closed. */
export function closeRemarks(): void {
  if (!box().classList.contains("wrong-link")) closeNotice();
}

/** Whether there was something to close. */
export function closeNotice(): boolean {
  if (box().hidden) return false;
  showNotice([]);
  return true;
}

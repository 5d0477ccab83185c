// On a narrow screen one of the parts is seen at a time.

import { byId } from "../../src/page/dom.js";
import type { Session } from "../session/session.js";

const buttons = () => [...document.querySelectorAll<HTMLButtonElement>("#panes button")];

export function showPane(name: string): void {
  document.body.dataset.pane = name;
  for (const each of buttons()) each.setAttribute("aria-pressed", String(each.dataset.pane === name));
}

export function listenToPanes(session: Session): void {
  for (const button of buttons()) {
    button.addEventListener("click", () => {
      showPane(button.dataset.pane!);
      if (button === byId("product-pane")) session.update({ product: true });
      else session.changed();
    });
  }
}

// Animates the data flow: what is multiplied flies from A and B into D.

import { byId, h } from "../page/dom.js";
import type { Figure } from "./figure.js";
import type { Spot } from "../drawing/highlight.js";

export interface Flow {
  /** The elements that come together, each with what it says. */
  from: { spot: Spot; text: string }[];
  to: Spot;
}

/** Where all of the picture is in the window, and nobody asked for less motion. */
export function fly(figure: Figure, { from, to }: Flow, duration: number): void {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (still || byId("figure").classList.contains("movable")) return;
  const end = figure.pointOf(to);
  for (const { spot, text } of from) {
    const start = figure.pointOf(spot);
    if (!start || !end) continue;
    const chip = h("span", { class: "flying", "aria-hidden": "true" }, text);
    document.body.append(chip);
    const at = ({ x, y }: { x: number; y: number }) =>
      `translate(${x}px, ${y}px) translate(-50%, -50%)`;
    const frames = [
      { transform: at(start), opacity: 1 },
      { transform: at(end), opacity: 1, offset: 0.85 },
      { transform: at(end), opacity: 0 },
    ];
    const flight = chip.animate(frames, { duration, easing: "ease-in-out" });
    flight.onfinish = flight.oncancel = () => chip.remove();
  }
}

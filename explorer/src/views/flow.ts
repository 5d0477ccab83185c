// Animates the data flow: what is multiplied flies from A and B into D.

import { byId, h } from "../page/dom.js";
import type { Figure } from "./figure.js";
import type { Spot } from "../drawing/highlight.js";

export interface Flow {
  /** The elements that come together, each with what it says. */
  from: { spot: Spot; text: string }[];
  to: Spot;
}

const LETTER = 8; // pixels of a letter of a chip
const EDGE = 12; // pixels around it

interface Point {
  x: number;
  y: number;
}

/** Where a chip meets the edge of an element: what is written in it stays in sight. */
function atEdge(from: Point, goal: Point & { width: number; height: number }, wide: number): Point {
  const [dx, dy] = [goal.x - from.x, goal.y - from.y];
  const [near, high] = [goal.width / 2 + wide / 2 + EDGE, goal.height / 2 + EDGE];
  const left = Math.min(near / Math.max(1, Math.abs(dx)), high / Math.max(1, Math.abs(dy)), 1);
  return { x: goal.x - left * dx, y: goal.y - left * dy };
}

/** Where all of the picture is in the window, and nobody asked for less motion. */
export function fly(figure: Figure, { from, to }: Flow, duration: number): void {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (still || byId("figure").classList.contains("movable")) return;
  const goal = figure.boxOf(to);
  for (const { spot, text } of from) {
    const start = figure.pointOf(spot);
    if (!start || !goal) continue;
    const end = atEdge(start, goal, text.length * LETTER);
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

// Registers by lane, as they are written out.

import type { Register } from "./head.js";
import { among, wordsOf, type Held, type Recording } from "./recording.js";
import { typeWritten, type Values } from "./values.js";

/** The type in which a value was written; before the first step, the declared one. */
export function typeHeld(run: Recording, register: Register, held: Held): string {
  return held.step < 0 ? register.type : typeWritten(run.site(held.step), register);
}

/** What is shown of a lane that has not written a register, and of one that is hidden:
 * its product is in flight. */
export const NOTHING = "–";
export const POISONED = "poison";

/** What one lane holds. */
export function laneText(
  run: Recording,
  values: Values,
  register: Register,
  held: Held,
  lane: number,
  type = typeHeld(run, register, held),
): string {
  const { words } = run.columns;
  if (!among(held.lanes, lane)) return NOTHING;
  if (run.isHidden(held.at)) return POISONED;
  if (register.type === "pred") return (words[held.at] >>> lane) & 1 ? "true" : "false";
  const each = wordsOf(register) / 32;
  if (each < 4) {
    const own = words.subarray(held.at + lane * each, held.at + (lane + 1) * each);
    return values.text(type, own[0], ...own.subarray(1));
  }
  // Of 128 bits, the lower halves of all lanes come first.
  const [low, high] = [held.at + 2 * lane, held.at + 64 + 2 * lane];
  return values.text(type, words[low], words[low + 1], words[high], words[high + 1]);
}

// The nearest of the words that are allowed, and lists in words.

/** How many letters must change, be added or left out to make one word of another. */
export function distance(one: string, other: string): number {
  let before = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let i = 1; i <= one.length; i++) {
    const now = [i];
    for (let j = 1; j <= other.length; j++) {
      const changed = before[j - 1] + +(one[i - 1] !== other[j - 1]);
      now.push(Math.min(changed, before[j] + 1, now[j - 1] + 1));
    }
    before = now;
  }
  return before[other.length];
}

/** The allowed word that is most like the given one; empty if none is like it. */
export function nearest(given: string, allowed: Iterable<string>): string {
  const word = given.toLowerCase().slice(0, 60);
  let [best, least] = ["", Math.max(1, Math.floor(word.length / 2.5)) + 1];
  for (const each of allowed) {
    if (Math.abs(each.length - word.length) >= least) continue;
    const far = distance(word, each.toLowerCase());
    if (far < least) [best, least] = [each, far];
  }
  return best;
}

/** Such as ``A, B or D``. */
export function oneOf(names: readonly string[], word = "or"): string {
  const most = names.slice(0, -1).join(", ");
  return most ? `${most} ${word} ${names.at(-1)}` : (names[0] ?? "none");
}

/** What was given, not longer than a line. */
export function shortened(text: string): string {
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}

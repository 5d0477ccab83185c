// The nearest of the words that are allowed, and lists in words.

/** How alike two words are, from 0 to 1: twice the letters of common parts, by all
 * letters.  It is what Python's difflib says, so that page and command name the same. */
export function alike(one: string, other: string): number {
  const common = (a: number, b: number, c: number, d: number): number => {
    let [first, second, size] = [a, c, 0];
    for (let i = a; i < b; i++) {
      for (let j = c; j < d; j++) {
        let long = 0;
        while (i + long < b && j + long < d && one[i + long] === other[j + long]) long++;
        if (long > size) [first, second, size] = [i, j, long];
      }
    }
    if (!size) return 0;
    return common(a, first, c, second) + size + common(first + size, b, second + size, d);
  };
  const all = one.length + other.length;
  return all ? (2 * common(0, one.length, 0, other.length)) / all : 1;
}

const LEAST = 0.5;
const SHAPE = /^m\d+n\d+(k\d+)?$/;

/** The allowed word that is most like the given one; empty if none is like it.  Of a
 * shape it is the one whose numbers are nearest. */
export function nearest(given: string, allowed: Iterable<string>): string {
  const word = given.toLowerCase().slice(0, 60);
  const shape = SHAPE.test(word) ? nearestShape(word, allowed) : "";
  if (shape) return shape;
  let [best, most] = ["", 0];
  for (const each of allowed) {
    const small = Math.min(each.length, word.length);
    if ((2 * small) / (each.length + word.length) < Math.max(LEAST, most)) continue;
    const found = alike(each.toLowerCase(), word);
    if (found >= LEAST && (found > most || (found === most && each > best))) [best, most] = [each, found];
  }
  return best;
}

function nearestShape(word: string, allowed: Iterable<string>): string {
  const sizes = (text: string) => (text.match(/\d+/g) ?? []).map(Number);
  const wanted = sizes(word);
  const same = [...allowed].filter((each) => SHAPE.test(each) && sizes(each).length === wanted.length);
  const far = (each: string) => sizes(each).reduce((sum, size, at) => sum + Math.abs(size - wanted[at]), 0);
  const order = (one: string, other: string) =>
    far(one) - far(other) || sizes(one).reduce((first, size, at) => first || size - sizes(other)[at], 0);
  return same.sort(order)[0] ?? "";
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

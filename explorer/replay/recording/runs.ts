// The runs of a page: the first, and those beside it, which have what is not the same.

import { inflate, split } from "./columns.js";
import { readHead, type Head } from "./head.js";
import { Recording } from "./recording.js";

/** Elements of the page by their names. */
export type Texts = (name: string) => string | null | undefined;

export async function readRuns(texts: Texts): Promise<Recording[]> {
  const runs: Recording[] = [];
  for (let number = 0; ; number++) {
    const of = number ? `-${number}` : "";
    const text = texts(`replay-head${of}`);
    if (!text) return runs;
    const head = readHead(text, runs[0]?.head);
    const buffer = await inflate(texts(`replay-data${of}`)!);
    runs.push(new Recording(head, split(head, buffer, runs[0]?.columns)));
  }
}

/** What a run is called: a schedule that is a number is a seed. */
export function runName({ name, schedule }: Head): string {
  const said = name || schedule;
  return /^\d+$/.test(said) ? `seed ${said}` : said;
}

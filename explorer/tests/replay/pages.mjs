// Pages with a recording in them, in a folder of their own, for Node and for a browser.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { buildSync } from "esbuild";
import { filled } from "./made.mjs";

const here = dirname(fileURLToPath(import.meta.url));
export const SHELL = join(here, "../../../src/fragmenta/inspect/view/replay.html");

export const folder = mkdtempSync(join(tmpdir(), "replay-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

/** The address of a page with this recording. */
export function written(name, recording) {
  const path = join(folder, `${name}.html`);
  writeFileSync(path, filled(readFileSync(SHELL, "utf8"), recording));
  return pathToFileURL(path).href;
}

/** What modules of replay/ export. */
export async function modules(...names) {
  const contents = names.map((name) => `export * from "./${name}.ts";`).join("\n");
  const outfile = join(folder, `modules-${names.length}.mjs`);
  const stdin = { contents, resolveDir: join(here, "../../replay") };
  buildSync({ stdin, bundle: true, format: "esm", outfile, logLevel: "error" });
  return import(pathToFileURL(outfile).href);
}

/** Colours and types, as the page has them. */
export const shared = () =>
  JSON.parse(/id="shared">([^<]*)</.exec(readFileSync(SHELL, "utf8"))[1]);

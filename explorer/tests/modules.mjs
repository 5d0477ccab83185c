// The page's own modules and its catalogue, as Node can load them.

import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { inflateRawSync } from "node:zlib";
import { buildSync } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const page =
  process.env.EXPLORER_PAGE ?? join(here, "../../src/fragmenta/inspect/view/explorer.html");

function catalogueOf(html) {
  const [, text] = /id="catalogue">([^<]*)</.exec(html);
  return JSON.parse(inflateRawSync(Buffer.from(text, "base64")));
}

export const catalogue = catalogueOf(readFileSync(page, "utf8"));

/** What some modules of the page export. */
export async function modules(...names) {
  const folder = mkdtempSync(join(tmpdir(), "explorer-"));
  const contents = names.map((name) => `export * from "./${name}.ts";`).join("\n");
  const outfile = join(folder, "modules.mjs");
  const stdin = { contents, resolveDir: join(here, "../src") };
  buildSync({ stdin, bundle: true, format: "esm", outfile, logLevel: "error" });
  const loaded = await import(pathToFileURL(outfile).href);
  rmSync(folder, { recursive: true });
  return loaded;
}

/** One hash of whole numbers. */
export function digest(...arrays) {
  const hash = createHash("sha256");
  for (const array of arrays) hash.update(Buffer.from(Int32Array.from(array).buffer));
  return hash.digest("hex");
}

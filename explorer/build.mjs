// Builds the page: checks the types, bundles the script, fills the shell in, and
// has Python put the records into it.  PYTHON names the interpreter.  With --script, the
// page keeps the records that it has, which is enough after a change of the script.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const root = dirname(here);
const page = join(root, "src/fragmenta/view/explorer.html");
const read = (name) => readFileSync(join(here, "src", name), "utf8");

/** One number for all sources, so that a stale page can be told from a fresh one. */
function digest() {
  const hash = createHash("sha256");
  const every = readdirSync(join(here, "src"), { recursive: true, withFileTypes: true });
  const files = every
    .filter((each) => each.isFile())
    .map((each) => relative(join(here, "src"), join(each.parentPath, each.name)));
  for (const name of files.sort()) hash.update(`${name}\0${read(name)}\0`);
  return hash.digest("hex");
}

function bundle() {
  const options = { bundle: true, minify: true, write: false, target: "es2022" };
  const entry = join(here, "src/main.ts");
  const { outputFiles } = buildSync({
    ...options,
    entryPoints: [entry],
    charset: "utf8",
  });
  return outputFiles[0].text.trim().replaceAll("</script", "<\\/script");
}

function style() {
  const options = { bundle: true, minify: true, write: false };
  const { outputFiles } = buildSync({
    ...options,
    entryPoints: [join(here, "src/style.css")],
  });
  return outputFiles[0].text.trim();
}

function python() {
  if (process.env.PYTHON) return process.env.PYTHON;
  const own = join(root, ".venv/bin/python");
  return existsSync(own) ? own : "python3";
}

execFileSync(join(here, "node_modules/.bin/tsc"), ["--noEmit"], {
  cwd: here,
  stdio: "inherit",
});
const slots = { DIGEST: digest(), STYLE: style(), SCRIPT: bundle() };
const filled = read("page.html").replace(
  /%(DIGEST|STYLE|SCRIPT)%/g,
  (_, name) => slots[name],
);
if (process.argv.includes("--script")) {
  const record = /(?<=<script type="text\/plain" id="(\w+)">)[^<]*/g;
  const kept = new Map(
    [...readFileSync(page, "utf8").matchAll(record)].map(([text, id]) => [id, text]),
  );
  writeFileSync(page, filled.replace(record, (_, id) => kept.get(id)));
} else {
  writeFileSync(page, filled);
  const environment = { ...process.env, PYTHONPATH: join(root, "src") };
  execFileSync(python(), ["-m", "fragmenta.view.explorer_data"], {
    env: environment,
    stdio: "inherit",
  });
}
console.log(`${page}: ${Math.round(readFileSync(page).length / 1024)} KiB`);

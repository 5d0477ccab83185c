// Builds the pages.  The explorer: checks the types, bundles the script, fills the shell
// in, and has Python put the records into it.  PYTHON names the interpreter.  With --script,
// the page keeps the records that it has, which is enough after a change of the script.
// The replay: the same from replay/, with the colours and types of the explorer's records;
// Python puts a recording into it when there is one.  --replay builds it alone.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { inflateRawSync } from "node:zlib";
import { buildSync } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const root = dirname(here);
const page = join(root, "src/fragmenta/inspect/view/explorer.html");
const replay = join(root, "src/fragmenta/inspect/view/replay.html");
const read = (name) => readFileSync(join(here, name), "utf8");

/** The files of a folder, by their names in it. */
function filesOf(folder) {
  const every = readdirSync(join(here, folder), { recursive: true, withFileTypes: true });
  return every
    .filter((each) => each.isFile())
    .map((each) => relative(join(here, folder), join(each.parentPath, each.name)));
}

/** One number for all sources, so that a stale page can be told from a fresh one. */
function digest(names, folder = ".") {
  const hash = createHash("sha256");
  for (const name of names.sort()) hash.update(`${name}\0${read(join(folder, name))}\0`);
  return hash.digest("hex");
}

/** What a script or a style becomes, and the files that it is made of. */
function bundle(entry, more = {}) {
  const { outputFiles, metafile } = buildSync({
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    absWorkingDir: here,
    entryPoints: [entry],
    ...more,
  });
  return { text: outputFiles[0].text.trim(), inputs: Object.keys(metafile.inputs) };
}

function built(folder) {
  const script = bundle(`${folder}/main.ts`, { target: "es2022", charset: "utf8" });
  const style = bundle(`${folder}/style.css`);
  return {
    SCRIPT: script.text.replaceAll("</script", "<\\/script"),
    STYLE: style.text,
    inputs: [...script.inputs, ...style.inputs],
  };
}

function fill(shell, slots) {
  return read(shell).replace(/%([A-Z]+)%/g, (_, name) => slots[name]);
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

function buildExplorer() {
  const filled = fill("src/page.html", { DIGEST: digest(filesOf("src"), "src"), ...built("src") });
  if (process.argv.includes("--script")) {
    const record = /(?<=<script type="text\/plain" id="(\w+)">)[^<]*/g;
    const kept = new Map(
      [...readFileSync(page, "utf8").matchAll(record)].map(([text, id]) => [id, text]),
    );
    writeFileSync(page, filled.replace(record, (_, id) => kept.get(id)));
    return;
  }
  writeFileSync(page, filled);
  const environment = { ...process.env, PYTHONPATH: join(root, "src") };
  execFileSync(python(), ["-m", "fragmenta.inspect.view.explorer_data"], {
    env: environment,
    stdio: "inherit",
  });
}

/** The replay takes parts of the explorer's script; which, it says itself. */
function buildReplay() {
  const { SCRIPT, STYLE, inputs } = built("replay");
  const own = filesOf("replay").map((name) => `replay/${name}`);
  const sources = [...new Set([...own, ...inputs])].sort();
  const [, packed] = /id="catalogue">([^<]*)</.exec(readFileSync(page, "utf8"));
  const { inks, lanes, types } = JSON.parse(inflateRawSync(Buffer.from(packed, "base64")));
  const slots = { SCRIPT, STYLE, SOURCES: sources.join(" "), DIGEST: digest(sources) };
  const shared = JSON.stringify({ inks, lanes, types });
  writeFileSync(replay, fill("replay/page.html", { ...slots, SHARED: shared }));
}

if (!process.argv.includes("--replay")) buildExplorer();
buildReplay();
for (const each of [page, replay]) {
  console.log(`${each}: ${Math.round(readFileSync(each).length / 1024)} KiB`);
}

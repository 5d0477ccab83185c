// Runs that Python records, as pages, with what it says about them.

import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { folder } from "./pages.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../../..");
const own = join(root, ".venv/bin/python");
const python = process.env.PYTHON ?? (existsSync(own) ? own : "python3");
const recorded = join(folder, "recorded");

execFileSync(python, ["-m", "tests.view.replay_pages", recorded], {
  cwd: root,
  env: { ...process.env, PYTHONPATH: `${join(root, "src")}:${root}` },
  stdio: ["ignore", "inherit", "inherit"],
});

export const told = JSON.parse(readFileSync(join(recorded, "told.json"), "utf8"));

/** The address of a page. */
export const pageOf = (name) => pathToFileURL(join(recorded, `${name}.html`)).href;

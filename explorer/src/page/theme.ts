// Light or dark: the system's theme, until the user chooses one; then the choice is
// kept.

import { byId } from "./dom.js";
import type { Explorer } from "./explorer.js";

const KEY = "fragmenta-theme";
const root = () => document.documentElement;

/** Before anything is drawn. */
export function applyTheme(): void {
  const kept = stored((storage) => storage.getItem(KEY));
  if (kept === "light" || kept === "dark") root().dataset.theme = kept;
}

export function listenToTheme(explorer: Pick<Explorer, "theme"> & { update(change: object): void }): void {
  byId("theme").addEventListener("click", () => {
    const chosen = explorer.theme.dark ? "light" : "dark";
    root().dataset.theme = chosen;
    stored((storage) => storage.setItem(KEY, chosen));
    explorer.update({});
  });
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", () => explorer.update({}));
}

/** Storage may be closed to a page on the file system: then nothing is kept. */
function stored<T>(use: (storage: Storage) => T): T | null {
  try {
    return use(window.localStorage);
  } catch {
    return null;
  }
}

// Small help with the document.

type Child = Node | string;
type Attributes = Record<string, string | number | boolean | ((event: Event) => void)>;

/** An element with attributes, listeners (``onclick`` …) and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children);
  return element;
}

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

/** Tell people who listen; the region reads itself aloud when it changes. */
export function announce(text: string): void {
  byId("live").textContent = text;
}

/** ``more`` is said besides, where what is copied is not all. */
export async function copy(text: string, what: string, more = ""): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyTheOldWay(text);
  }
  toast(`${what} copied${more}`);
}

/** For browsers that keep the clipboard from pages on the file system. */
function copyTheOldWay(text: string): void {
  const area = h("textarea", { "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** A name and its value, in a list of such. */
export function fact(name: string, value: string, kind = ""): HTMLElement {
  const pair = [h("dt", {}, name), " ", h("dd", {}, value)];
  return h("div", kind ? { class: kind } : {}, ...pair);
}

let fading = 0;

export function toast(text: string): void {
  const box = byId("toast");
  box.textContent = text;
  box.classList.add("shown");
  window.clearTimeout(fading);
  // A sentence takes longer to read than two words.
  const time = Math.max(1800, 70 * text.length);
  fading = window.setTimeout(() => box.classList.remove("shown"), time);
}

export function download(name: string, data: BlobPart, type: string): void {
  const url = URL.createObjectURL(new Blob([data], { type }));
  const link = h("a", { href: url, download: name });
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// The menu that copies or saves a picture, a link or the code.

import { byId, copy, download, toast } from "../page/dom.js";
import type { Explorer } from "../page/explorer.js";
import type { Figure } from "./figure.js";
import { sourceText } from "./tabs.js";

const SCALE = 2; // pixels of a PNG for each of the picture
const LARGEST = 12000; // pixels that a canvas may be wide or high

export class Share {
  private button = byId("share");
  private menu = byId("share-menu");

  constructor(
    private explorer: Explorer,
    private figure: Figure,
  ) {
    const actions: Record<string, () => Promise<void>> = {
      "copy-link": () => copy(location.href, "Link", this.missing),
      "copy-svg": () => copy(figure.svg(), "SVG"),
      "copy-png": () => this.copyPng(),
      "save-png": () => this.savePng(),
      "copy-cuda": () => this.copySource(0, "CUDA"),
      "copy-ptx": () => this.copySource(1, "PTX"),
    };
    for (const [id, act] of Object.entries(actions)) {
      byId(id).addEventListener("click", () => void act());
    }
    this.menu.addEventListener("click", () => this.close(true));
    this.button.addEventListener("click", () =>
      this.menu.hidden ? this.open() : this.close(true),
    );
    this.button.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown") return;
      this.open();
      event.preventDefault();
    });
    this.menu.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("pointerdown", (event) => {
      if (!this.menu.parentElement!.contains(event.target as Node)) this.close();
    });
  }

  private get items(): HTMLElement[] {
    return [...this.menu.querySelectorAll<HTMLElement>("[role=menuitem]")];
  }

  private open(): void {
    this.menu.hidden = false;
    // On a phone the tools scroll: the menu must not be cut by them.
    const { bottom, right } = this.button.getBoundingClientRect();
    const { clientWidth } = document.documentElement;
    this.menu.style.top = `${bottom + 6}px`;
    this.menu.style.right = `${Math.max(8, clientWidth - right)}px`;
    this.button.setAttribute("aria-expanded", "true");
    this.items[0].focus();
  }

  /** Whether there was something to close. */
  close(focus = false): boolean {
    if (this.menu.hidden) return false;
    this.menu.hidden = true;
    this.button.setAttribute("aria-expanded", "false");
    if (focus) this.button.focus();
    return true;
  }

  private key(event: KeyboardEvent): void {
    const { items } = this;
    const at = items.indexOf(document.activeElement as HTMLElement);
    const last = items.length - 1;
    const next = {
      ArrowDown: at === last ? 0 : at + 1,
      ArrowUp: at <= 0 ? last : at - 1,
      Home: 0,
      End: last,
    }[event.key];
    if (event.key === "Tab") this.close();
    if (event.key === "Escape") {
      this.close(true);
      event.stopPropagation(); // what is pinned stays
    }
    if (next === undefined) return;
    items[next].focus();
    event.preventDefault();
  }

  // ── what is shared ────────────────────────────────────────────────────────

  /** What a link does not hold. */
  private get missing(): string {
    const { kind } = this.explorer.own;
    const most = `it holds up to 64 x 64 of them`;
    const without = kind === "only here" ? `, without your own values: ${most}` : "";
    const here = location.protocol === "file:" ? "; it opens on this machine only" : "";
    return without + here;
  }

  private async copySource(language: 0 | 1, what: string): Promise<void> {
    await copy(await sourceText(this.explorer, language), what);
  }

  private async copyPng(): Promise<void> {
    try {
      const item = new ClipboardItem({ "image/png": png(this.figure.svg()) });
      await navigator.clipboard.write([item]);
      toast("PNG copied");
    } catch {
      await this.savePng();
      toast("The browser takes no picture into the clipboard: PNG saved");
    }
  }

  private async savePng(): Promise<void> {
    const name = `${this.explorer.op.name.replace(/[^\w.-]+/g, "_")}.png`;
    download(name, await png(this.figure.svg()), "image/png");
    toast(`${name} saved`);
  }
}

/** A picture as the browser draws it. */
async function png(svg: string): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const { naturalWidth: width, naturalHeight: height } = image;
  const scale = Math.min(SCALE, LARGEST / Math.max(width, height));
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done, failed) =>
    canvas.toBlob(
      (blob) => (blob ? done(blob) : failed(new Error("no PNG was made"))),
      "image/png",
    ),
  );
}

// A list of many rows of one height, of which only those that are seen exist.  A row that
// stays is kept and changed, not made again.

import { arrange } from "./sparing.js";

export class Rows {
  private inner = document.createElement("div");
  private made = new Map<string, HTMLElement>();
  private from = 0;
  // Asking the box each time would make the browser lay the page out.
  private top = 0;
  private seen = 0;
  private moving = false;

  /**
   * ``name`` says what a row is about: it is the same row wherever it stands.  ``row``
   * changes the element that the row has, or makes it.
   */
  constructor(
    readonly box: HTMLElement,
    readonly height: number,
    public count: number,
    private name: (index: number) => string,
    private row: (index: number, old?: HTMLElement) => HTMLElement,
  ) {
    this.inner.className = "rows";
    box.append(this.inner);
    this.resize(count);
    box.addEventListener("scroll", () => this.moved(), { passive: true });
    new ResizeObserver(() => {
      this.seen = this.box.clientHeight;
      this.show();
    }).observe(box);
    this.seen = box.clientHeight;
  }

  private moved(): void {
    if (this.moving) return;
    this.top = this.box.scrollTop;
    if (Math.floor(this.top / this.height) !== this.from) this.show();
  }

  /** The box moves when all is drawn: at once, it would be laid out for that alone. */
  scrollTo(top: number): void {
    this.top = Math.max(0, Math.min(top, this.count * this.height - this.seen));
    if (this.moving) return;
    this.moving = true;
    queueMicrotask(() => {
      this.box.scrollTop = this.top;
      this.moving = false;
    });
  }

  resize(count: number): void {
    const height = `${count * this.height}px`;
    this.count = count;
    if (this.inner.style.height !== height) this.inner.style.height = height;
  }

  /** Other rows have the same names from now on. */
  forget(): void {
    this.made.clear();
  }

  show(): void {
    const first = Math.floor(this.top / this.height);
    this.from = first;
    const seen = Math.ceil(this.seen / this.height) + 1;
    const made = new Map<string, HTMLElement>();
    for (let at = Math.max(0, first - 4); at < Math.min(this.count, first + seen + 4); at++) {
      const name = this.name(at);
      const row = this.row(at, this.made.get(name));
      const top = `${at * this.height}px`;
      if (row.style.top !== top) row.style.top = top;
      made.set(name, row);
    }
    this.made = made;
    arrange(this.inner, [...made.values()]);
  }

  /** Scroll as little as needed, and in the middle if it is far. */
  reveal(index: number): void {
    const { seen, height } = this;
    const top = index * height;
    if (top >= this.top + height && top + 2 * height <= this.top + seen) return;
    this.scrollTo(top - seen * 0.4);
  }
}

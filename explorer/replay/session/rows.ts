// A list of many rows of one height, of which only those that are seen exist.  A row that
// stays is kept and changed, not made again.

import { arrange } from "./sparing.js";

/** Rows beyond the edges while somebody scrolls: the box moves before they are made. */
const SPARE = 8;
/** Rows that are kept at most, also of those that are not seen. */
const MOST = 2000;

export class Rows {
  private inner = document.createElement("div");
  private made = new Map<string, HTMLElement>();
  private from = 0;
  // Asking the box each time would make the browser lay the page out.
  private top = 0;
  private seen = 0;
  private moving = false;
  /** The rows that are in the document. */
  private there: number[] = [];

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
    /** So many rows stay in the document when they are no longer seen: they are laid out. */
    private stay = 0,
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
    if (Math.floor(this.top / this.height) !== this.from) this.show(SPARE);
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

  /** Another list: none of the rows stays. */
  resize(count: number): void {
    const height = `${count * this.height}px`;
    this.count = count;
    this.there = [];
    if (this.inner.style.height !== height) this.inner.style.height = height;
  }

  show(spare = 1): void {
    const first = Math.floor(this.top / this.height);
    this.from = first;
    const seen = Math.ceil(this.seen / this.height) + 1;
    const rows: HTMLElement[] = [];
    this.there = this.wanted(first - spare, first + seen + spare);
    for (const at of this.there) {
      const name = this.name(at);
      const row = this.row(at, this.made.get(name));
      const top = `${at * this.height}px`;
      if (row.style.top !== top) row.style.top = top;
      this.made.set(name, row);
      rows.push(row);
    }
    arrange(this.inner, rows);
    if (this.made.size > MOST) this.made.clear();
  }

  /** The rows that are seen, and of those that were, as many as stay; in their order. */
  private wanted(from: number, until: number): number[] {
    const [begin, end] = [Math.max(0, from), Math.min(this.count, until)];
    const seen = Array.from({ length: Math.max(0, end - begin) }, (_, at) => begin + at);
    const others = this.there.filter((at) => at < begin || at >= end);
    if (others.length > this.stay) return seen;
    return [...others.filter((at) => at < begin), ...seen, ...others.filter((at) => at >= end)];
  }

  /** Scroll as little as needed, and in the middle if it is far. */
  reveal(index: number): void {
    const { seen, height } = this;
    const top = index * height;
    if (top >= this.top + height && top + 2 * height <= this.top + seen) return;
    this.scrollTo(top - seen * 0.4);
  }
}

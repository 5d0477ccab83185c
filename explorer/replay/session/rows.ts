// A list of many rows of one height, of which only those that are seen exist.

export class Rows {
  private inner = document.createElement("div");
  private from = 0;

  constructor(
    readonly box: HTMLElement,
    readonly height: number,
    public count: number,
    private row: (index: number) => HTMLElement,
  ) {
    this.inner.className = "rows";
    box.append(this.inner);
    this.resize(count);
    box.addEventListener("scroll", () => this.moved(), { passive: true });
    new ResizeObserver(() => this.show()).observe(box);
  }

  private moved(): void {
    const first = Math.floor(this.box.scrollTop / this.height);
    if (Math.abs(first - this.from) >= 1) this.show();
  }

  resize(count: number): void {
    this.count = count;
    this.inner.style.height = `${count * this.height}px`;
  }

  show(): void {
    const first = Math.floor(this.box.scrollTop / this.height);
    this.from = first;
    const seen = Math.ceil(this.box.clientHeight / this.height) + 1;
    const rows: HTMLElement[] = [];
    for (let at = Math.max(0, first - 4); at < Math.min(this.count, first + seen + 4); at++) {
      const row = this.row(at);
      row.style.top = `${at * this.height}px`;
      rows.push(row);
    }
    this.inner.replaceChildren(...rows);
  }

  /** Scroll as little as needed, and in the middle if it is far. */
  reveal(index: number): void {
    const { box, height } = this;
    const [top, seen] = [index * height, box.clientHeight];
    if (top >= box.scrollTop + height && top + 2 * height <= box.scrollTop + seen) return;
    box.scrollTop = Math.max(0, top - seen * 0.4);
  }
}

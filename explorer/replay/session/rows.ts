// A list of many rows of one height, of which only those that are seen exist.

export class Rows {
  private inner = document.createElement("div");
  private from = 0;
  // Asking the box each time would make the browser lay the page out.
  private top = 0;
  private seen = 0;

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
    new ResizeObserver(() => {
      this.seen = this.box.clientHeight;
      this.show();
    }).observe(box);
    this.seen = box.clientHeight;
  }

  private moved(): void {
    this.top = this.box.scrollTop;
    if (Math.floor(this.top / this.height) !== this.from) this.show();
  }

  scrollTo(top: number): void {
    this.box.scrollTop = top;
    this.top = this.box.scrollTop;
  }

  resize(count: number): void {
    this.count = count;
    this.inner.style.height = `${count * this.height}px`;
  }

  show(): void {
    const first = Math.floor(this.top / this.height);
    this.from = first;
    const seen = Math.ceil(this.seen / this.height) + 1;
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
    const { seen, height } = this;
    const top = index * height;
    if (top >= this.top + height && top + 2 * height <= this.top + seen) return;
    this.scrollTo(Math.max(0, top - seen * 0.4));
  }
}

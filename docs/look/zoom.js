// Enlarges pictures.  A click opens a picture in the whole window: the wheel or two
// fingers zoom, dragging moves, Escape closes.

(() => {
  const NEAREST = 16;
  const FARTHEST = 0.1;
  /** Below this, letters are too small when a picture is opened. */
  const LEAST = 0.6;

  class Zoom {
    constructor(image) {
      this.image = document.createElement("img");
      this.image.src = image.currentSrc || image.src;
      this.image.alt = image.alt;
      this.image.draggable = false;
      this.pointers = new Map();
      this.dialog = document.createElement("dialog");
      this.dialog.className = "fm-zoom";
      this.dialog.setAttribute("aria-label", image.alt);
      this.dialog.append(this.tools(image), this.image);
      document.body.append(this.dialog);
      this.listen();
      this.dialog.showModal();
      const ready = () => {
        const ratio = image.naturalHeight / image.naturalWidth || 1;
        this.size = [image.naturalWidth || 800, (image.naturalWidth || 800) * ratio];
        this.fit();
        // On a phone, a wide picture that fits cannot be read: begin at its left.
        if (this.scale < LEAST) this.zoom(LEAST / this.scale, this.x, this.dialog.clientHeight / 2);
      };
      if (image.complete) ready();
      else this.image.addEventListener("load", ready);
    }

    tools(image) {
      const bar = document.createElement("nav");
      this.told = document.createElement("output");
      const button = (text, title, act) => {
        const made = document.createElement("button");
        made.type = "button";
        made.textContent = text;
        made.title = title;
        made.setAttribute("aria-label", title);
        made.addEventListener("click", act);
        return made;
      };
      const link = (text, href) => {
        const made = document.createElement("a");
        made.textContent = text;
        made.href = href;
        return made;
      };
      const about = image.closest("figure")?.querySelector("a[href*='explorer.html']");
      bar.append(
        ...(about ? [link("open in the explorer", about.href)] : []),
        link("the file", this.image.src),
        button("−", "smaller (-)", () => this.zoom(1 / 1.4)),
        this.told,
        button("+", "larger (+)", () => this.zoom(1.4)),
        button("fit", "fit the window (0)", () => this.fit()),
        button("close", "close (Escape)", () => this.dialog.close()),
      );
      return bar;
    }

    fit() {
      const { clientWidth: width, clientHeight: height } = this.dialog;
      const top = 48;
      this.scale = Math.min((width - 24) / this.size[0], (height - top - 16) / this.size[1], 4);
      this.x = (width - this.size[0] * this.scale) / 2;
      this.y = top + Math.max(0, (height - top - this.size[1] * this.scale) / 2);
      this.place();
    }

    /** The size is set, not a transform: so the browser draws every size sharply. */
    place() {
      const { style } = this.image;
      style.width = `${this.size[0] * this.scale}px`;
      style.left = `${this.x}px`;
      style.top = `${this.y}px`;
      this.told.textContent = `${Math.round(this.scale * 100)} %`;
    }

    zoom(by, x = this.dialog.clientWidth / 2, y = this.dialog.clientHeight / 2) {
      const scale = Math.min(NEAREST, Math.max(FARTHEST, this.scale * by));
      const ratio = scale / this.scale;
      this.x = x - (x - this.x) * ratio;
      this.y = y - (y - this.y) * ratio;
      this.scale = scale;
      this.place();
    }

    move(dx, dy) {
      this.x += dx;
      this.y += dy;
      this.place();
    }

    listen() {
      const { dialog } = this;
      dialog.addEventListener("close", () => dialog.remove());
      dialog.addEventListener(
        "wheel",
        (event) => {
          event.preventDefault();
          this.zoom(Math.exp(-event.deltaY / 400), event.clientX, event.clientY);
        },
        { passive: false },
      );
      dialog.addEventListener("keydown", (event) => this.key(event));
      dialog.addEventListener("dblclick", (event) => {
        if (!event.target.closest("nav")) this.zoom(2, event.clientX, event.clientY);
      });
      dialog.addEventListener("pointerdown", (event) => {
        if (event.target.closest("nav")) return;
        this.pointers.set(event.pointerId, event);
        dialog.setPointerCapture(event.pointerId);
      });
      dialog.addEventListener("pointermove", (event) => this.drag(event));
      for (const name of ["pointerup", "pointercancel"]) {
        dialog.addEventListener(name, (event) => this.pointers.delete(event.pointerId));
      }
    }

    drag(event) {
      const before = this.pointers.get(event.pointerId);
      if (!before) return;
      const other = [...this.pointers.values()].find((p) => p.pointerId !== event.pointerId);
      if (other) {
        const apart = (p) => Math.hypot(p.clientX - other.clientX, p.clientY - other.clientY);
        const middle = [event.clientX + other.clientX, event.clientY + other.clientY];
        this.zoom(apart(event) / Math.max(1, apart(before)), middle[0] / 2, middle[1] / 2);
      } else {
        this.move(event.clientX - before.clientX, event.clientY - before.clientY);
      }
      this.pointers.set(event.pointerId, event);
    }

    key(event) {
      const far = 60;
      const acts = {
        "+": () => this.zoom(1.4),
        "=": () => this.zoom(1.4),
        "-": () => this.zoom(1 / 1.4),
        0: () => this.fit(),
        ArrowLeft: () => this.move(far, 0),
        ArrowRight: () => this.move(-far, 0),
        ArrowUp: () => this.move(0, far),
        ArrowDown: () => this.move(0, -far),
      };
      if (!acts[event.key] || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      acts[event.key]();
    }
  }

  for (const image of document.querySelectorAll(".md-content img")) {
    if (image.closest("a")) continue;
    image.classList.add("fm-zoomable");
    image.tabIndex = 0;
    image.setAttribute("role", "button");
    image.setAttribute("aria-label", `Zoom: ${image.alt}`);
    image.addEventListener("click", () => new Zoom(image));
    image.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      new Zoom(image);
    });
  }
})();

// The interactive pictures of the page about fragments.  Which lane holds what comes
// with the page, from the layouts in Python; nothing about it is written here.

(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const draw = (tag, attributes, ...children) => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  const make = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  /** On a phone, cells are narrow, so that letters are not. */
  const phone = window.matchMedia("(max-width: 48em)").matches;
  const LETTERS = phone ? 11.5 : 10.5;
  const bold = (text) => make("b", {}, text);

  /** One operand: who holds the element at (row, col)? */
  class Part {
    constructor(given) {
      Object.assign(this, given);
      this.size = this.rows * this.cols;
    }
    at(row, col) {
      return row * this.cols + col;
    }
    spot(index) {
      return [Math.floor(index / this.cols), index % this.cols];
    }
    name(index) {
      const [row, col] = this.spot(index);
      return `${this.name_}[${row}, ${col}]`;
    }
    place(index) {
      return { lane: this.lanes[index], register: this.registers[index], low: this.lows[index] };
    }
    bits(index) {
      const low = this.lows[index];
      return this.width === 32 ? "all 32 bits" : `bits ${low + this.width - 1}:${low}`;
    }
    /** What a lane holds: per register, the indices from the lowest bits on. */
    held(lane) {
      const found = [];
      for (let i = 0; i < this.size; i++) {
        if (this.lanes[i] === lane) (found[this.registers[i]] ??= []).push(i);
      }
      for (const each of found) each.sort((a, b) => this.lows[a] - this.lows[b]);
      return found;
    }
  }

  /** A matrix: one block for each lane and register, and a frame at the element. */
  class Tile {
    constructor(part, { cell = 22, wide = cell } = {}) {
      Object.assign(this, { part, cell, wide, blocks: [], listeners: [] });
      const [width, height] = [part.cols * wide, part.rows * cell];
      const label = `${part.name_}, ${part.rows} by ${part.cols}; arrow keys move`;
      this.svg = draw("svg", {
        viewBox: `-20 -16 ${width + 22} ${height + 18}`,
        tabindex: 0,
        role: "application",
        "aria-label": label,
      });
      this.axes();
      this.bands = draw("g", {});
      this.labels = draw("g", {}); // above the frame, which would cross them
      for (const block of this.grouped()) this.block(block);
      this.frame = draw("rect", { class: "fm-cell", width: wide, height: cell, rx: 2, visibility: "hidden" });
      this.svg.append(this.bands, this.frame, this.labels);
      const caption = make("figcaption", {}, bold(part.name_), ` ${part.rows} × ${part.cols}, ${part.type}`);
      this.figure = make("figure", { class: `fm-tile-${part.name_}` }, caption, this.svg);
      this.svg.addEventListener("pointermove", (event) => this.pointed(event));
      this.svg.addEventListener("pointerdown", (event) => this.pointed(event));
      this.svg.addEventListener("keydown", (event) => this.key(event));
    }

    axes() {
      const { part, cell, wide } = this;
      const step = (count, size) => Math.max(1, Math.ceil(20 / size), count > 20 ? 4 : 1);
      const text = (x, y, said) =>
        this.svg.append(draw("text", { x, y, class: "fm-axis", "font-size": phone ? 11.5 : 9.5 }, `${said}`));
      for (let c = 0; c < part.cols; c += step(part.cols, wide)) text((c + 0.5) * wide, -8, c);
      for (let r = 0; r < part.rows; r += step(part.rows, cell)) text(-11, (r + 0.5) * cell, r);
    }

    grouped() {
      const found = new Map();
      for (let i = 0; i < this.part.size; i++) {
        const { lane, register } = this.part.place(i);
        const key = `${lane} ${register}`;
        if (!found.has(key)) found.set(key, { lane, register, cells: [] });
        found.get(key).cells.push(this.part.spot(i));
      }
      return found.values();
    }

    block({ lane, register, cells }) {
      const { cell, wide } = this;
      const [rows, cols] = [cells.map((c) => c[0]), cells.map((c) => c[1])];
      const [top, left] = [Math.min(...rows), Math.min(...cols)];
      const [height, width] = [Math.max(...rows) - top + 1, Math.max(...cols) - left + 1];
      const rect = draw("rect", {
        class: "fm-block",
        x: left * wide,
        y: top * cell,
        width: width * wide,
        height: height * cell,
        fill: `var(--l${lane})`,
      });
      const text = draw(
        "text",
        {
          x: (left + width / 2) * wide,
          y: (top + height / 2) * cell,
          "font-size": LETTERS,
          style: `--fm-under: var(--l${lane})`,
        },
        width * wide >= 34 ? `T${lane}` : `${lane}`,
      );
      this.svg.append(rect);
      this.labels.append(text);
      this.blocks.push({ lane, register, nodes: [rect, text] });
    }

    pointed(event) {
      const box = this.svg.getBoundingClientRect();
      const scale = this.svg.viewBox.baseVal.width / box.width;
      const [x, y] = [(event.clientX - box.left) * scale - 20, (event.clientY - box.top) * scale - 16];
      const [row, col] = [Math.floor(y / this.cell), Math.floor(x / this.wide)];
      if (row < 0 || col < 0 || row >= this.part.rows || col >= this.part.cols) return;
      this.tell(this.part.at(row, col));
    }

    key(event) {
      const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!by) return;
      event.preventDefault();
      const [row, col] = this.part.spot(this.index ?? 0);
      const within = (value, count) => Math.min(count - 1, Math.max(0, value));
      this.tell(this.part.at(within(row + by[0], this.part.rows), within(col + by[1], this.part.cols)));
    }

    tell(index) {
      for (const each of this.listeners) each(this.part, index);
    }

    /** Show some blocks, and dim the others; without a choice, all are shown. */
    light(wanted) {
      this.svg.classList.toggle("fm-dim", !!wanted);
      for (const { lane, register, nodes } of this.blocks) {
        for (const node of nodes) node.classList.toggle("fm-on", !!wanted?.(lane, register));
      }
    }

    mark(index) {
      this.index = index;
      this.frame.setAttribute("visibility", index === undefined ? "hidden" : "visible");
      if (index === undefined) return;
      const [row, col] = this.part.spot(index);
      this.frame.setAttribute("x", col * this.wide);
      this.frame.setAttribute("y", row * this.cell);
    }

    band(row, col) {
      const { cell, wide, part } = this;
      const [width, height] = [part.cols * wide, part.rows * cell];
      const made = [];
      if (row !== undefined) made.push({ x: 0, y: row * cell, width, height: cell });
      if (col !== undefined) made.push({ x: col * wide, y: 0, width: wide, height });
      const frames = made.map((each) => draw("rect", { ...each, class: "fm-cell", rx: 2 }));
      this.bands.replaceChildren(...frames);
    }
  }

  /** A link into the explorer that follows what is pointed at. */
  function follower() {
    const link = make("a", {}, "Open this element in the explorer →");
    const follow = (part, index) => {
      const [row, col] = part.spot(index);
      link.href = `${part.explorer}&at=${part.name_}[${row}][${col}]`;
    };
    return { follow, line: make("p", { class: "fm-open" }, link) };
  }

  /** The registers of a lane, as strips of 32 bits; the highest bits on the left. */
  function strips(part, lane, marked, choose) {
    return part.held(lane).map((indices, register) => {
      const buttons = [...indices].reverse().map((index) => {
        const [row, col] = part.spot(index);
        const button = make("button", { type: "button" }, indices.length > 4 ? `${col}` : `${row},${col}`);
        button.title = `${part.name(index)}: ${part.bits(index)}`;
        button.style.background = `var(--l${lane})`;
        button.classList.toggle("fm-here", index === marked);
        button.addEventListener("click", () => choose(part, index));
        return button;
      });
      // Not R0: that is bit 0 of a register's number.
      const name = make("span", {}, `${part.name_} reg ${register}`);
      return make("div", {}, name, make("div", { class: "fm-register" }, ...buttons));
    });
  }

  /** A slider through the lanes, with a button that plays it. */
  function walker(choose) {
    const slider = make("input", { type: "range", min: 0, max: 31, value: 0, "aria-label": "lane" });
    const told = make("output", {}, "lane 0");
    const button = make("button", { type: "button" }, "▶ play");
    let timer = 0;
    const stop = () => {
      clearInterval(timer);
      timer = 0;
      button.textContent = "▶ play";
    };
    const set = (lane) => {
      slider.value = lane;
      told.textContent = `lane ${lane}`;
    };
    slider.addEventListener("input", () => {
      stop();
      choose(Number(slider.value));
    });
    button.addEventListener("click", () => {
      if (timer) return stop();
      button.textContent = "■ stop";
      timer = setInterval(() => choose((Number(slider.value) + 1) % 32), 700);
    });
    return { bar: make("div", { class: "fm-bar" }, button, slider, told), set, stop };
  }

  /** A, B and D as they meet; the told corner is where A and B leave room. */
  function three(data) {
    const tiles = Object.fromEntries(data.parts.map((p) => [p.name_, new Tile(new Part(p), { cell: phone ? 20 : 18, wide: phone ? 22 : 34 })]));
    const told = make("div", { class: "fm-told", "aria-live": "polite" });
    const host = make("div", { class: "fm-tiles fm-tiles--three" }, told, ...Object.values(tiles).map((t) => t.figure));
    const wide = (tile) => tile.svg.viewBox.baseVal.width;
    host.style.gridTemplateColumns = `minmax(0, ${wide(tiles.A)}fr) minmax(0, ${wide(tiles.D)}fr)`;
    host.style.gridTemplateAreas = '"told b" "a d"';
    told.style.gridArea = "told";
    for (const name of "ABD") tiles[name].figure.style.gridArea = name.toLowerCase();
    return { tiles, told, host };
  }

  function lanes(host, data) {
    const { tiles, told, host: grid } = three(data);
    const more = follower();
    const show = (part, index) => {
      more.follow(part, index);
      const { lane, register } = part.place(index);
      for (const tile of Object.values(tiles)) {
        tile.light((other) => other === lane);
        tile.mark(tile.part === part ? index : undefined);
      }
      walk.set(lane);
      const line = make("p", {}, bold(part.name(index)), " is in ", bold(`lane ${lane}`), ", register ", bold(`${register}`), `, ${part.bits(index)}.`);
      const held = Object.values(tiles).map((t) =>
        make("div", { class: "fm-column" }, ...strips(t.part, lane, t.part === part ? index : -1, show)),
      );
      const intro = make("p", {}, `All that lane ${lane} holds, as row,column:`);
      told.replaceChildren(line, intro, make("div", { class: "fm-held" }, ...held));
    };
    const walk = walker((lane) => show(tiles.A.part, tiles.A.part.held(lane)[0][0]));
    for (const tile of Object.values(tiles)) {
      tile.listeners.push((part, index) => {
        walk.stop();
        show(part, index);
      });
    }
    host.append(walk.bar, grid, more.line);
    show(tiles.A.part, tiles.A.part.at(3, 9));
  }

  function product(host, data) {
    const { tiles, told, host: grid } = three(data);
    const { A, B, D } = tiles;
    const more = follower();
    const among = (part, indices) => [...new Set(indices.map((i) => part.lanes[i]))].sort((x, y) => x - y);
    const all = (count) => [...Array(count).keys()];
    const show = (row, col) => {
      const left = all(A.part.cols).map((k) => A.part.at(row, k));
      const above = all(A.part.cols).map((k) => B.part.at(k, col));
      const index = D.part.at(row, col);
      const [from, of, to] = [among(A.part, left), among(B.part, above), D.part.lanes[index]];
      A.light((lane) => from.includes(lane));
      B.light((lane) => of.includes(lane));
      D.light((lane) => lane === to);
      A.band(row);
      B.band(undefined, col);
      D.mark(index);
      more.follow(D.part, index);
      const list = (lanes) => bold(`lanes ${lanes.join(", ")}`);
      told.replaceChildren(
        make("p", {}, bold(`D[${row}, ${col}]`), ` is row ${row} of A times column ${col} of B: ${A.part.cols} products and one sum.`),
        make("p", {}, `Row ${row} of A is in `, list(from), "."),
        make("p", {}, `Column ${col} of B is in `, list(of), "."),
        make("p", {}, "The result arrives in ", bold(`lane ${to}`), `, register ${D.part.registers[index]}.`),
      );
    };
    D.listeners.push((part, index) => show(...part.spot(index)));
    A.listeners.push((part, index) => show(part.spot(index)[0], D.part.spot(D.index)[1]));
    B.listeners.push((part, index) => show(D.part.spot(D.index)[0], part.spot(index)[1]));
    host.append(grid, more.line);
    show(3, 5);
  }

  function types(host, data) {
    const bar = make("div", { class: "fm-bar", role: "radiogroup", "aria-label": "type of A" });
    const told = make("div", { class: "fm-told", "aria-live": "polite" });
    const place = make("div", { class: "fm-tiles" });
    const more = follower();
    const choose = (given) => {
      const part = new Part(given);
      const tile = new Tile(part, { cell: 20, wide: (phone ? 352 : 768) / part.cols });
      const show = (of, index) => {
        more.follow(of, index);
        const { lane, register } = of.place(index);
        tile.light((other, which) => other === lane && which === register);
        tile.mark(index);
        const each = 32 / of.width;
        const count = each === 1 ? "one element" : `${each} elements`;
        const line = make("p", {}, bold(of.name(index)), ` is in lane ${lane}, register ${register}, `, bold(of.bits(index)), `. One register holds ${count} of ${of.type}${each > 4 ? `, here with their columns` : ""}:`);
        const strip = strips(of, lane, index, show)[register];
        told.replaceChildren(line, make("div", { class: "fm-column" }, strip));
      };
      tile.listeners.push(show);
      place.replaceChildren(tile.figure);
      show(part, part.at(3, Math.floor(part.cols * 0.6)));
    };
    data.parts.forEach((part, number) => {
      const input = make("input", { type: "radio", name: "fm-type" });
      input.checked = number === 0;
      input.addEventListener("change", () => choose(part));
      bar.append(make("label", { class: "fm-choice" }, input, `${part.type}: 16 × ${part.cols}`));
    });
    host.append(bar, place, told, more.line);
    choose(data.parts[0]);
  }

  /** The switches are the bits of row and column; each is one bit of the place. */
  function wires(host, data) {
    const part = new Part(data.parts[0]);
    const tile = new Tile(part, { cell: 20 });
    const axes = { L: "lane", R: "register", E: "element" };
    const sides = [...part.line.matchAll(/(\w+) = ([\w ]+?)(?=  |$)/g)].map(([, name, digits]) => ({
      name,
      digits: digits.split(" ").map((digit) => ({ axis: digit[0], bit: Number(digit.slice(1)) })),
    }));
    const state = new Map();
    const more = follower();
    const told = make("div", { class: "fm-told", "aria-live": "polite" });
    const svg = draw("svg", { class: "fm-wires", viewBox: "0 0 430 250", role: "group", "aria-label": "Bits of row and column, wired to bits of the place" });
    const [size, gap, apart] = [30, 6, 52];
    const laid = (groups, y) => {
      const width = groups.reduce((w, g) => w + g.count * (size + gap) - gap, 0) + apart * (groups.length - 1);
      let x = (430 - width) / 2;
      return groups.map((group) => {
        const places = [...Array(group.count).keys()].reverse().map((bit, i) => ({ bit, x: x + i * (size + gap), y }));
        const middle = x + (group.count * (size + gap) - gap) / 2;
        x += group.count * (size + gap) - gap + apart;
        return { ...group, places, middle };
      });
    };
    const top = laid(sides.map((side) => ({ ...side, count: side.digits.length })), 34);
    const used = sides.flatMap((side) => side.digits);
    const count = (axis) => used.filter((digit) => digit.axis === axis).length;
    const bottom = laid(Object.keys(axes).map((axis) => ({ axis, name: axes[axis], count: count(axis) })), 186);
    const box = ({ x, y }, hue, label) => {
      const rect = draw("rect", { class: "fm-bit", x, y, width: size, height: size, rx: 5 });
      const text = draw("text", { x: x + size / 2, y: y + size / 2 }, "0");
      const group = draw("g", { class: `fm-hue-${hue}` }, rect, text);
      if (label) group.setAttribute("aria-label", label);
      return { group, rect, text };
    };
    const parts = [];
    for (const side of top) {
      const name = draw("text", { x: side.middle, y: 12, class: "fm-axis" });
      svg.append(name);
      side.title = name;
      for (const at of side.places) {
        const digit = side.digits[at.bit];
        const key = `${side.name}${at.bit}`;
        state.set(key, 0);
        const end = bottom.find((g) => g.axis === digit.axis).places.find((p) => p.bit === digit.bit);
        const [x1, y1, x2, y2] = [at.x + size / 2, at.y + size, end.x + size / 2, end.y];
        const path = draw("path", { class: `fm-hue-${digit.axis}`, d: `M${x1} ${y1}C${x1} ${y1 + 60} ${x2} ${y2 - 60} ${x2} ${y2}` });
        const upper = box(at, digit.axis, `bit ${at.bit} of the ${side.name}`);
        const lower = box(end, digit.axis);
        upper.group.classList.add("fm-switch");
        upper.group.setAttribute("tabindex", 0);
        upper.group.setAttribute("role", "switch");
        const flip = () => {
          state.set(key, 1 - state.get(key));
          show();
        };
        upper.group.addEventListener("click", flip);
        upper.group.addEventListener("keydown", (event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          flip();
        });
        svg.append(path, upper.group, lower.group);
        parts.push({ key, path, upper, lower });
      }
    }
    for (const group of bottom) {
      group.title = draw("text", { x: group.middle, y: 236, class: "fm-axis" });
      svg.append(group.title);
    }
    const value = (side) => side.digits.reduce((sum, _, bit) => sum + (state.get(`${side.name}${bit}`) << bit), 0);
    const show = () => {
      for (const { key, path, upper, lower } of parts) {
        const set = state.get(key) === 1;
        upper.group.setAttribute("aria-checked", set);
        path.classList.toggle("fm-set", set);
        for (const each of [upper, lower]) {
          each.rect.classList.toggle("fm-set", set);
          each.text.classList.toggle("fm-set", set);
          each.text.textContent = set ? "1" : "0";
        }
      }
      const [row, col] = top.map(value);
      const index = part.at(row, col);
      const { lane, register } = part.place(index);
      top[0].title.textContent = `row ${row}`;
      top[1].title.textContent = `column ${col}`;
      const places = [lane, register, part.lows[index] / part.width];
      bottom.forEach((group, i) => (group.title.textContent = `${group.name} ${places[i]}`));
      tile.mark(index);
      more.follow(part, index);
      tile.light((other) => other === lane);
      told.replaceChildren(make("p", {}, bold(part.name(index)), " is in ", bold(`lane ${lane}`), `, register ${register}, ${part.bits(index)}.`));
    };
    tile.listeners.push((_, index) => {
      const spot = part.spot(index);
      top.forEach((side, i) => side.digits.forEach((_, bit) => state.set(`${side.name}${bit}`, (spot[i] >> bit) & 1)));
      show();
    });
    const left = make("div", {}, svg, told);
    host.append(make("div", { class: "fm-two" }, left, make("div", { class: "fm-tiles" }, tile.figure)), more.line);
    tile.tell(part.at(11, 9));
  }

  const WIDGETS = { lanes, product, types, wires };
  for (const host of document.querySelectorAll(".fm-widget")) {
    WIDGETS[host.dataset.widget](host, JSON.parse(host.querySelector("script").textContent));
  }
})();

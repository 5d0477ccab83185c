// Filters for long tables, and pages of rows.  Without this script they stay as they
// are, and the catalogue is a list of links.

(() => {
  const PAGE = 50;
  const LONG = 60;

  const make = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };

  /** A row has `cells` (nodes are made when shown), `text` to search in, `words`, `keys`. */
  class Filtered {
    constructor(heads, rows, choices, hint) {
      Object.assign(this, { rows, found: rows, page: 0, selects: new Map() });
      this.input = make("input", { type: "search", placeholder: hint, "aria-label": hint });
      this.bar = make("div", { class: "fm-filter", role: "search", "aria-label": "rows of the table" }, this.input);
      for (const [name, values] of choices) this.bar.append(this.choice(name, values));
      this.count = make("p", { class: "fm-count", "aria-live": "polite" });
      this.body = make("tbody");
      const head = make("tr", {}, ...heads.map((each) => make("th", { scope: "col" }, each)));
      this.table = make("table", { class: "fm-table" }, make("thead", {}, head), this.body);
      this.back = make("button", { type: "button" }, "← previous");
      this.next = make("button", { type: "button" }, "next →");
      this.where = make("span");
      this.pages = make("div", { class: "fm-pages" }, this.back, this.where, this.next);
      const wide = make("div", { class: "fm-wide" }, this.table);
      this.element = make("div", { class: "fm-filtered" }, this.bar, this.count, wide, this.pages);
      this.input.addEventListener("input", () => this.filter());
      this.back.addEventListener("click", () => this.turn(-1));
      this.next.addEventListener("click", () => this.turn(1));
      this.filter();
    }

    choice(name, values) {
      const select = make("select", { "aria-label": name }, make("option", { value: "" }, name));
      for (const value of values) select.append(make("option", { value }, value));
      select.addEventListener("change", () => this.filter());
      this.selects.set(name, select);
      return select;
    }

    filter() {
      const words = plain(this.input.value).split(/\s+/).filter(Boolean);
      const chosen = [...this.selects].filter(([, select]) => select.value);
      this.found = this.rows.filter(
        (row) =>
          chosen.every(([name, select]) => row.keys[name]?.includes(select.value)) &&
          words.every((word) => row.text.includes(word) || row.words?.some((w) => w.startsWith(word))),
      );
      this.page = 0;
      this.show();
    }

    turn(by) {
      this.page += by;
      this.show();
      this.element.scrollIntoView({ block: "start" });
    }

    show() {
      const [first, all] = [this.page * PAGE, this.found.length];
      const shown = this.found.slice(first, first + PAGE);
      this.body.replaceChildren(...shown.map((row) => make("tr", {}, ...row.cells())));
      const of = all === this.rows.length ? "" : ` of ${this.rows.length.toLocaleString("en")}`;
      this.count.textContent = all
        ? `${all.toLocaleString("en")}${of} rows`
        : "Nothing fits. Leave a word or a choice out.";
      const last = Math.max(0, Math.ceil(all / PAGE) - 1);
      this.pages.hidden = last === 0;
      this.where.textContent = `page ${this.page + 1} of ${last + 1}`;
      this.back.disabled = this.page === 0;
      this.next.disabled = this.page === last;
    }
  }

  /** Shapes are written in several ways; the names of instructions have one of them. */
  const plain = (text) =>
    text.toLowerCase().replace(/\bm?(\d+)xn?(\d+)xk?(\d+)\b/g, "m$1n$2k$3");

  /** A table of the page: its columns of few values become choices. */
  function enhance(table) {
    const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
    const rows = [...table.tBodies[0].rows].map((row) => {
      const cells = [...row.cells];
      const keys = Object.fromEntries(heads.map((head, i) => [head, [cells[i].textContent.trim()]]));
      return { cells: () => cells, text: row.textContent.toLowerCase(), keys };
    });
    const choices = heads.slice(1).flatMap((head) => {
      const values = [...new Set(rows.map((row) => row.keys[head][0]))];
      return values.length > 1 && values.length <= 24 ? [[head, values]] : [];
    });
    const made = new Filtered(heads, rows, choices, "filter by words");
    (table.closest(".md-typeset__scrollwrap") ?? table).replaceWith(made.element);
  }

  /** Every instruction, from look/catalogue.js. */
  function catalogue(host, data) {
    const cell = (content, type = "") => make("td", { class: type }, content);
    const name = (row) => {
      const code = make("code", {}, row[0]);
      if (!row[9]) return code;
      const link = make("a", { href: `explorer.html#op=${row[9] === 1 ? address(row[0]) : row[9]}` }, code);
      link.title = "open in the explorer";
      return link;
    };
    const rows = data.rows.map((row) => {
      const [spelled, family, shape, inputs, result, needs, numbers, targets, words] = row;
      const digits = shape.replace(/\D+/g, "");
      return {
        cells: () => [
          cell(name(row)),
          cell(shape, "fm-short"),
          cell(inputs, "fm-short"),
          cell(result, "fm-short"),
          cell(data.requires[needs]),
          cell(data.numbers[numbers]),
        ],
        text: `${spelled} ${shape} ${digits} ${data.requires[needs]}`.toLowerCase(),
        words: data.wordsets[words],
        keys: {
          family: [data.families[family]],
          "type of A or B": inputs.split(/[\s,]+/),
          "type of D": [result],
          target: data.targetsets[targets],
        },
      };
    });
    const values = (key) => [...new Set(rows.flatMap((row) => row.keys[key]))].filter(Boolean);
    const choices = [
      ["family", data.families],
      ["type of A or B", values("type of A or B").sort()],
      ["type of D", values("type of D").sort()],
      ["target", data.targets],
    ];
    const heads = ["instruction", "shape", "A, B", "D", "requires", "numbers"];
    const hint = "words: sparse int4, fp8 hopper, 16x8x64, HMMA …";
    host.replaceChildren(new Filtered(heads, rows, choices, hint).element);
  }

  const address = (name) => encodeURIComponent(name).replace(/%3A/g, ":");

  const host = document.querySelector(".fm-catalogue");
  if (host) catalogue(host, window.fragmentaCatalogue);
  for (const table of document.querySelectorAll(".md-content table:not([class])")) {
    if (table.tBodies[0]?.rows.length > LONG) enhance(table);
  }
})();

// Tables of data: built when first opened, paged, copied as CSV, sorted by a column's button.
const PAGE_ROWS = 100;

/**
 * A table in its own scrolling box. `columns`: { name, note? (below the name), format?, text? (on the left), wrap? }; `sortable` puts a
 * button into every head; `marked(row)`: its row is marked. `update(rows)` takes arrays of raw values; only the body changes, so focus and scroll stay.
 */
function makeTable({ caption, columns, sortable = false, wide = false, marked = () => false }) {
  const body = h("tbody");
  const heads = columns.map((column, j) => {
    const label = sortable ? h("button", { type: "button", class: "sort", onclick: () => sortBy(j) }, column.name) : column.name;
    return h("th", { scope: "col", class: column.text ? "text" : null }, label, column.note ? h("small", {}, column.note) : null);
  });
  const more = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => grow() });
  const element = h("div", { class: "table" },
    showsMore(h("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": caption },
      h("table", { class: wide ? "wide" : null }, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, heads)), body))),
    more);
  let rows = [];
  let order = null;
  let shown = PAGE_ROWS;

  function sortBy(j) {
    const down = columns[j].text ? 1 : -1;
    order = order?.column === j ? { column: j, sign: -order.sign } : { column: j, sign: down };
    heads.forEach((head, i) => {
      if (i === j) head.setAttribute("aria-sort", order.sign > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    draw();
  }
  function sorted() {
    if (!order) return rows;
    const { column, sign } = order;
    return [...rows].sort((a, b) => compare(a[column], b[column], sign));
  }
  function draw() {
    body.replaceChildren(...sorted().slice(0, visible()).map((row) => h("tr", { class: marked(row) ? "chosen" : null }, row.map((value, j) => cell(columns[j], value)))));
    more.hidden = rows.length <= visible();
    say(more, `Show more rows (${count(shown)} of ${count(rows.length)} shown)`);
  }
  /** Shows a short last page without a button. */
  function visible() {
    return rows.length <= shown * 1.2 ? rows.length : shown;
  }
  function grow() {
    shown += PAGE_ROWS * 5;
    draw();
  }
  return {
    element,
    update(next) {
      rows = next;
      draw();
    },
  };
}
function cell(column, value) {
  const empty = value === null || value === undefined;
  const text = empty ? MISSING : column.format ? column.format(value) : String(value);
  return h("td", { class: column.wrap ? "text wrap" : column.text ? "text" : null }, text);
}
/** Missing values come last in either order. */
function compare(a, b, sign) {
  const [none, nothing] = [a === null || a === undefined, b === null || b === undefined];
  if (none || nothing) return none - nothing;
  return sign * (typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b);
}

/** Rows as CSV: raw values, not rounded ones; empty where a value is missing. */
function csv(columns, rows) {
  const quote = (value) => {
    if (value === null || value === undefined) return "";
    const text = String(value);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns.map((column) => column.name), ...rows].map((row) => row.map(quote).join(",")).join("\n");
}
async function copy(text, button) {
  const before = button.textContent;
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    done = copyOld(text);
    button.focus();
  }
  say(button, done ? "Copied" : "Not copied: the browser refused");
  setTimeout(() => say(button, before), 1800);
}
/** For browsers that deny the clipboard to pages opened as files. */
function copyOld(text) {
  const area = h("textarea", { class: "unseen", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

/** "Data as a table": a closed `details` whose table is built when it is opened. `data()` gives { columns, rows }. */
function dataDetails(title, data) {
  let table = null;
  let names = "";
  const button = h("button", { type: "button", class: "quiet", onclick: () => {
    const { columns, rows } = data();
    copy(csv(columns, rows), button);
  } }, "Copy CSV");
  const element = h("details", { class: "data" }, h("summary", {}, "Data as a table"), h("div", { class: "tools" }, button));
  const draw = () => {
    if (!element.open) return;
    const { columns, rows } = data();
    const key = columns.map((column) => column.name).join("|");
    if (!table || key !== names) {
      table?.element.remove();
      table = makeTable({ caption: `Data: ${title}`, columns });
      names = key;
      element.append(table.element);
    }
    table.update(rows);
  };
  element.addEventListener("toggle", draw);
  return { element, draw };
}

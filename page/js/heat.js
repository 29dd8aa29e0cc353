// A heat map: rows (clients or tensors) by rounds, one pixel a cell on a canvas, however many cells there are.
// Missing cells stay transparent over the hatching; they are never drawn as zero.
const RAMPS = {
  light: ["#edf3f9", "#b9d5ec", "#6aa9d8", "#1f6fae", "#0a3761"],
  dark: ["#182634", "#1d4a72", "#2f7db8", "#7fbfe8", "#e8f6ff"],
};

/** Makes a heat map. `quantities()` are set by update(): { rows: [names], rounds: [numbers], choices: [{ key, name, unit, fill(cells) }] } or { empty }; `fill` writes into
 * a Float64Array of rows x rounds that holds NaN, and is called when its choice is looked at. */
function makeHeat({ id, title, about, rowWord }) {
  const select = h("select", { id: `${id}-what`, onchange: () => { chosen = select.value; render(); table.draw(); } });
  const canvas = h("canvas", { "aria-hidden": "true" });
  const mark = h("div", { class: "mark", hidden: true });
  const plot = h("div", { class: "plot heat", tabindex: 0, role: "application", "aria-roledescription": "heat map",
    "aria-label": `${title}: arrow keys go through ${rowWord}s and rounds` });
  const spoken = h("p", { class: "unseen", "aria-live": "polite" });
  const tip = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  const frame = h("div", { class: "frame" }, plot, tip);
  const ramp = h("span", { class: "ramp" });
  const [least, most] = [h("span"), h("span")];
  const key = h("div", { class: "key" }, least, ramp, most, h("span", { class: "none" }), h("span", {}, "no value"));
  const empty = h("p", { class: "empty", hidden: true });
  const controls = h("div", { class: "controls" }, h("label", { for: `${id}-what` }, "Show "), select, key);
  const table = dataDetails(title, () => heatTable(data, current(), rowWord));
  const element = h("figure", { id, class: "figure wide" }, h("figcaption", {}, h("h3", {}, title), h("p", { class: "about" }, about)),
    controls, frame, spoken, empty, table.element);
  let data = null;
  let chosen = null;
  let width = 0;
  let box = null;
  let at = null;
  /** The current choice, with its cells. */
  function current() {
    const choice = data.choices.find((one) => one.key === chosen) ?? data.choices[0];
    if (!choice.cells) {
      choice.cells = new Float64Array(data.rows.length * data.rounds.length).fill(NaN);
      choice.fill(choice.cells);
    }
    return choice;
  }

  function render() {
    if (!data || data.empty || width < 40) return;
    const choice = current();
    box = heatBox(data, width);
    const shade = shading(choice);
    paint(canvas, data, choice, shade);
    canvas.style.left = `${(box.left / width) * 100}%`;
    canvas.style.top = `${(box.top / box.height) * 100}%`;
    canvas.style.width = `${((box.right - box.left) / width) * 100}%`;
    canvas.style.height = `${((box.bottom - box.top) / box.height) * 100}%`;
    canvas.classList.toggle("sharp", (box.right - box.left) * devicePixelRatio >= data.rounds.length);
    plot.replaceChildren(heatAxes(data, box, width), canvas, mark);
    const unit = UNITS[choice.unit];
    say(least, shade.range ? unit.format(shade.range[0]) : MISSING);
    say(most, shade.range ? `${shade.clipped ? "≥ " : ""}${unit.format(shade.range[1])}${shade.log ? " (log scale)" : ""}` : "");
    ramp.style.backgroundImage = `linear-gradient(to right, ${colours().join(", ")})`;
  }
  function point(row, column, visible = true) {
    if (!box) return;
    at = [row, column];
    const choice = current();
    const value = choice.cells[row * data.rounds.length + column];
    const text = has(value) ? UNITS[choice.unit].format(value) : "no value";
    const [wide, high] = [(box.right - box.left) / data.rounds.length, (box.bottom - box.top) / data.rows.length];
    const [x, y] = [box.left + column * wide, box.top + row * high];
    mark.hidden = tip.hidden = !visible;
    Object.assign(mark.style, { left: `${x - 1}px`, top: `${y - 1}px`, width: `${Math.max(3, wide + 2)}px`, height: `${Math.max(3, high + 2)}px` });
    tip.replaceChildren(h("p", {}, `${data.rows[row]} · round ${count(data.rounds[column])}`),
      h("div", { class: "row" }, h("span", {}, choice.name), h("b", {}, text)));
    const half = tip.offsetWidth;
    tip.style.left = `${Math.max(0, x + 14 + half > width ? x - 14 - half : x + wide + 12)}px`;
    tip.style.top = `${Math.max(0, y - 10)}px`;
  }
  function announce() {
    const choice = current();
    const value = choice.cells[at[0] * data.rounds.length + at[1]];
    say(spoken, `${data.rows[at[0]]}, round ${data.rounds[at[1]]}: ${has(value) ? UNITS[choice.unit].format(value) : "no value"}`);
  }
  const hide = () => {
    mark.hidden = true;
    tip.hidden = true;
  };
  const seek = (event) => {
    if (!box) return;
    const shape = plot.getBoundingClientRect();
    const column = Math.floor(((event.clientX - shape.left - box.left) / (box.right - box.left)) * data.rounds.length);
    const row = Math.floor(((event.clientY - shape.top - box.top) / (box.bottom - box.top)) * data.rows.length);
    if (column < 0 || row < 0 || column >= data.rounds.length || row >= data.rows.length) hide();
    else point(row, column);
  };
  plot.addEventListener("pointermove", seek);
  plot.addEventListener("pointerdown", seek);
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("focus", () => plot.matches(":focus-visible") && data?.rows && point(...(at ?? [0, data.rounds.length - 1])));
  plot.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const [row, column] = at ?? [0, data.rounds.length - 1];
    const to = { ArrowRight: [row, column + 1], ArrowLeft: [row, column - 1], ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
      Home: [row, 0], End: [row, data.rounds.length - 1] }[event.key];
    if (!to) return;
    event.preventDefault();
    point(Math.max(0, Math.min(data.rows.length - 1, to[0])), Math.max(0, Math.min(data.rounds.length - 1, to[1])));
    announce();
  });
  frame.resized = (next) => {
    if (Math.abs(next - width) < 1) return;
    width = next;
    render();
  };
  watcher.observe(frame);
  for (const query of ["print", "(prefers-color-scheme: dark)"]) matchMedia(query).addEventListener("change", render);
  document.addEventListener("theme", render);

  return {
    element,
    update(next) {
      data = next;
      const none = Boolean(data.empty);
      for (const part of [controls, frame, table.element]) part.hidden = none;
      empty.hidden = !none;
      if (none) return say(empty, data.empty);
      const names = data.choices.map((choice) => choice.key).join("|");
      if (select.dataset.names !== names) {
        select.dataset.names = names;
        select.replaceChildren(...data.choices.map((choice) => h("option", { value: choice.key }, choice.name)));
        select.value = current().key;
      }
      render();
      table.draw();
      return undefined;
    },
  };
}

function heatBox({ rows }, width) {
  const cell = Math.max(4, Math.min(18, 420 / rows.length));
  const longest = Math.max(...rows.map((name) => name.length));
  const left = Math.min(longest * 6.4 + 12, width * 0.3);
  const top = 8;
  return { left, right: width - 8, top, bottom: top + cell * rows.length, height: top + cell * rows.length + 38, cell };
}
function heatAxes({ rows, rounds }, box, width) {
  const svg = s("svg", { viewBox: `0 0 ${width} ${box.height}`, "aria-hidden": "true", focusable: "false" });
  const group = s("g", { class: "axes" });
  const every = Math.max(1, Math.ceil(12 / box.cell));
  const letters = Math.floor((box.left - 10) / 6.2);
  svg.append(s("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top, fill: "url(#missing)" }), group);
  rows.forEach((name, i) => {
    if (i % every) return;
    const short = name.length > letters ? `${name.slice(0, Math.max(1, letters - 1))}…` : name;
    group.append(s("text", { x: box.left - 7, y: box.top + (i + 0.5) * box.cell, dy: "0.32em", "text-anchor": "end" }, short));
  });
  const [first, last] = [rounds[0], rounds.at(-1)];
  const wide = (box.right - box.left) / rounds.length;
  const x = (at) => box.left + (at - first + 0.5) * wide;
  for (const at of apart(roundTicks(first, last, Math.max(2, (box.right - box.left) / 80)), x, count)) {
    const place = x(at);
    group.append(s("line", { x1: place, x2: place, y1: box.bottom, y2: box.bottom + 4, class: "base" }),
      s("text", { x: place, y: box.bottom + 17, "text-anchor": "middle" }, count(at)));
  }
  group.append(s("text", { x: box.right, y: box.bottom + 34, "text-anchor": "end", class: "label" }, "round"));
  return svg;
}

/** Cells from which the color range of a large map is sampled, evenly (a stride that does not divide usual row lengths). */
const SAMPLED_CELLS = 9_973;

/** The current colors: printing is always light. */
function colours() {
  const dark = getComputedStyle(document.documentElement).getPropertyValue("--dark").trim() === "1";
  return RAMPS[dark && !matchMedia("print").matches ? "dark" : "light"];
}
/** Maps a value to the ramp: logarithmic if values span many magnitudes; the top 0.5 % is clipped. */
function shading(choice) {
  const stride = Math.max(1, Math.ceil(choice.cells.length / SAMPLED_CELLS));
  const sampled = choice.cells.filter((value, i) => value === value && (stride === 1 || i % stride === 0));
  if (!sampled.length) return { range: null, of: () => 0 };
  const sorted = sampled.sort();
  const at = (q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
  const [low, high] = [at(0.005), at(0.995)];
  const log = low > 0 && at(0.9) / at(0.25) > 20;
  const [from, to] = log ? [Math.log(low), Math.log(high)] : [low, high];
  return { range: [low, high], clipped: stride > 1 || sorted.at(-1) > high, log, of: (value) => (to > from ? ((log ? Math.log(Math.max(value, low)) : value) - from) / (to - from) : 0.5) };
}
function paint(canvas, { rows, rounds }, choice, shade) {
  canvas.width = rounds.length;
  canvas.height = rows.length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(rounds.length, rows.length);
  const table = lookup(colours());
  for (let i = 0; i < choice.cells.length; i += 1) {
    const value = choice.cells[i];
    if (Number.isNaN(value)) continue;
    const step = Math.max(0, Math.min(255, Math.round(shade.of(value) * 255))) * 3;
    image.data[i * 4] = table[step];
    image.data[i * 4 + 1] = table[step + 1];
    image.data[i * 4 + 2] = table[step + 2];
    image.data[i * 4 + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}
/** 256 colors along a ramp, as bytes. */
function lookup(stops) {
  const parts = stops.map((stop) => [1, 3, 5].map((i) => parseInt(stop.slice(i, i + 2), 16)));
  const table = new Uint8Array(256 * 3);
  for (let i = 0; i < 256; i += 1) {
    const place = (i / 255) * (parts.length - 1);
    const k = Math.min(parts.length - 2, Math.floor(place));
    for (let c = 0; c < 3; c += 1) table[i * 3 + c] = Math.round(parts[k][c] + (parts[k + 1][c] - parts[k][c]) * (place - k));
  }
  return table;
}
function heatTable({ rows, rounds }, choice, rowWord) {
  const format = (value) => (choice.unit === "bytes" ? count(value) : digits(value));
  const columns = [{ name: "round", format: String }, ...rows.map((name) => ({ name, format }))];
  const cell = (i, j) => {
    const value = choice.cells[i * rounds.length + j];
    return Number.isFinite(value) ? value : null;
  };
  return { columns, rows: rounds.map((round, j) => [round, ...rows.map((_, i) => cell(i, j))]), rowWord };
}

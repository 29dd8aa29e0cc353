// A chart with title, description, legend, crosshair for pointer and keyboard, and its data as a table.
// A figure is made once and then updated, so what is open, focused or hidden stays so.

/** Rows of the values beside the crosshair: more would be higher than the chart. */
const ROWS_AT_MOST = 12;

/** In an order in which neighbors differ well. */
const POINT_COLOURS = ["grey", "blue", "red", "green", "purple", "orange", "sky", "violet", "brown", "rose", "olive", "teal"];

/** Each point with a color for its text `key`, and the legend. */
function coloured(all, key) {
  const names = [...new Set(all.map((point) => point[key]))];
  const colour = (name) => POINT_COLOURS[names.indexOf(name) % POINT_COLOURS.length];
  return { points: all.map((point) => ({ ...point, colour: colour(point[key]) })), entries: names.map((name) => ({ name, colour: colour(name) })) };
}

/** Draws again when a figure's width changes; the first width triggers the first drawing. */
const watcher = new ResizeObserver((entries) => {
  for (const entry of entries) entry.target.resized?.(entry.contentRect.width);
});

/**
 * Makes a figure. `update(spec)` takes what `draw` takes and { about?, entries? (the legend, if it is not the series), says? (of points: names and texts of each), table? }, or
 * { empty: "why there is nothing to see" }. `toggles`: names of the legend switch their series off and on. `compact`: lower, for
 * the first screen. `word`: what the arrow keys go through.
 */
function makeFigure({ id, title, about, word = "rounds", toggles = false, wide = false, compact = false }) {
  const note = h("p", { class: "about" }, about);
  const legend = h("ul", { class: "legend" });
  const plot = h("div", { class: "plot", tabindex: 0, role: "slider", "aria-label": `${title}: arrow keys go through the ${word}`,
    "aria-valuemin": 0, "aria-valuemax": 0, "aria-valuenow": 0 });
  const tip = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  const frame = h("div", { class: "frame" }, plot, tip);
  const cut = h("p", { class: "about cut", hidden: true });
  const empty = h("p", { class: "empty", hidden: true });
  let spec = null;
  let drawn = null;
  let width = 0;
  let at = null;
  const off = new Set();
  const table = dataDetails(title, () => tableOf(spec));
  const element = h("figure", { id, class: compact ? "compact" : wide ? "figure wide" : "figure" },
    h("figcaption", {}, h("h3", {}, title), compact ? legend : note), compact ? null : legend, frame, cut, empty, table.element);

  const shown = () => ({ ...spec, compact, series: spec.series.filter((one) => !off.has(one.name)) });
  function render() {
    if (!spec || spec.empty || width < 40) return;
    drawn = draw(shown(), width);
    drawn.cross = s("g", { class: "cross" });
    drawn.svg.append(drawn.cross);
    plot.replaceChildren(drawn.svg);
    cut.hidden = !drawn.cut;
    if (drawn.cut) say(cut, "The axis is cut: rounds with a triangle exceed it.");
    if (at !== null) point(Math.min(at, spec.x.length - 1), !tip.hidden);
  }
  function point(i, visible = true) {
    if (!drawn || !spec.x.length) return;
    at = i;
    const place = drawn.places[i];
    const one = shown();
    drawn.cross.replaceChildren();
    if (visible) {
      drawn.cross.append(s("line", { x1: place, x2: place, y1: drawn.top, y2: drawn.bottom }));
      if (one.kind !== "stack") {
        for (const series of one.series) {
          const value = series.values[i];
          if (has(value) && (!one.log || value > 0)) drawn.cross.append(s("circle", { cx: place, cy: drawn.y(value), r: 4, class: `dot ${series.colour}` }));
        }
      }
    }
    tip.hidden = !visible;
    if (visible) {
      tip.replaceChildren(...tipOf(one, i));
      const half = tip.offsetWidth;
      const left = place + 14 + half > width ? place - 14 - half : place + 14;
      tip.style.left = `${Math.max(0, left)}px`;
      tip.style.top = `${drawn.top}px`;
    }
    plot.setAttribute("aria-valuenow", i);
    plot.setAttribute("aria-valuetext", spoken(one, i));
  }
  function hide() {
    tip.hidden = true;
    drawn?.cross.replaceChildren();
  }
  const seek = (event) => {
    if (!drawn) return;
    const shape = plot.getBoundingClientRect();
    const scale = width / shape.width;
    point(nearest(drawn, (event.clientX - shape.left) * scale, (event.clientY - shape.top) * scale));
  };
  plot.addEventListener("pointermove", seek);
  plot.addEventListener("pointerdown", seek);
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("focus", () => plot.matches(":focus-visible") && spec?.x && point(at ?? spec.x.length - 1));
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    const last = (spec?.x?.length ?? 0) - 1;
    const now = at ?? last;
    const leap = Math.max(1, Math.round(last / 10));
    const to = { ArrowRight: now + 1, ArrowUp: now + 1, ArrowLeft: now - 1, ArrowDown: now - 1, PageUp: now + leap,
      PageDown: now - leap, Home: 0, End: last }[event.key];
    if (event.key === "Escape") hide();
    if (to === undefined || last < 0) return;
    event.preventDefault();
    point(Math.max(0, Math.min(last, to)));
  });
  frame.resized = (next) => {
    if (Math.abs(next - width) < 1) return;
    width = next;
    render();
  };
  watcher.observe(frame);

  /** Legend entries are kept while their names stay, so that a focused switch keeps the focus. */
  let names = "";
  let values = [];
  function drawLegend() {
    const entries = spec.entries ?? spec.series;
    const key = entries.map((one) => one.name).join("|");
    if (key !== names) {
      names = key;
      values = entries.map(() => h("span", { class: "value" }));
      legend.replaceChildren(...entries.map((one, k) => h("li", {}, entry(one, values[k]))));
    }
    entries.forEach((one, k) => say(values[k], one.legend ?? ""));
    legend.hidden = entries.length < 2 && !entries[0]?.legend;
  }
  function entry(one, value) {
    const inside = [swatch(one, spec.kind), h("span", {}, one.name), value];
    if (!toggles) return h("span", { class: "entry" }, inside);
    return h("button", { type: "button", class: "entry", "aria-pressed": "true", title: "Show or hide", onclick: (event) => {
      if (!off.delete(one.name)) off.add(one.name);
      event.currentTarget.setAttribute("aria-pressed", String(!off.has(one.name)));
      render();
    } }, inside);
  }
  return {
    element,
    update(next) {
      spec = next;
      const none = Boolean(spec.empty);
      for (const part of [frame, legend, table.element]) part.hidden = none;
      empty.hidden = !none;
      cut.hidden = true;
      if (none) return say(empty, spec.empty);
      say(note, spec.about ?? about);
      plot.setAttribute("aria-valuemax", Math.max(0, spec.x.length - 1));
      if (at === null) {
        plot.setAttribute("aria-valuenow", spec.x.length - 1);
        plot.setAttribute("aria-valuetext", spoken(spec, spec.x.length - 1));
      }
      drawLegend();
      render();
      table.draw();
      return undefined;
    },
  };
}

/** The round nearest to x, or the point nearest to (x, y). */
function nearest({ places, heights }, x, y) {
  const far = (i) => Math.hypot(places[i] - x, heights ? heights[i] - y : 0);
  return places.reduce((best, _, i) => (far(i) < far(best) ? i : best), 0);
}
function headOf(spec, i) {
  if (spec.says) return spec.series[i].name;
  const round = `Round ${count(spec.rounds ? spec.rounds[i] : spec.x[i])}`;
  return spec.xUnit === "round" ? round : `${round} · ${UNITS[spec.xUnit].format(spec.x[i])}`;
}
function tipOf(spec, i) {
  const unit = UNITS[spec.unit];
  if (spec.says) return [h("p", {}, headOf(spec, i)), ...spec.says[i].map(([name, text]) => h("div", { class: "row" }, h("span"), h("span", {}, name), h("b", {}, text)))];
  const rows = spec.series.slice(0, ROWS_AT_MOST).map((one) => h("div", { class: "row" }, swatch(one, spec.kind), h("span", {}, one.name),
    h("b", {}, unit.format(one.values[i]))));
  if (spec.series.length > rows.length) rows.push(h("div", { class: "row" }, h("span"), h("span", {}, `and ${spec.series.length - rows.length} more`)));
  if (spec.kind === "stack") {
    rows.reverse();
    if (rows.length > 1) rows.push(h("div", { class: "row sum" }, h("span"), h("span", {}, "together"), h("b", {}, unit.format(sumAt(spec, i)))));
  }
  return [h("p", {}, headOf(spec, i)), ...rows];
}
const sumAt = (spec, i) => spec.series.reduce((sum, one) => sum + (one.values[i] ?? 0), 0);
function spoken(spec, i) {
  if (i < 0) return "";
  const unit = UNITS[spec.unit];
  const texts = spec.says ? spec.says[i].map(([name, text]) => `${name} ${text}`) : spec.series.map((one) => `${one.name} ${unit.format(one.values[i])}`);
  return [headOf(spec, i), ...texts].join(", ");
}
function tableOf(spec) {
  if (spec.table) return spec.table;
  const exact = (value) => (spec.unit === "bytes" ? count(value) : digits(value));
  const suffix = { bytes: " (bytes)", rate: " (bytes/s)", seconds: " (s)", share: " (share)" }[spec.unit] ?? "";
  const columns = [{ name: "round", format: String }];
  if (spec.xUnit !== "round") columns.push({ name: spec.xLabel, format: count });
  columns.push(...spec.series.map((one) => ({ name: `${one.name}${suffix}`, format: exact })));
  const rows = spec.x.map((x, i) => [spec.rounds ? spec.rounds[i] : x, ...(spec.xUnit === "round" ? [] : [x]),
    ...spec.series.map((one) => one.values[i] ?? null)]);
  return { columns, rows };
}

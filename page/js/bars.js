// Horizontal bars of bytes: a bar for each method or setting, each of the same parts.

/** A share of a bar, wide enough for its percentage on a phone. */
const WIDE_SHARE = 0.09;

/**
 * Makes a figure of bars. `parts`: { name, colour, pattern? }; `word`: what a bar is; `whole`: what the parts are together. With
 * `shares` every bar is as long as the others and names its parts' shares. `update` takes { bars: [{ name, values, more?, says?, own? }] } or { empty }.
 */
function makeBars({ id, title, about, word, whole, parts, shares = false }) {
  const list = h("ul", { class: "bars" });
  const empty = h("p", { class: "empty", hidden: true });
  let bars = [];
  const sum = (bar) => bar.values.reduce((a, b) => a + b, 0);
  const table = dataDetails(title, () => ({
    columns: [{ name: word, text: true }, ...[...parts.map((part) => part.name), whole].map((name) => ({ name: `${name} (bytes)`, format: count }))],
    rows: bars.map((bar) => [bar.name, ...bar.values, sum(bar)]),
  }));
  const legend = h("ul", { class: "legend" }, parts.map((part) => h("li", {}, h("span", { class: "entry" }, swatch(part, "stack"), part.name))));
  const element = h("figure", { id, class: "figure wide" }, h("figcaption", {}, h("h3", {}, title), h("p", { class: "about" }, about)), legend, list, empty, table.element);
  const box = (part, value, bar, most) => {
    const share = value / Math.max(sum(bar), 1);
    const drawn = h("span", { class: `part ${part.colour} ${part.pattern ?? ""}`, title: `${part.name}: ${bytes(value)} (${percent(share)})` },
      shares && share >= WIDE_SHARE ? `${Math.round(100 * share)} %` : null);
    drawn.style.width = `${(value / most) * 100}%`;
    return drawn;
  };
  return {
    element,
    update(next) {
      legend.hidden = list.hidden = table.element.hidden = Boolean(next.empty);
      empty.hidden = !next.empty;
      if (next.empty) return say(empty, next.empty);
      bars = next.bars;
      const most = Math.max(...bars.map(sum), 1);
      list.replaceChildren(...bars.map((bar) => h("li", { class: bar.own ? "own" : null }, h("span", { class: "name" }, bar.name),
        h("span", { class: "track", "aria-hidden": "true" }, parts.map((part, k) => box(part, bar.values[k], bar, shares ? Math.max(sum(bar), 1) : most))),
        h("span", { class: "figures" }, h("b", {}, bytes(sum(bar))), bar.more ? ` ${bar.more}` : "", bar.says ? h("span", { class: "ratio" }, ` · ${bar.says}`) : ""))));
      table.draw();
      return undefined;
    },
  };
}

// Draws one chart into an SVG: axes, areas, bars, lines, points. Independent of reports; returns what it drew as `places`.
const BARS_AT_MOST = 60;
const DOTS_AT_MOST = 20;
const SPARSE_DOTS_AT_MOST = 150;
const THIN_FROM = 300;
/** Names at the ends of lines take at most this share of the width; longer ones are only in the legend. */
const TAILS_AT_MOST = 0.25;
const NAMES_AT_MOST = 14;

/**
 * Draws `spec` at a width in pixels. spec: { kind: "stack" | "lines" | "points", x: [number], xUnit: "round" | unit, series: [{ name,
 * colour, dash?, pattern?, join? (the line goes on over missing values), values, band?: [[low, high]] }], unit, log?, low?, high?, compact? (lower, without names at the ends of lines), tall?, xLabel, yLabel, references?: [{ value, name }] }.
 * Of "points", series k has one value, at x[k], and { seeds?: [[x, y]], ring? }; `front` lists those that a stepped line joins, `joined` has a list
 * for each straight line.
 * Returns { svg, places: [x in pixels], heights? (of points), left, right, top, bottom, y(value), cut }.
 */
function draw(spec, width) {
  const height = spec.compact ? (width < 260 ? 116 : 164) : width < 480 ? 220 : spec.tall ? 330 : 250;
  const unit = UNITS[spec.unit];
  const names = spec.kind === "lines" && spec.series.length > 1 && !spec.compact ? spec.series.map((one) => one.short ?? one.name) : [];
  const needed = names.length ? Math.max(...names.map((name) => name.length)) * 6.4 + 12 : 14;
  const tail = needed > width * TAILS_AT_MOST ? 14 : needed;
  const stacked = spec.kind === "stack" ? pile(spec) : null;
  const range = reach(spec, stacked);
  const ticks = spec.log ? logTicks(range.low, range.high, 6, unit) : linearTicks(range.low, range.high, 4, unit);
  const left = Math.max(30, Math.max(...ticks.map((at) => unit.tick(at).length)) * 6.3 + 10);
  const box = { left, right: width - tail, top: spec.compact ? 10 : 30, bottom: height - (spec.compact ? 22 : 38) };
  const y = (spec.log ? d3.scaleLog().base(2) : d3.scaleLinear()).domain([range.low, range.high]).range([box.bottom, box.top]).clamp(true);
  const across = abscissa(spec, box);
  const places = spec.x.map(across.x);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", focusable: "false" });
  svg.append(frame(spec, box, ticks, unit, y, across, width, height));
  const heights = spec.kind === "points" ? spec.series.map((one, k) => y(one.values[k])) : null;
  if (stacked) svg.append(...(across.bar ? bars(spec, stacked, places, across.bar, y) : areas(spec, stacked, places, y)));
  else if (heights) svg.append(...points(spec, across.x, y, places, heights), pointNames(spec, places, heights, box));
  else svg.append(...bands(spec, places, y), ...lines(spec, places, y, box), ...(tail === needed ? [tails(spec, places, y, box)] : []));
  if (range.cut) svg.append(overs(range, stacked, places, box, unit));
  svg.append(references(spec, box, across.x));
  return { svg, places, heights, ...box, height, y, cut: range.cut };
}

/** The stack of every round: for series k at round i, [from, to]; and the totals. */
function pile(spec) {
  const rows = spec.x.map((_, i) => Object.fromEntries(spec.series.map((one, k) => [k, one.values[i] ?? 0])));
  const layers = d3.stack().keys(spec.series.map((_, k) => k))(rows);
  const totals = spec.x.map((_, i) => spec.series.reduce((sum, one) => sum + (one.values[i] ?? 0), 0));
  return { layers, totals };
}

/**
 * The domain of y. A stack of which a few rounds stand far above all others (a first model, sent whole) is cut above the
 * others, else those could not be read; `cut` is then the height cut at, and the rounds beyond are marked with their values.
 */
function reach(spec, stacked) {
  const values = stacked ? stacked.totals : spec.series.flatMap((one) => [...one.values, ...(one.band ?? one.seeds?.map(([, value]) => [value]) ?? []).flat()]);
  const [least, most] = extent(spec.log ? values.filter((value) => value > 0) : values) ?? [0, 1];
  if (spec.log) return most / least < 4 ? { low: least / 2, high: most * 2 } : { low: least / 1.3, high: most * 1.3 };
  const low = spec.low ?? 0;
  const high = spec.high ?? (most > low ? low + (most - low) * 1.06 : low + 1);
  if (stacked && values.length >= 5) {
    const usual = quantile(values.filter((value) => value > 0), values.length < 50 ? 0.8 : 0.97);
    if (usual > 0 && most > usual * 3) return { low, high: usual * 1.35, cut: usual * 1.35 };
  }
  return { low, high };
}

/** The x axis: rounds as bars where they fit, otherwise as points. */
function abscissa(spec, box) {
  const [first, last] = extent(spec.x) ?? [0, 1];
  const span = box.right - box.left;
  if (spec.xUnit === "round") {
    const bar = spec.kind === "stack" && spec.x.length <= BARS_AT_MOST && span / spec.x.length > 4;
    const edge = bar || first === last ? 0.5 : 0;
    const x = d3.scaleLinear().domain([first - edge, last + edge]).range([box.left, box.right]);
    const step = span / (last - first + 2 * edge);
    return { x, bar: bar ? Math.min(44, step * (step > 12 ? 0.72 : 0.86)) : 0, ticks: roundTicks(first, last, Math.max(2, span / 70)), text: count };
  }
  const marks = (spec.references ?? []).map((one) => one.value);
  const [low, high] = extent([first, last, ...marks]);
  const x = d3.scaleLog().base(2).domain([low / 1.1, Math.max(high * 1.25, low * 4)]).range([box.left, box.right]);
  const unit = UNITS[spec.xUnit];
  return { x, bar: 0, ticks: logTicks(...x.domain(), Math.max(2, span / 80), unit), text: unit.tick };
}

function frame(spec, box, ticks, unit, y, across, width, height) {
  const group = s("g", { class: "axes" });
  for (const at of ticks) {
    const level = y(at);
    group.append(s("line", { x1: box.left, x2: box.right, y1: level, y2: level, class: at === 0 ? "base" : "level" }),
      s("text", { x: box.left - 8, y: level, dy: "0.32em", "text-anchor": "end" }, unit.tick(at)));
  }
  if (!ticks.includes(0)) group.append(s("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "base" }));
  for (const at of apart(across.ticks, across.x, across.text)) {
    const place = across.x(at);
    group.append(s("line", { x1: place, x2: place, y1: box.bottom, y2: box.bottom + 4, class: "base" }),
      s("text", { x: place, y: box.bottom + 17, "text-anchor": "middle" }, across.text(at)));
  }
  if (!spec.compact) group.append(s("text", { x: 0, y: 12, class: "label" }, spec.yLabel),
    s("text", { x: box.right, y: height - 4, class: "label", "text-anchor": "end" }, spec.xLabel));
  return group;
}

function bars(spec, { layers }, places, wide, y) {
  return spec.series.map((one, k) => {
    let path = "";
    layers[k].forEach(([from, to], i) => {
      const [low, high] = [y(from), y(to)];
      if (low - high > 0.01) path += `M${(places[i] - wide / 2).toFixed(2)},${low.toFixed(2)}h${wide.toFixed(2)}V${high.toFixed(2)}h${(-wide).toFixed(2)}Z`;
    });
    return solid(one, path);
  });
}
function areas(spec, { layers }, places, y) {
  const shape = d3.area().x((_, i) => places[i]).y0((d) => y(d[0])).y1((d) => y(d[1])).digits(1);
  return spec.series.map((one, k) => solid(one, shape(layers[k])));
}
function solid(one, path) {
  const group = s("g", {}, s("path", { d: path, class: `area ${one.colour}` }));
  if (one.pattern) group.append(s("path", { d: path, fill: `url(#${one.pattern})` }));
  return group;
}

/** The range of each line, under all lines. */
function bands(spec, places, y) {
  const shape = d3.area().defined((range) => range.every(has)).x((_, i) => places[i]).y0(([low]) => y(low)).y1(([, high]) => y(high)).digits(1);
  return spec.series.filter((one) => one.band).map((one) => s("path", { d: shape(one.band) ?? "", class: `band ${one.colour}` }));
}
function lines(spec, places, y, box) {
  return spec.series.map((one) => {
    const there = (value) => has(value) && (!spec.log || value > 0);
    const known = one.values.map((_, i) => i).filter((i) => there(one.values[i]));
    const sparse = one.join && known.length < one.values.length * 0.8 && known.length <= SPARSE_DOTS_AT_MOST;
    const shape = d3.line().defined((i) => there(one.values[i])).x((i) => places[i]).y((i) => y(one.values[i])).digits(1);
    const group = s("g", {}, s("path", { d: shape(one.join ? known : places.map((_, i) => i)) ?? "", class: `line ${one.colour}${places.length > THIN_FROM ? " thin" : ""}`, "stroke-dasharray": one.dash }));
    const few = sparse || (one.values.length <= DOTS_AT_MOST && (box.right - box.left) / one.values.length > 7);
    one.values.forEach((value, i) => {
      const alone = there(value) && (one.join ? known.length === 1 : !there(one.values[i - 1]) && !there(one.values[i + 1]));
      if (there(value) && (few || alone)) group.append(s("circle", { cx: places[i], cy: y(value), r: few ? 2.6 : 1.8, class: `dot ${one.colour}` }));
    });
    return group;
  });
}

/** Names at the ends of lines, spaced so that they do not overlap. */
function tails(spec, places, y, box) {
  const group = s("g", { class: "tails" });
  if (spec.series.length < 2 || spec.compact) return group;
  const ends = spec.series.map((one) => {
    const i = one.values.findLastIndex((value) => has(value) && (!spec.log || value > 0));
    return i < 0 ? null : { one, at: y(one.values[i]) };
  }).filter(Boolean).sort((a, b) => a.at - b.at);
  const gap = 13;
  ends.forEach((end, k) => {
    end.place = Math.max(end.at, k ? ends[k - 1].place + gap : box.top);
  });
  for (let k = ends.length - 1, floor = box.bottom + 2; k >= 0; k -= 1) {
    ends[k].place = Math.min(ends[k].place, floor);
    floor = ends[k].place - gap;
  }
  for (const end of ends) {
    group.append(s("text", { x: box.right + 8, y: end.place, dy: "0.32em", class: `tail ${end.one.colour}` }, end.one.short ?? end.one.name));
  }
  return group;
}

function points(spec, x, y, places, heights) {
  const front = (spec.front ?? []).map((k, i) => (i ? `H${places[k].toFixed(1)}V${heights[k].toFixed(1)}` : `M${places[k].toFixed(1)},${heights[k].toFixed(1)}`));
  const joined = (spec.joined ?? []).map((line) => s("path", { d: `M${line.map((k) => `${places[k].toFixed(1)},${heights[k].toFixed(1)}`).join("L")}`,
    class: `line ${spec.series[line[0]].colour}` }));
  return [s("path", { d: front.join(""), class: "front" }), ...joined,
    ...spec.series.flatMap((one) => (one.seeds ?? []).map(([at, value]) => s("circle", { cx: x(at), cy: y(value), r: 2.5, class: `seed ${one.colour}` }))),
    ...spec.series.map((one, k) => s("circle", { cx: places[k], cy: heights[k], r: 6, class: `dot ${one.colour}${one.ring ? " ring" : ""}` }))];
}
/** Names beside their points, moved where they would cover another; none where they are many or the chart is narrow. */
function pointNames(spec, places, heights, box) {
  const group = s("g", { class: "names" });
  if (spec.series.length > NAMES_AT_MOST || box.right - box.left < 400) return group;
  const taken = [];
  for (const k of spec.series.map((_, i) => i).sort((a, b) => heights[a] - heights[b])) {
    const wide = spec.series[k].name.length * 7;
    const left = places[k] + 11 + wide < box.right ? places[k] + 11 : places[k] - 11 - wide;
    if (left < 0) continue;
    const free = (top) => top > box.top && top < box.bottom && !taken.some((other) => Math.abs(top - other.top) < 13 && left < other.right && other.left < left + wide);
    // A line leaves its point to the right and downwards.
    const start = heights[k] + (spec.joined ? -4 : 4);
    const steps = Array.from({ length: 40 }, (_, i) => 13 * i);
    const top = [...steps.map((step) => start + step), ...steps.map((step) => start - step)].find(free) ?? start;
    taken.push({ left, right: left + wide, top });
    group.append(s("text", { x: left, y: top }, spec.series[k].name));
  }
  return group;
}

/** Marks the rounds that exceed a cut axis; the highest get their values. */
function overs(range, { totals }, places, box, unit) {
  const group = s("g", { class: "overs" });
  const beyond = totals.map((total, i) => ({ total, i })).filter((one) => one.total > range.cut);
  for (const { i } of beyond) group.append(s("path", { d: `M${places[i] - 4},${box.top - 3}h8l-4,-6z` }));
  const taken = beyond.map(({ i }) => [places[i] - 5, places[i] + 5]);
  const wide = 62;
  for (const { total, i } of [...beyond].sort((a, b) => b.total - a.total).slice(0, 3)) {
    const free = (from) => from >= box.left - 4 && from + wide <= box.right + 4 && !taken.some(([low, high]) => low < from + wide && high > from);
    const right = free(places[i] + 6);
    if (!right && !free(places[i] - 6 - wide)) continue;
    group.append(s("text", { x: places[i] + (right ? 7 : -7), y: box.top - 3, "text-anchor": right ? "start" : "end" }, unit.format(total)));
    taken.push(right ? [places[i] + 6, places[i] + 6 + wide] : [places[i] - 6 - wide, places[i] - 6]);
  }
  return group;
}

/** Upright lines with their names along them. */
function references(spec, box, x) {
  const group = s("g", { class: "references" });
  (spec.references ?? []).forEach((one) => {
    const place = x(one.value);
    group.append(s("line", { x1: place, x2: place, y1: box.top, y2: box.bottom }),
      s("text", { transform: `translate(${place - 6},${box.bottom - 10}) rotate(-90)` }, one.name));
  });
  return group;
}

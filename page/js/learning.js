// The learners' metrics against rounds; density and size of the updates.
function metricsSection() {
  const metrics = metricFigures();
  return {
    id: "metrics", title: "Metrics", about: "named by the learners, round by round", parts: [metrics],
    has: ({ rounds }) => Object.keys(rounds).some((key) => key.includes("/")),
    update: ({ rounds }) => metrics.update(rounds),
  };
}
/** A figure for each metric of the learners, training and evaluation in one, made when the metric first appears. */
function metricFigures() {
  const end = h("span", { hidden: true });
  const figures = new Map();
  const kinds = [["train", { name: "training", colour: "orange", dash: "5 3" }, "the training"],
    ["evaluation", { name: "evaluation", colour: "blue", join: true }, "the round's model on held-out examples"]];
  return {
    element: end,
    update(rounds) {
      const names = new Set(Object.keys(rounds).filter((key) => key.includes("/")).map((key) => key.slice(key.indexOf("/") + 1)));
      for (const name of [...names].sort()) {
        if (figures.has(name)) continue;
        const figure = makeFigure({ id: `metric-${name.replaceAll(" ", "-")}`, title: name, about: "" });
        figures.set(name, figure);
        end.before(figure.element);
      }
      for (const [name, figure] of figures) {
        const series = kinds.map(([kind, look, of]) => ({ ...look, of, values: rounds[`${kind}/${name}`] ?? [] })).filter((one) => one.values.some(has));
        const about = `A metric of ${series.map((one) => one.of).join(", and of ")}: mean over the clients that report it, with their weights.`;
        figure.element.hidden = !series.length;
        const [low] = extent(series.flatMap((one) => one.values)) ?? [0];
        if (series.length) plotted(figure, rounds, null, series, "number", name, "", { about, low: Math.min(0, low * 1.06) });
      }
    },
  };
}
/** Socket bytes of both directions from the first round to the end of each. */
function cumulative(rounds) {
  let sum = 0;
  return rounds.round.map((_, i) => (sum += rounds.socket_up[i] + rounds.socket_down[i]));
}
function plotted(figure, rounds, moved, series, unit, yLabel, none, more) {
  if (!series.some((one) => one.values.some(has))) return figure.update({ empty: none });
  return figure.update({ kind: "lines", x: moved ?? rounds.round, rounds: rounds.round, xUnit: moved ? "bytes" : "round", series, unit,
    xLabel: moved ? "bytes moved, log scale" : "round", yLabel, ...more });
}

function codingSection() {
  const bits = makeFigure({ id: "bits", title: "Bits per parameter", about: "Bits of frame for each parameter of the model; fp32 is 32." });
  const density = makeFigure({ id: "density", title: "Density", about: "Share of parameters that decode to a nonzero value." });
  const rank = makeFigure({ id: "rank", wide: true, title: "Rank of low-rank tensors", about: "Mean over the tensors that have a rank." });
  const map = makeHeat({ id: "tensor-map", title: "Tensors by rounds", about: "Each tensor in each round; small tensors that are coded together share a row.", rowWord: "tensor" });
  const list = makeTable({ caption: "Tensors, all rounds together", sortable: true, columns: [{ name: "tensor", text: true }, { name: "direction", text: true },
    { name: "parameters", format: count }, { name: "bytes", format: bytes }, { name: "share", format: percent }, { name: "bits per parameter", format: digits },
    { name: "mean density", format: percent }, { name: "mean cosine", format: digits }, { name: "least cosine", format: digits },
    { name: "energy kept", format: percent }, { name: "oldest residual", format: digits }, { name: "recipe", format: bytes }, { name: "index", format: bytes }, { name: "scale", format: bytes }, { name: "values", format: bytes }] });
  const block = h("div", { class: "block wide" }, h("h3", {}, "Tensors, all rounds together"), list.element);
  return {
    id: "tensors", title: "Tensors", about: "bits, density and fidelity of each", parts: [bits, density, rank, map, { element: block }],
    update({ rounds, tensors }) {
      const pair = (up, down) => [{ name: "updates (up)", short: "up", colour: "blue", values: up }, { name: "model update (down)", short: "down", colour: "orange", dash: "5 3", values: down }]
        .filter((one) => one.values.some(has));
      plotted(bits, rounds, null, pair(rounds.bits_up, rounds.bits_down), "number", "bits", "No frame has been made yet.", {});
      plotted(density, rounds, null, pair(rounds.density_up, rounds.density_down), "share", "density", "No density is known for this run.", {});
      const ranks = pair(meanRank(rounds, tensors, "up"), meanRank(rounds, tensors, "down"));
      rank.element.hidden = !ranks.length;
      if (ranks.length) plotted(rank, rounds, null, ranks, "number", "mean rank", "", {});
      map.update(tensorMap(rounds, tensors));
      const rows = tensorRows(tensors);
      block.hidden = !rows.length;
      list.update(rows);
    },
  };
}
function meanRank(rounds, tensors, way) {
  const place = new Map(rounds.round.map((round, i) => [round, i]));
  const sums = rounds.round.map(() => [0, 0]);
  (tensors?.rank ?? []).forEach((rank, i) => {
    const at = place.get(tensors.round[i]);
    if (!has(rank) || tensors.direction[i] !== way || at === undefined) return;
    sums[at][0] += rank;
    sums[at][1] += 1;
  });
  return sums.map(([sum, n]) => (n ? sum / n : null));
}
function tensorMap(rounds, tensors) {
  if (!tensors?.round?.length) return { empty: "This report has no data per tensor." };
  const names = [...new Set(tensors.tensor)];
  const rowOf = new Map(names.map((name, i) => [name, i]));
  const choices = [];
  const wanted = [["bytes", "bytes", "bytes"], ["bits", "bits per parameter", "number"], ["density", "density", "share"], ["cosine", "cosine with the update before compression", "number"],
    ["kept", "energy kept", "share"], ["age_most", "age of the oldest residual", "number"], ["rank", "rank", "number"]];
  const columnOf = new Map(rounds.round.map((round, i) => [round, i]));
  for (const [way, ofWhat] of [["up", "updates (up)"], ["down", "model update (down)"]]) {
    for (const [column, name, unit] of wanted) {
      const values = tensors[column] ?? [];
      const fill = (cells) => values.forEach((value, i) => {
        const at = columnOf.get(tensors.round[i]);
        if (!has(value) || tensors.direction[i] !== way || at === undefined) return;
        cells[rowOf.get(tensors.tensor[i]) * rounds.round.length + at] = value;
      });
      if (values.some((value, i) => has(value) && tensors.direction[i] === way)) choices.push({ key: `${way}-${column}`, name: `${name}, ${ofWhat}`, unit, fill });
    }
  }
  return choices.length ? { rows: names, rounds: rounds.round, choices } : { empty: "This report has no data per tensor." };
}
function tensorRows(tensors) {
  const sums = new Map();
  let all = 0;
  (tensors?.round ?? []).forEach((_, i) => {
    const key = `${tensors.tensor[i]}\n${tensors.direction[i]}`;
    const sum = sums.get(key) ?? { tensor: tensors.tensor[i], direction: tensors.direction[i], parameters: tensors.parameters[i], bytes: 0, coded: 0, density: 0, n: 0,
      cosine: 0, kept: 0, figures: 0, least: null, age: null, parts: [0, 0, 0, 0] };
    sum.bytes += tensors.bytes[i];
    sum.coded += tensors.parameters[i] * tensors.frames[i];
    if (has(tensors.density?.[i])) {
      sum.density += tensors.density[i];
      sum.n += 1;
    }
    const figures = tensors.figures?.[i] ?? 0;
    if (figures > 0) {
      sum.figures += figures;
      sum.cosine += (tensors.cosine[i] ?? 0) * figures;
      sum.kept += (tensors.kept[i] ?? 0) * figures;
      sum.least = Math.min(sum.least ?? 1, tensors.cosine_least[i] ?? 1);
      sum.age = Math.max(sum.age ?? 0, tensors.age_most[i] ?? 0);
    }
    ["recipe_bytes", "index_bytes", "scale_bytes", "value_bytes"].forEach((part, k) => {
      sum.parts[k] += tensors[part]?.[i] ?? 0;
    });
    all += tensors.bytes[i];
    sums.set(key, sum);
  });
  return [...sums.values()].sort((a, b) => b.bytes - a.bytes).map((sum) => [sum.tensor, sum.direction, sum.parameters, sum.bytes, sum.bytes / all,
    sum.coded ? (sum.bytes * 8) / sum.coded : null, sum.n ? sum.density / sum.n : null,
    sum.figures ? sum.cosine / sum.figures : null, sum.least, sum.figures ? sum.kept / sum.figures : null, sum.age, ...sum.parts]);
}

// Makes a report as fl-report writes it in JSON, of R rounds and C clients, from a seed: for looking at the page and for its tests.
// It must hold the identities a real report holds (parts add up to sockets), or the page's figures would not be tested by it.
import { writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const FLOW = ["update", "refused", "aborted", "evaluation", "control_up", "heartbeat_up", "transport_up", "socket_up", "steps",
  "snapshot", "control_down", "heartbeat_down", "transport_down", "socket_down", "connections", "retries", "upload_ms", "download_ms"];
const ROUND = ["round", "closed", "attempts", "asked", "updates", "examples", "loss", "accuracy", "perplexity", "evaluation_loss", "evaluated",
  "opened_ms", "seconds", "aggregate_seconds", "train_seconds", "encode_seconds", "wait_seconds", "finish_median", "finish_last",
  "fp32_up", "reduced_up", "quantized_up", "coded_up", "framed_up", "bound_up", "fp32_down", "reduced_down", "quantized_down",
  "coded_down", "framed_down", "bound_down", "bits_up", "bits_down", "density_up", "density_down", ...FLOW, "metered_up",
  "metered_down", "balanced", "model", "frame", "link"];
const CLIENT = ["client", "asked", "updates", "examples", "evaluated_version", "accuracy", "evaluation_loss", "train_seconds", "encode_seconds", "wait_seconds", "finish_mean", "framed", ...FLOW];
const PART = ["round", "client", "asked", "updated", "examples", "loss", "finish_seconds", "train_seconds", "encode_seconds",
  "wait_seconds", "fp32", "reduced", "quantized", "coded", "framed", "bound", ...FLOW];
const TENSOR = ["round", "direction", "tensor", "parameters", "frames", "recipe_bytes", "index_bytes", "scale_bytes", "value_bytes",
  "bytes", "density", "rank", "bits", "figures", "cosine", "cosine_least", "kept", "kept_least", "age", "age_most"];
/** The columns of participations that the page reads; the server leaves out the rest. */
export const PAGE_PARTICIPATIONS = ["round", "client", "updated", "finish_seconds", "train_seconds", "retries", "socket_up", "socket_down"];

const LAYERS = [["conv1.weight", 864], ["conv2.weight", 51_200], ["conv3.weight", 73_728], ["fc1.weight", 409_600],
  ["fc2.weight", 32_768], ["head.weight", 1_280], ["12 small tensors", 1_418]];

const SETTINGS = [["train", "batch_size 32, epochs 1, learning_rate 0.05"],
  ["updates", "budget 0.25 to 1 bits, error 0.25 to 0.8 by round 6, auto > dead_zone > context, memory cafe"],
  ["model updates", "budget 0.25 to 1 bits, error 0.25 to 0.8 by round 6, auto > dead_zone > context, memory error-feedback"],
  ["cohort", "size 10, min 8, target 10"], ["aggregator", "mean"], ["optimizer", "fedavg, learning_rate 1.0"], ["seed", "42"], ["learner", "lenet"]];

/** Figures of a tensor's frames. */
function fidelity(figures, tensor, weight) {
  if (!figures) return { figures, cosine: null, cosine_least: null, kept: null, kept_least: null, age: null, age_most: null };
  const cosine = three(0.9 - weight / 3);
  return { figures, cosine, cosine_least: three(cosine / 2), kept: three(cosine ** 2), kept_least: three(cosine ** 2 / 2),
    age: tensor === "fc1.weight" ? 1.5 : 0, age_most: tensor === "fc1.weight" ? 3 : 0 };
}

/** A stream of numbers in [0, 1), the same for the same seed (mulberry32). */
function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const table = (names) => Object.fromEntries(names.map((name) => [name, []]));
function push(columns, row) {
  for (const name of Object.keys(columns)) columns[name].push(row[name] ?? null);
}
const noFlow = () => Object.fromEntries(FLOW.map((name) => [name, 0]));
function add(sum, flow) {
  for (const name of FLOW) sum[name] += flow[name];
}
const three = (x) => Math.round(x * 1000) / 1000;

/**
 * A report. `rounds` and `clients` are numbers; `seed` decides all else. Options: `unbalanced` (a round whose parts do not
 * add up to its sockets), `running` (the last round is still open), `blind` (no accuracy, no evaluation), `full` (all columns
 * of participations), `ranks` (a low-rank recipe), `costs` (money and carbon), `language` (perplexity instead of accuracy, and
 * metrics of the learners), `mixed` (both kinds of clients).
 */
export function sample({ rounds = 40, clients = 10, seed = 1, unbalanced = false, running = false, blind = false, full = false,
  ranks = false, costs = false, language = false, mixed = false } = {}) {
  const rnd = random(seed);
  const hex = (n) => Array.from({ length: n }, () => Math.floor(rnd() * 16).toString(16)).join("");
  const names = Array.from({ length: clients }, (_, i) => `clinic-${String(i + 1).padStart(clients > 99 ? 3 : 2, "0")}`);
  const speed = names.map(() => 0.6 + rnd() * 0.9);
  const link = names.map(() => 0.4e6 * (0.35 + rnd() * 2.2));
  const flaky = names.map(() => (rnd() < 0.15 ? 0.12 : 0.01));
  const share = names.map(() => Math.round(300 + rnd() * 1500));
  const parameters = LAYERS.reduce((n, [, len]) => n + len, 0);
  const fp32 = parameters * 4;
  const report = { schema: 1, rounds: table(ROUND), clients: table(CLIENT), participations: table(full ? PART : PAGE_PARTICIPATIONS),
    tensors: table(TENSOR) };
  const people = new Map([...names, "-"].map((client) => [client, { client, asked: 0, updates: 0, examples: 0, train_seconds: 0,
    encode_seconds: 0, wait_seconds: 0, finish: 0, framed: 0, ...noFlow() }]));
  const totals = noFlow();
  const metered = { up: 0, down: 0 };
  let clock = Date.UTC(2026, 10, 20, 8, 30, 0);
  const opened = clock;

  for (let r = 0; r < rounds; r++) {
    const progress = 1 - Math.exp(-(r + 1) / Math.max(6, rounds * 0.18));
    const open = running && r === rounds - 1;
    const line = { round: r + 1, closed: !open, attempts: rnd() < 0.03 ? 2 : 1, asked: 0, updates: 0, examples: 0, opened_ms: clock,
      aggregate_seconds: three(0.11 + rnd() * 0.06), train_seconds: 0, encode_seconds: 0, wait_seconds: 0, bound_up: 0,
      fp32_up: 0, reduced_up: 0, quantized_up: 0, coded_up: 0, framed_up: 0, ...noFlow() };
    const density = 0.05 + 0.06 * Math.exp(-r / (rounds * 0.4 + 1)) + rnd() * 0.004;
    const finishes = [];
    const rows = [];
    let raw = 0;
    for (let c = 0; c < clients; c++) {
      const asked = clients <= 12 || rnd() < 0.9;
      const flow = noFlow();
      const row = { round: r + 1, client: names[c], asked, updated: false, examples: 0, train_seconds: 0, encode_seconds: 0,
        wait_seconds: 0, fp32: 0, reduced: 0, quantized: 0, coded: 0, framed: 0, bound: 0 };
      flow.heartbeat_up = 39 * (1 + Math.floor(rnd() * 4));
      flow.heartbeat_down = 39 * (1 + Math.floor(rnd() * 4));
      flow.control_up = 240 + Math.floor(rnd() * 90);
      flow.control_down = 310 + Math.floor(rnd() * 90);
      flow.connections = r === 0 || rnd() < 0.02 ? 1 : 0;
      if (r === 0 || (flow.connections && rnd() < 0.5)) {
        flow.snapshot = fp32 + 1_204;
        flow.download_ms = Math.round((flow.snapshot / link[c] / 3) * 1000);
      }
      if (asked) {
        line.asked += 1;
        const lost = rnd() < flaky[c] * 0.5;
        if (r > 0 && !flow.snapshot) {
          flow.steps = Math.round(fp32 * 0.052 * (0.97 + 0.05 * Math.exp(-r / 30)));
          flow.download_ms = Math.max(1, Math.round((flow.steps / link[c] / 3) * 1000));
        }
        const reduced = Math.round(fp32 * density);
        const framed = Math.round(reduced * (0.23 + rnd() * 0.01) + 96);
        row.train_seconds = three((2.4 + share[c] / 700) * speed[c] * (0.92 + rnd() * 0.16));
        if (!lost && !(open && rnd() < 0.5)) {
          row.updated = true;
          row.examples = share[c];
          row.loss = three(2.2 * Math.exp(-3 * progress) + 0.22 + rnd() * 0.08);
          row.encode_seconds = three(0.03 + rnd() * 0.02);
          row.fp32 = fp32;
          row.reduced = reduced;
          row.quantized = Math.round(reduced * 0.31);
          row.coded = framed - 96;
          row.framed = framed;
          row.bound = three(row.coded * (0.985 + rnd() * 0.01));
          flow.update = framed;
          if (rnd() < flaky[c]) {
            flow.retries = 1;
            flow.aborted = Math.round(framed * rnd());
          }
          if (rnd() < 0.002) flow.refused = framed;
          flow.upload_ms = Math.round(((flow.update + flow.aborted + flow.refused) / link[c]) * 1000 * (0.9 + rnd() * 0.3));
          row.finish_seconds = three(row.train_seconds + row.encode_seconds + (flow.upload_ms + flow.download_ms) / 1000);
          finishes.push(row.finish_seconds);
        } else if (lost) {
          flow.aborted = Math.round(framed * rnd());
          flow.retries = 2;
          flow.upload_ms = Math.round((flow.aborted / link[c]) * 1000);
        }
        if (!blind) flow.evaluation = 180 + Math.floor(rnd() * 20);
      }
      const up = flow.update + flow.refused + flow.aborted + flow.evaluation + flow.control_up;
      const down = flow.steps + flow.snapshot + flow.control_down;
      flow.transport_up = 420 + Math.ceil(up / 16_000) * 31 + flow.connections * 1_900;
      flow.transport_down = 380 + Math.ceil(down / 16_000) * 31 + flow.connections * 3_100;
      flow.socket_up = up + flow.heartbeat_up + flow.transport_up;
      flow.socket_down = down + flow.heartbeat_down + flow.transport_down;
      rows.push({ ...row, ...flow });
    }
    const last = finishes.length ? Math.max(...finishes) : null;
    for (const row of rows) {
      if (row.updated) {
        row.wait_seconds = three(last - row.finish_seconds + line.aggregate_seconds);
        for (const stage of ["fp32", "reduced", "quantized", "coded", "framed"]) line[`${stage}_up`] += row[stage];
        line.bound_up += row.bound;
        raw += (row.loss ?? 0) * row.examples;
        line.updates += 1;
        line.examples += row.examples;
        for (const name of ["train_seconds", "encode_seconds", "wait_seconds"]) line[name] = three(line[name] + row[name]);
      }
      add(line, row);
      const person = people.get(row.client);
      person.asked += row.asked ? 1 : 0;
      person.updates += row.updated ? 1 : 0;
      person.examples += row.examples;
      person.finish += row.finish_seconds ?? 0;
      person.framed += row.framed;
      for (const name of ["train_seconds", "encode_seconds", "wait_seconds"]) person[name] = three(person[name] + row[name]);
      add(person, row);
      push(report.participations, row);
    }
    if (r === 0) {
      const probe = { ...noFlow(), transport_up: 512, socket_up: 512, transport_down: 190, socket_down: 190, connections: 1 };
      add(line, probe);
      add(people.get("-"), probe);
    }
    line.loss = line.examples ? three(raw / line.examples) : null;
    if (!open) {
      line.seconds = three((last ?? 20) + line.aggregate_seconds + 0.2);
      finishes.sort((a, b) => a - b);
      line.finish_median = finishes[finishes.length >> 1] ?? null;
      line.finish_last = last;
      if (!blind && rnd() > 0.02) {
        line.accuracy = three(0.1 + 0.82 * progress + (rnd() - 0.5) * 0.012);
        line.evaluation_loss = three(2.25 * Math.exp(-2.6 * progress) + 0.29 + (rnd() - 0.5) * 0.02);
        line.evaluated = 10_000;
      }
      line.fp32_down = fp32;
      line.reduced_down = fp32;
      line.quantized_down = Math.round(fp32 * 0.066);
      line.coded_down = Math.round(fp32 * 0.0517);
      line.framed_down = line.coded_down + 104;
      line.bound_down = three(line.coded_down * 0.99);
      line.bits_down = three((line.framed_down * 8) / parameters);
      line.density_down = three(0.62 - 0.2 * progress + rnd() * 0.01);
      line.model = hex(64);
      line.frame = hex(64);
      line.link = hex(64);
    } else {
      line.seconds = null;
    }
    if (line.updates) {
      line.bits_up = three((line.framed_up * 8) / (parameters * line.updates));
      line.density_up = three(density);
    }
    line.metered_up = line.socket_up + (unbalanced && r === Math.floor(rounds / 2) ? 1_431 : 0);
    line.metered_down = line.socket_down;
    line.balanced = line.metered_up === line.socket_up && line.metered_down === line.socket_down;
    metered.up += line.metered_up;
    metered.down += line.metered_down;
    add(totals, line);
    push(report.rounds, line);
    for (const direction of ["up", "down"]) {
      if (direction === "down" && open) continue;
      for (const [tensor, len] of LAYERS) {
        const frames = direction === "up" ? line.updates : 1;
        const weight = (len / parameters) * (tensor.startsWith("conv") ? 1.5 : 0.93);
        const bytes = Math.round((direction === "up" ? line.framed_up : line.framed_down) * weight);
        const recipe = 14 * frames;
        const scale = Math.round(bytes * 0.03);
        const index = direction === "up" ? Math.round(bytes * 0.41) : 0;
        const low = ranks && tensor.startsWith("fc");
        push(report.tensors, { round: r + 1, direction, tensor, parameters: len, frames, recipe_bytes: recipe, index_bytes: index,
          scale_bytes: scale, value_bytes: Math.max(0, bytes - recipe - index - scale), bytes,
          density: direction === "up" ? (low ? null : three(density * (0.6 + weight))) : line.density_down,
          rank: low && direction === "up" ? 4 + Math.floor(4 * Math.exp(-r / (rounds * 0.3 + 1)) + rnd()) : null,
          bits: frames ? three((bytes * 8) / (len * frames)) : null, ...fidelity(frames, tensor, weight) });
      }
    }
    clock += Math.round(((line.seconds ?? 9) + 0.4) * 1000);
  }

  const own = random(seed + 1);
  for (const person of people.values()) {
    if (person.client === "-" && rounds === 0) continue;
    // A stream of its own, so that all else stays as it was.
    const known = blind || language || person.client === "-" ? null : own();
    Object.assign(person, { evaluated_version: known === null ? 0 : rounds, accuracy: known === null ? null : three(0.86 + known * 0.1),
      evaluation_loss: known === null ? null : three(0.5 - known * 0.3) });
    push(report.clients, { ...person, finish_mean: person.updates ? three(person.finish / person.updates) : null });
  }
  const framed = report.rounds.framed_up.reduce((a, b) => a + b, 0);
  // A round counts once its model has reached the clients.
  const through = running ? Math.max(0, rounds - 2) : rounds;
  const first = (values) => values.slice(0, through).reduce((a, b) => a + b, 0);
  const baseline = (name, width) => {
    const up = first(report.rounds.updates) * parameters * width;
    const down = first(report.rounds.asked) * parameters * width;
    return { name, through, up, down, frames_ratio: framed ? three((up + down) / (framed + totals.steps + totals.snapshot)) : null,
      socket_ratio: totals.socket_up ? three((up + down) / (totals.socket_up + totals.socket_down)) : null };
  };
  const state = rounds === 0 ? "waiting for clients" : running ? `running: round ${rounds} is open` : `done after ${rounds} rounds`;
  report.run = { name: "fashion-mnist-topk", task: "fashion-mnist", state, planned: running ? rounds + 12 : rounds || 40, parameters,
    version: "0.4.0", model: rounds ? hex(64) : "", instance: hex(32), opened_ms: opened, until_ms: clock, chain: rounds ? hex(64) : "" };
  report.settings = { words: SETTINGS, run_toml: `# A comment\nname = "${report.run.name}"\nrounds = ${report.run.planned}\n` };
  report.notes = blind ? [] : ["0.9 bits per value were sent down where the budget asks for 0.25: the limit of the error, 0.25 to 0.8 by round 6; `budget` in [compression.downlink] changes it."];
  if (language || mixed) measure(report.rounds, mixed);
  report.totals = totals;
  report.pending = { ...noFlow(), ...(running ? { socket_up: 3_100, socket_down: 412 } : {}) };
  report.metered_up = metered.up;
  report.metered_down = metered.down;
  report.balanced = report.rounds.balanced.every(Boolean);
  report.baselines = rounds ? [baseline("fedavg-fp32", 4), baseline("fedavg-fp16", 2)] : [];
  const kinds = [["updates", totals.update, "uplink"], ["model updates", totals.steps, "downlink"], ["whole models", totals.snapshot, "downlink"]].sort((a, b) => b[1] - a[1]);
  const all = totals.socket_up + totals.socket_down;
  report.savings = { cost: kinds.map(([name]) => name), bytes: kinds.map(([, bytes]) => bytes), share: kinds.map(([, bytes]) => (all ? bytes / all : null)),
    why: kinds.map(([name]) => `Clients moved ${name}.`), change: kinds.map(([, , way]) => `Lower \`budget\` in [compression.${way}] of run.toml.`) };
  if (!rounds) for (const name of Object.keys(report.savings)) report.savings[name] = [];
  if (costs) {
    const gb = 1e9;
    const up = (totals.socket_up / gb) * 0.09;
    const down = (totals.socket_down / gb) * 0.05;
    const kwh = ((totals.socket_up + totals.socket_down) / gb) * 0.06;
    report.costs = { currency: "EUR", money_up: up, money_down: down, money: up + down, kwh, co2_g: kwh * 230 };
  }
  return report;
}

/** Makes the run one of a language model, of some of its clients or of all. */
function measure(rounds, mixed) {
  const each = (value) => rounds.evaluation_loss.map((loss, i) => (loss === null ? null : three(value(loss, i))));
  rounds.evaluation_loss = each((loss) => loss * 2);
  rounds.perplexity = each((loss) => Math.exp(loss));
  if (!mixed) rounds.accuracy = each(() => 0).map(() => null);
  rounds["train/grad/norm"] = rounds.loss.map((loss, i) => (loss === null ? null : three(loss + Math.sin(i))));
  rounds["train/top5"] = rounds.loss.map((loss) => (loss === null ? null : three(Math.exp(-loss))));
  rounds["evaluation/top5"] = each((loss) => Math.exp(-loss / 2));
  rounds["evaluation/reward"] = each((loss, i) => Math.cos(i / 3) - loss);
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const options = {};
  let out = null;
  for (const word of process.argv.slice(2)) {
    const [key, value] = word.split("=");
    if (key === "out") out = value;
    else options[key] = value === undefined ? true : Number(value);
  }
  const text = JSON.stringify(sample(options));
  if (out) writeFileSync(out, text);
  else process.stdout.write(text);
}

// The head: which run, in what state, when it ends, how good it is, and whether the ledger is the sockets, to the byte.
function makeHead() {
  const title = h("h1");
  const state = h("span", { class: "state" });
  const facts = h("p", { class: "facts" });
  const cost = h("p", { class: "cost" });
  const verdict = h("div", { class: "verdict", role: "status" });
  const done = h("span", { class: "bar" });
  const track = h("div", { class: "track", role: "progressbar", "aria-label": "Rounds", "aria-valuemin": 0 }, done);
  const ends = h("span");
  const progress = h("div", { class: "progress" }, track, ends);
  const element = h("header", { class: "head" }, h("div", { class: "title" }, title, state, facts), progress, cost, verdict);
  let last = null;
  let open = null;
  let drawn = "";
  function figures(report) {
    judge(verdict, report);
    const parts = sentence(report);
    // What has not changed stays, so that it can be selected.
    const key = parts.map((part) => part.textContent ?? part).join("");
    if (key === drawn) return;
    drawn = key;
    cost.replaceChildren(...parts);
  }
  function count_down() {
    if (!last) return;
    const { run, rounds } = last;
    const closed = closedRounds(rounds);
    done.style.width = `${Math.min(100, (closed / Math.max(1, run.planned)) * 100)}%`;
    track.setAttribute("aria-valuemax", run.planned);
    track.setAttribute("aria-valuenow", closed);
    track.setAttribute("aria-valuetext", `${count(closed)} of ${count(run.planned)} rounds`);
    say(ends, `${count(closed)} of ${count(run.planned)} rounds${expected(last, open)}`);
  }
  return {
    element,
    update(report) {
      last = report;
      const { run } = report;
      say(title, run.name || "unnamed run");
      say(state, run.state);
      state.classList.toggle("running", !isOver(run));
      document.title = `${run.name} · communication report`;
      facts.replaceChildren(...[run.task, `${count(run.parameters)} parameters`,
        run.opened_ms > 0 ? span(run.opened_ms, run.until_ms) : null].filter(Boolean).map((fact) => h("span", {}, fact)));
      count_down();
      figures(report);
    },
    /** The moment of live.json, between two reports: the open round, and in `moved` the bytes so far. */
    now(live) {
      open = live;
      count_down();
      const { moved } = live;
      if (!moved || !last) return;
      const { socket_up, socket_down, pending_up, pending_down, ratio, through, balanced } = moved;
      const baselines = last.baselines?.map((one) => (one.name === "fedavg-fp32" ? { ...one, socket_ratio: ratio, through } : one));
      figures({ ...last, baselines, balanced, totals: { ...last.totals, socket_up, socket_down }, pending: { socket_up: pending_up, socket_down: pending_down },
        metered_up: balanced ? socket_up : last.metered_up, metered_down: balanced ? socket_down : last.metered_down });
    },
  };
}
const isOver = (run) => /^(done|finished|failed|stopped)/.test(run.state);
/** Seconds that a round usually takes: the median of the last five that have closed; null before one has. */
const usualSeconds = ({ closed, seconds }) => quantile(seconds.filter((value, i) => closed[i] && has(value)).slice(-5), 0.5);
/** When the run ends if the rounds left take as long as the last ones; how long it took if it is over. */
function expected({ run, rounds }, open) {
  const usual = usualSeconds(rounds);
  if (isOver(run)) return run.until_ms > run.opened_ms ? ` in ${duration((run.until_ms - run.opened_ms) / 1000)}` : "";
  const left = run.planned - closedRounds(rounds);
  if (!has(usual) || left <= 0) return "";
  const now = open?.now_ms;
  const passed = has(now) && has(open.opened_ms) ? Math.min(usual, Math.max(0, (now - open.opened_ms) / 1000)) : 0;
  const seconds = usual * left - passed;
  return `, ~${whole(Math.ceil(seconds))} left${has(now) ? ` (until ~${clock(now + seconds * 1000)} ${zone(now)})` : ""}`;
}
const closedRounds = (rounds) => rounds.closed.filter(Boolean).length;
/** The best and the newest value of a column, each with its round; null where no round has one. */
function extremes(rounds, column, better) {
  const values = rounds[column] ?? [];
  let best = -1;
  values.forEach((value, i) => {
    if (has(value) && (best < 0 || better(value, values[best]))) best = i;
  });
  const newest = values.findLastIndex(has);
  return best < 0 ? null : { best: values[best], bestRound: rounds.round[best], newest: values[newest], newestRound: rounds.round[newest] };
}
/** What the run is measured by: accuracy, or perplexity where no client classifies. Null where no round was evaluated. */
function reached(rounds) {
  const accuracy = extremes(rounds, "accuracy", (a, b) => a > b);
  if (accuracy) return { ...accuracy, name: "accuracy", article: "an", format: percent };
  const perplexity = extremes(rounds, "perplexity", (a, b) => a < b);
  return perplexity && { ...perplexity, name: "perplexity", article: "a", format: digits };
}
/** Whether something of the run is still to come, so that its saving is not final. */
const isOpen = (report) => (fedavg(report)?.through ?? 0) < (report.rounds.round.at(-1) ?? 0);
const fedavg = (report) => report.baselines?.find((one) => one.name === "fedavg-fp32");

function sentence(report) {
  const { totals, rounds, clients } = report;
  if (!rounds.round.length) return ["No round has opened yet, so there is no traffic."];
  const parts = [];
  const got = reached(rounds);
  const loss = extremes(rounds, "evaluation_loss", (a, b) => a < b);
  if (got) parts.push(`The model reached ${got.article} ${got.name} of `, h("b", {}, got.format(got.newest)), ` in round ${count(got.newestRound)}`,
    got.best === got.newest ? "" : ` (best ${got.format(got.best)}, round ${count(got.bestRound)})`, has(loss?.newest) ? `, loss ${digits(loss.newest)}` : "", ". ");
  else if (closedRounds(rounds)) parts.push("No round was evaluated, so the accuracy is unknown. ");
  const own = (clients?.accuracy ?? []).filter(has);
  if (own.length > 1) parts.push(`Clients: ${percent(Math.min(...own))} to ${percent(Math.max(...own))}. `);
  parts.push(h("b", {}, bytes(totals.socket_up + totals.socket_down)), ` moved (${bytes(totals.socket_up)} up, ${bytes(totals.socket_down)} down)`);
  const { socket_ratio: ratio, through } = fedavg(report) ?? {};
  const open = isOpen(report);
  const of = open ? ` would have moved for the first ${plural(through, "round")}` : "";
  if (has(ratio) && ratio >= 1) parts.push(open ? ": at least " : ": ", h("b", {}, `${digits(ratio)} times fewer`), ` bytes than FedAvg in fp32${of}`);
  else if (has(ratio) && ratio > 0) parts.push(": ", h("b", {}, `${digits(1 / ratio)} times as many`), ` bytes as FedAvg in fp32${of}`);
  return [...parts, "."];
}
/** A badge where all is well; an alert that names the rounds where it is not. */
function judge(element, report) {
  const { rounds } = report;
  const wrong = rounds.round.map((_, i) => i).filter((i) => rounds.balanced[i] === false);
  const bad = report.balanced === false || wrong.length > 0;
  const role = bad ? "alert" : "status";
  if (element.getAttribute("role") !== role) element.setAttribute("role", role);
  element.classList.toggle("bad", bad);
  element.hidden = !rounds.round.length;
  const killed = rounds.round.filter((_, i) => rounds.unbooked?.[i] > 0);
  const missing = killed.length ? `. Neither counts the traffic before a server was killed: ${killed.length === 1 ? "round" : "rounds"} ${listed(killed.slice(0, 6).map(count), 7)}${killed.length > 6 ? " and more" : ""}` : "";
  const pending = (report.pending?.socket_up ?? 0) + (report.pending?.socket_down ?? 0);
  const soon = pending > 0 ? `; ${bytes(pending)} of it are not on disk yet` : "";
  if (!bad) return say(element, `✓ Ledger = sockets, to the byte${soon}${missing}`);
  const gaps = wrong.slice(0, 6).map((i) => `round ${rounds.round[i]} (${gap(rounds, i)})`);
  if (wrong.length > 6) gaps.push(`${wrong.length - 6} more rounds`);
  return say(element, `✗ The ledger and the sockets differ${gaps.length ? ` in ${listed(gaps, 7)}` : ` in the totals: the sockets carried ${signed(report.metered_up - report.totals.socket_up)} up and ${signed(report.metered_down - report.totals.socket_down)} down`}. Do not rely on these figures before you know why.`);
}
const signed = (value) => `${value < 0 ? "−" : "+"}${count(Math.abs(value))} B`;
function gap(rounds, i) {
  const parts = [[rounds.metered_up[i] - rounds.socket_up[i], "up"], [rounds.metered_down[i] - rounds.socket_down[i], "down"]];
  return parts.filter(([value]) => value).map(([value, way]) => `sockets ${signed(value)} ${way}`).join(", ") || "checked as unequal";
}

function tilesOf(report) {
  const { totals, rounds, costs } = report;
  const n = rounds.round.length;
  if (!n) return [];
  const base = fedavg(report);
  const inClosed = (values) => values.reduce((sum, value, i) => sum + (rounds.closed[i] ? value : 0), 0);
  const [updates, asked] = [inClosed(rounds.updates), inClosed(rounds.asked)];
  const open = rounds.closed.lastIndexOf(false);
  const sofar = open < 0 ? "" : `; ${count(rounds.updates[open])} of ${count(rounds.asked[open])} so far in round ${count(rounds.round[open])}`;
  const got = reached(rounds);
  const length = rounds.seconds.filter(has);
  const tiles = [
    ["Sent by clients", bytes(totals.socket_up), `${percent(totals.update / totals.socket_up)} of it updates`],
    ["Received by clients", bytes(totals.socket_down), `${percent((totals.steps + totals.snapshot) / totals.socket_down)} of it models`],
    ["Against FedAvg, fp32", fewer(base?.socket_ratio), base?.socket_ratio > 0 ? `bytes${isOpen(report) ? " at least, so far" : ""}; ${fewer(base.frames_ratio)} in frames alone` : "nothing to compare yet"],
    [`Best ${got?.name ?? "accuracy"}`, got ? got.format(got.best) : MISSING, got ? `in round ${count(got.bestRound)}` : "no evaluation"],
    ["Updates accepted", count(updates), `of ${count(asked)} asked in closed rounds${sofar}`],
    ["Time in rounds", length.length ? duration(length.reduce((a, b) => a + b, 0)) : MISSING, length.length ? `${duration(quantile(length, 0.5))} the median round` : "no round closed"],
  ];
  if (costs) {
    tiles.push(["Cost of the traffic", money(costs.money, costs.currency), `${money(costs.money_up, costs.currency)} up, ${money(costs.money_down, costs.currency)} down`]);
    tiles.push(["Energy of the traffic", has(costs.kwh) ? `${digits(costs.kwh)} kWh` : MISSING, has(costs.co2_g) ? `${digits(costs.co2_g)} g CO₂` : "no carbon price given"]);
  }
  return tiles;
}
/** How many times fewer bytes than the baseline, in words. */
const fewer = (ratio) => (!has(ratio) || ratio <= 0 ? MISSING : ratio >= 1 ? `${digits(ratio)}× fewer` : `${digits(1 / ratio)}× more`);
const money = (value, currency) => (has(value) ? `${value > 0 && value < 0.01 ? "under 0.01" : value.toFixed(2)} ${currency ?? ""}`.trim() : MISSING);

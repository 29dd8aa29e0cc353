// A small server that speaks as fl-server's admin address does: the page, report.json, and events of a run that grows by a round
// every `pace` milliseconds. It stands in for the real one until the real one is given by URL.
import { createServer } from "node:http";
import { assemble } from "../assemble.mjs";
import { sample } from "../sample.mjs";

export async function fake({ rounds = 12, clients = 10, first = 2, pace = 300 } = {}) {
  const whole = sample({ rounds, clients, seed: 3 });
  let closed = first;
  let share = 0;
  const start = Date.now();
  const listeners = new Set();
  const said = [];
  const tell = (kind, text) => said.unshift({ at_ms: Date.now(), kind, text });
  tell("run", "run opened");

  function report() {
    const part = { ...whole, run: { ...whole.run, planned: rounds, state: closed < rounds ? `running: round ${closed + 1} is open` : "done" } };
    part.rounds = Object.fromEntries(Object.entries(whole.rounds).map(([name, values]) => [name, values.slice(0, closed)]));
    for (const name of ["participations", "tensors"]) {
      const keep = whole[name].round.map((round) => round <= closed);
      part[name] = Object.fromEntries(Object.entries(whole[name]).map(([key, values]) => [key, values.filter((_, i) => keep[i])]));
    }
    part.totals = Object.fromEntries(Object.keys(whole.totals).map((name) => [name, part.rounds[name].reduce((a, b) => a + b, 0)]));
    part.baselines = whole.baselines.map((one) => ({ ...one, through: Math.max(0, closed - 1) }));
    part.metered_up = part.totals.socket_up;
    part.metered_down = part.totals.socket_down;
    return part;
  }
  function live() {
    const now = Date.now();
    const over = closed >= rounds;
    const names = whole.clients.client.filter((name) => name !== "-");
    const cohort = over ? [] : names.map((client, i) => {
      const progress = share * 2.2 - i / names.length;
      const state = i === names.length - 1 ? "absent" : progress > 1 ? "done" : progress > 0.4 ? "sending" : "training";
      const received = Math.max(0, Math.min(1, (progress - 0.4) / 0.6));
      return { client, state, received: state === "absent" ? 0 : Math.round(40_000 * received), total: 40_000, late: state !== "done" && share >= 0.5, finished_ms: state === "done" ? now - 20_000 : null };
    });
    return { now_ms: now, run: whole.run.name, phase: over ? "done" : "training", message: over ? "All rounds are done." : "Clients train on their own data and send what they learned.",
      round: Math.min(closed + 1, rounds), planned: rounds, attempt: 1, opened_ms: over ? null : now - 42_000, deadline_ms: over ? null : now + 78_000, until_ms: over ? null : now + 31_000, cohort,
      present: names.slice(0, -1), waiting: null, throughput: { up_per_s: 412_000 * (0.5 + share), down_per_s: 1_310_000 * (1.2 - share), socket_up: 1_000_000 * closed, socket_down: 4_000_000 * closed },
      moved: { socket_up: 1_000_000 * closed + 10_000 * share, socket_down: 4_000_000 * closed, pending_up: 10_000 * share, pending_down: 0, ratio: 17.25, through: Math.max(0, closed - 1), balanced: true },
      alerts: closed > first ? [{ at_ms: start, text: "clinic-10 has not been seen for three rounds." }] : [], events: said.slice(0, 200),
      certificates: [{ name: "federation authority", kind: "authority", ends_ms: 0, ends: "2036-01-02", ends_soon: false },
        { name: "localhost", kind: "server", ends_ms: 0, ends: "2027-01-02", ends_soon: false }, { name: "clinic-04", kind: "client", ends_ms: 0, ends: "2026-12-01", ends_soon: true }] };
  }
  const send = (listener, event, data) => listener.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  const timer = setInterval(() => {
    share += 0.5;
    if (share > 1 && closed < rounds) {
      share = 0;
      closed += 1;
      tell("round", `round ${closed} is closed: ${whole.rounds.updates[closed - 1]} updates`);
      for (const listener of listeners) send(listener, "report", { version: closed });
    }
    for (const listener of listeners) send(listener, "live", live());
  }, pace / 3);

  const server = createServer((request, response) => {
    const path = new URL(request.url, "http://localhost").pathname;
    const answer = (type, body) => response.writeHead(200, { "content-type": type, "cache-control": "no-store" }).end(body);
    if (path === "/") answer("text/html; charset=utf-8", assemble(null, "Live"));
    else if (path === "/report.json") answer("application/json", JSON.stringify(report()));
    else if (path === "/live.json") answer("application/json", JSON.stringify(live()));
    else if (path === "/live") {
      response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
      send(response, "live", live());
      listeners.add(response);
      request.on("close", () => listeners.delete(response));
    } else response.writeHead(404).end();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/`,
    /** Breaks off every stream of events, as a server that restarts does. */
    drop: () => listeners.forEach((listener) => listener.destroy()),
    close() {
      clearInterval(timer);
      server.closeAllConnections();
      server.close();
    },
  };
}

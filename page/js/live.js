// The live panel: what the server is doing now. It is fed with live.json; it never moves the page, the focus or what is open. Who is late, and until when, the server says.
const PHASES = { waiting: "Waiting for clients", training: "Training", closing: "Closing the round", evaluating: "Evaluating", done: "Done", failed: "Failed" };
const STATES = { training: ["◔", "training"], sending: ["↑", "sending"], done: ["✓", "done"], late: ["!", "late"], paused: ["‖", "paused"], absent: ["–", "absent"] };

function makeLive() {
  const link = h("span", { class: "link", role: "status" }, "connecting");
  const phase = h("h2", { id: "live-title" }, "Live");
  const message = h("p", { class: "about" });
  const alerts = h("div", { class: "alerts", role: "alert" });
  const updates = meter("Updates in");
  const received = meter("Bytes received");
  const timer = h("dd");
  const speed = h("dd");
  const moved = h("dd");
  const summary = h("p", { class: "summary" });
  const cohort = h("ul", { class: "cohort", tabindex: 0, "aria-label": "Clients of this round" });
  const eventsTitle = h("h3", {}, "Events");
  const closes = h("div", {}, h("dt", {}, "Round closes"), timer);
  const events = h("ol", { class: "events", tabindex: 0, "aria-label": "Events, newest first" });
  const certificates = h("ul", { class: "certificates" });
  const ending = h("summary", {}, "Certificates");
  const status = h("div", { class: "live-head" }, h("div", { class: "live-phase" }, phase, message), link, alerts);
  const section = h("section", { class: "live", "aria-labelledby": "live-title" },
    h("div", { class: "live-grid" },
      h("div", {}, updates.element, received.element, h("dl", { class: "now" }, closes, h("div", {}, h("dt", {}, "Throughput"), speed), h("div", {}, h("dt", {}, "Since the start"), moved))),
      h("div", {}, h("h3", {}, "Clients of this round"), summary, cohort),
      h("div", {}, eventsTitle, events),
      h("details", { class: "data" }, ending, certificates)));
  let state = null;
  let ahead = 0;
  let usual = null;
  const told = new Set();
  const cells = new Map();
  const now = () => Date.now() + ahead;

  function countdown() {
    if (!state) return;
    // While nothing is open, nothing closes.
    closes.hidden = !has(closing(state)) && !has(state.opened_ms);
    say(timer, deadline(state, now(), usual));
    people();
  }
  setInterval(countdown, 1000);

  function people() {
    const list = state.cohort ?? [];
    const tally = {};
    const seen = new Set();
    for (const one of list) {
      const kind = one.late && one.state !== "done" && one.state !== "absent" && one.state !== "paused" ? "late" : one.state in STATES ? one.state : "absent";
      tally[kind] = (tally[kind] ?? 0) + 1;
      seen.add(one.client);
      let cell = cells.get(one.client);
      if (!cell) cells.set(one.client, (cell = person(one.client)));
      cell.update(one, kind, state);
    }
    for (const [name, cell] of cells) {
      if (seen.has(name)) continue;
      cell.element.remove();
      cells.delete(name);
    }
    list.forEach((one, i) => {
      const { element } = cells.get(one.client);
      if (cohort.children[i] !== element) cohort.insertBefore(element, cohort.children[i] ?? null);
    });
    const words = ["late", "absent", "paused", "training", "sending", "done"].filter((kind) => tally[kind]).map((kind) => `${tally[kind]} ${STATES[kind][1]}`);
    say(summary, words.length ? words.join(" · ") : waitingWords(state));
    cohort.hidden = !list.length;
  }

  return {
    element: section,
    status,
    /** Learns from the closed rounds how long a round usually takes. */
    rounds(rounds) {
      usual = usualSeconds(rounds);
    },
    connection(word) {
      say(link, word);
      link.dataset.state = word;
    },
    update(next) {
      state = next;
      if (has(next.now_ms)) ahead = next.now_ms - Date.now();
      const round = has(next.round) ? `Round ${count(next.round)} of ${count(next.planned)}` : "";
      say(phase, [PHASES[next.phase] ?? next.phase, round].filter(Boolean).join(" · "));
      section.dataset.phase = next.phase;
      say(message, [next.message, next.attempt > 1 ? `Attempt ${next.attempt} at this round.` : ""].filter(Boolean).join(" "));
      const list = next.cohort ?? [];
      updates.update(list.filter((one) => one.state === "done").length, list.length, count);
      const whole = list.reduce((sum, one) => sum + (one.total || 0), 0);
      received.update(list.reduce((sum, one) => sum + (one.received || 0), 0), whole, bytes);
      say(speed, next.throughput ? `${rate(next.throughput.up_per_s)} up, ${rate(next.throughput.down_per_s)} down` : MISSING);
      say(moved, next.throughput ? `${bytes(next.throughput.socket_up)} up, ${bytes(next.throughput.socket_down)} down` : MISSING);
      for (const alert of [...(next.alerts ?? [])].reverse()) {
        const key = `${alert.at_ms} ${alert.text}`;
        if (told.has(key)) continue;
        told.add(key);
        alerts.prepend(h("p", {}, h("time", {}, `${clock(alert.at_ms)} ${zone(alert.at_ms)}`), ` ${alert.text}`));
        while (alerts.children.length > 5) alerts.lastChild.remove();
      }
      say(eventsTitle, `Events (times in ${zone(now())})`);
      log(events, next.events ?? []);
      const ends = (next.certificates ?? []).map((one) => one.ends).sort();
      const soon = (next.certificates ?? []).filter((one) => one.ends_soon).length;
      say(ending, `${plural(ends.length, "certificate")}${soon ? `, ${count(soon)} of them end soon` : ends.length ? `, the next ends ${ends[0]}` : ""}`);
      ending.classList.toggle("soon", soon > 0);
      certificates.replaceChildren(...(next.certificates ?? []).map((one) => h("li", { class: one.ends_soon ? "soon" : null },
        h("span", {}, one.name === one.kind ? one.name : `${one.name} (${one.kind})`), h("span", {}, one.ends_soon ? `⚠ ends soon: ${one.ends}` : `until ${one.ends}`))));
      countdown();
    },
  };
}

function meter(name) {
  const text = h("span", { class: "value" });
  const bar = h("span", { class: "bar" });
  const track = h("div", { class: "track", role: "progressbar", "aria-label": name, "aria-valuemin": 0 }, bar);
  const element = h("div", { class: "meter" }, h("div", { class: "row" }, h("span", {}, name), text), track);
  return {
    element,
    update(value, whole, format) {
      // An empty bar would say that nothing has come, where nothing is awaited.
      element.hidden = !whole;
      say(text, whole ? `${format(value)} of ${format(whole)}` : MISSING);
      bar.style.width = `${whole ? Math.min(100, (value / whole) * 100) : 0}%`;
      track.setAttribute("aria-valuemax", whole || 1);
      track.setAttribute("aria-valuenow", Math.min(value, whole || 1));
      track.setAttribute("aria-valuetext", text.textContent);
    },
  };
}
function person(client) {
  const sign = h("span", { class: "sign", "aria-hidden": "true" });
  const word = h("span", { class: "word" });
  const bar = h("span", { class: "bar" });
  const track = h("span", { class: "track", "aria-hidden": "true" }, bar);
  const element = h("li", {}, sign, h("span", { class: "name" }, client), word, track);
  return {
    element,
    update(one, kind, { opened_ms, ...times }) {
      element.dataset.state = kind;
      say(sign, STATES[kind][0]);
      const end = closing(times);
      const until = has(end) ? ` until ${clock(end)}` : "";
      const sent = one.total ? ` ${Math.round((100 * (one.received || 0)) / one.total)} %` : "";
      const after = kind === "done" && has(one.finished_ms) && has(opened_ms) ? ` after ${duration((one.finished_ms - opened_ms) / 1000)}` : "";
      say(word, { late: `late, awaited${until || " without a deadline"}`, absent: one.late ? `absent, awaited${until}` : "absent", sending: `sending${sent}`, done: `done${after}`, training: "training", paused: "paused by its device" }[kind]);
      track.classList.toggle("idle", kind !== "done" && !one.received);
      bar.style.width = `${kind === "done" ? 100 : one.total ? Math.min(100, (100 * (one.received || 0)) / one.total) : 0}%`;
    },
  };
}
const whole = (seconds) => (seconds < 100 ? `${seconds} s` : duration(seconds));
/** When the round closes without those that are missing. */
const closing = ({ until_ms, deadline_ms }) => (has(until_ms) ? until_ms : deadline_ms);
/** `usual`: seconds that a round usually takes. Only where this has passed, or is not known, the deadline is what matters. */
function deadline({ phase, opened_ms, ...times }, now, usual) {
  const end = closing(times);
  if (phase === "done" || phase === "failed") return MISSING;
  // Once enough clients have answered, the round closes before its deadline.
  const enough = end !== times.deadline_ms;
  if (has(usual) && has(opened_ms) && !enough) {
    const rest = usual - (now - opened_ms) / 1000;
    if (rest > 0) return `in ~${whole(Math.ceil(rest))}, as the last rounds did`;
  }
  if (!has(end)) return has(opened_ms) ? `none; open for ${whole(Math.max(0, Math.round((now - opened_ms) / 1000)))}` : "none";
  const left = Math.round((end - now) / 1000);
  const more = has(times.deadline_ms) && times.deadline_ms !== end ? ` (deadline ${clock(times.deadline_ms)})` : "";
  return left >= 0 ? `by ${clock(end)} ${zone(end)} at the latest${more}` : `${whole(-left)} ago`;
}
function waitingWords({ waiting, present }) {
  const names = present?.length ? ` Present: ${listed(present, 12)}.` : "";
  if (!waiting) return present?.length ? names.trim() : "No round is open.";
  return `${waiting.present} of at least ${waiting.min} clients are here${waiting.enough ? ": enough." : "."}${names}`;
}
/** New events go on top; what a reader has scrolled to stays where it is. */
function log(list, events) {
  const key = (one) => `${one.at_ms} ${one.kind} ${one.text}`;
  const newest = list.firstElementChild?.dataset.key;
  const at = newest === undefined ? events.length : events.findIndex((one) => key(one) === newest);
  const fresh = at < 0 ? events : events.slice(0, at);
  if (at < 0) list.replaceChildren();
  const before = list.scrollHeight;
  list.prepend(...fresh.map((one) => h("li", { "data-key": key(one) }, h("time", {}, clock(one.at_ms)), h("span", { class: "kind" }, one.kind), h("span", {}, one.text))));
  if (list.scrollTop > 0) list.scrollTop += list.scrollHeight - before;
  while (list.children.length > 200) list.lastElementChild.remove();
}

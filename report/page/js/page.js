// Starts the page: with the report in it, or with the one that its server sends and keeps up to date.
const EMPTY = "No round has closed yet. Charts appear here once the first one closes.";

function start() {
  theme();
  unfoldForPrint();
  const head = makeHead();
  const overview = makeOverview();
  const sections = [clientsSection(), metricsSection(), bytesSection(), timeSection(), codingSection(), proofSection()];
  const main = document.getElementById("main");
  const nothing = h("p", { class: "nothing", hidden: true }, EMPTY);
  const bodies = sections.map(fold);
  const links = sections.map((section, i) => h("li", {}, h("a", { href: `#${section.id}`, onclick: () => (bodies[i].element.open = true) }, section.title)));
  document.getElementById("links").append(...links);
  const asked = bodies.find((body) => `#${body.element.id}` === location.hash);
  if (asked) asked.element.open = true;
  showsMore(document.getElementById("links"));
  const show = (report) => {
    const none = !closedRounds(report.rounds);
    nothing.hidden = !none;
    head.update(report);
    overview.update(report);
    sections.forEach((section, i) => {
      links[i].hidden = bodies[i].element.hidden = none || section.has?.(report) === false;
      if (none) return;
      section.update(report);
      bodies[i].update();
    });
  };
  const text = document.getElementById("report");
  main.append(head.element);
  if (text) {
    main.append(overview.element, nothing, ...bodies.map((body) => body.element));
    guarded(() => show(JSON.parse(text.textContent)));
    done();
  } else {
    const live = makeLive();
    head.element.querySelector(".title").after(live.status);
    main.append(overview.element, nothing, live.element, ...bodies.map((body) => body.element));
    overview.element.hidden = true;
    for (const body of bodies) body.element.hidden = true;
    watch(live, head, (report) => {
      overview.element.hidden = false;
      live.rounds(report.rounds);
      show(report);
    });
  }
}

/** A section that is opened by its title. Charts without data are left out, and the reasons are listed below the others. */
function fold(section) {
  const grid = h("div", { class: "grid" }, section.parts.map((part) => part.element));
  const missing = h("p", { class: "about missing" });
  return {
    element: h("details", { id: section.id, class: "fold" },
      h("summary", {}, h("h2", {}, section.title), h("span", { class: "about" }, section.about)), grid, missing),
    update() {
      const reasons = [...grid.querySelectorAll(".empty:not([hidden])")].map((empty) => empty.textContent);
      say(missing, [...new Set(reasons)].join(" "));
    },
  };
}
/** Paper has no folds: opens all of them and draws what was never shown, and closes them afterwards. */
function unfoldForPrint() {
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll(".fold:not([open])")];
    for (const one of closed) one.open = true;
    for (const frame of document.querySelectorAll(".frame")) frame.resized?.(frame.clientWidth);
  });
  addEventListener("afterprint", () => closed.forEach((one) => (one.open = false)));
}

/** Shows why a report cannot be shown; the page never stays blank. */
function guarded(work) {
  try {
    work();
  } catch (error) {
    document.getElementById("main").prepend(h("p", { class: "verdict bad", role: "alert" }, `This report cannot be shown: ${error.message}. Its fl-server may be of another version.`));
  }
}
/** Marks the first paint of the charts. */
function done() {
  requestAnimationFrame(() => setTimeout(() => {
    performance.mark("rendered");
    document.documentElement.dataset.rendered = "yes";
  }));
}

/** Subscribes to the server: `live` events feed the panel, `report` events announce a newer report. Reconnects. */
function watch(live, head, show) {
  let busy = false;
  let behind = true;
  async function fetchReport() {
    if (busy) return;
    busy = true;
    while (behind) {
      behind = false;
      try {
        const answer = await fetch("report.json", { cache: "no-store" });
        if (answer.status === 401 || answer.status === 403) return location.assign("login");
        if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
        const report = await answer.json();
        guarded(() => show(report));
        done();
      } catch (error) {
        live.connection("reconnecting");
        await new Promise((resolve) => setTimeout(resolve, 2000));
        behind = true;
      }
    }
    busy = false;
    return undefined;
  }
  function connect() {
    const source = new EventSource("live");
    source.addEventListener("open", () => {
      live.connection("live");
      behind = true;
      fetchReport();
    });
    source.addEventListener("live", (event) => {
      live.connection("live");
      guarded(() => {
        const state = JSON.parse(event.data);
        live.update(state);
        head.now(state);
      });
    });
    source.addEventListener("report", () => {
      behind = true;
      fetchReport();
    });
    source.addEventListener("error", () => {
      live.connection("reconnecting");
      if (source.readyState !== EventSource.CLOSED) return;
      source.close();
      setTimeout(connect, 3000);
    });
  }
  fetchReport();
  connect();
}

/** Light or dark: the system's choice until the reader switches. */
function theme() {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try {
      return localStorage.getItem("fl-theme");
    } catch {
      return null;
    }
  };
  const set = (name) => {
    root.dataset.theme = name;
    say(button, name === "dark" ? "Light" : "Dark");
    button.setAttribute("aria-label", `Switch to ${name === "dark" ? "light" : "dark"} colours`);
    document.dispatchEvent(new Event("theme"));
  };
  set(stored() ?? (system.matches ? "dark" : "light"));
  system.addEventListener("change", () => stored() || set(system.matches ? "dark" : "light"));
  button.addEventListener("click", () => {
    const name = root.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("fl-theme", name);
    } catch {
      // Without storage the choice lasts until the page is closed.
    }
    set(name);
  });
}

start();

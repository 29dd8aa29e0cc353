// Starts the page: with the report in it, or with the one that its server sends and keeps up to date.
const EMPTY = "No round has opened yet. Charts appear here once the first one opens.";

function start() {
  theme();
  const head = makeHead();
  const sections = [bytesSection(), learningSection(), timeSection(), clientsSection(), codingSection(), proofSection()];
  const main = document.getElementById("main");
  const nothing = h("p", { class: "nothing", hidden: true }, EMPTY);
  const bodies = sections.map((section) => h("section", { id: section.id, "aria-labelledby": `${section.id}-title`, tabindex: -1 },
    h("h2", { id: `${section.id}-title` }, section.title), h("div", { class: "grid" }, section.parts.map((part) => part.element))));
  document.getElementById("links").append(...sections.map((section) => h("li", {}, h("a", { href: `#${section.id}` }, section.title))));
  showsMore(document.getElementById("links"));
  const show = (report) => {
    const none = !report.rounds.round.length;
    nothing.hidden = !none;
    for (const body of bodies) body.hidden = none;
    document.getElementById("links").hidden = none;
    head.update(report);
    if (!none) for (const section of sections) section.update(report);
  };
  const text = document.getElementById("report");
  main.append(head.element);
  if (text) {
    main.append(nothing, ...bodies);
    guarded(() => show(JSON.parse(text.textContent)));
    done();
  } else {
    const live = makeLive();
    head.element.querySelector(".facts").after(live.element);
    main.append(nothing, ...bodies);
    nothing.hidden = false;
    for (const body of bodies) body.hidden = true;
    watch(live, head, show);
  }
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
        head.now(state.moved);
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

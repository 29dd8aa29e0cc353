// What every page has: its theme, its printed form, and a message in place of a page that cannot be drawn.
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
function guarded(work, hint = "Its fl-server may be of another version.") {
  try {
    work();
  } catch (error) {
    document.getElementById("main").prepend(h("p", { class: "verdict bad", role: "alert" }, `This report cannot be shown: ${error.message}. ${hint}`));
  }
}
/** Marks the first paint of the charts. */
function done() {
  requestAnimationFrame(() => setTimeout(() => {
    performance.mark("rendered");
    document.documentElement.dataset.rendered = "yes";
  }));
}

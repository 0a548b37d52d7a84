// Reads the embedded data, builds the sections, follows the theme.

const SECTIONS = [
  ["panels", "Figure", panelsSection], ["pictures", "Figure", picturesSection], ["claims", "Claims", claimsSection], ["barrier", "Barrier", barrierSection], ["walk", "Walk", walkSection], ["plane", "Landscape", planeSection], ["alignment", "Alignment", alignmentSection], ["graph", "Network", graphSection],
  ["compact", "One Gaussian", compactSection], ["evaluation", "Predictions", evaluationSection], ["posterior", "Posteriors", posteriorSection], ["tables", "Tables", tablesSection], ["run", "What was run", runSection],
];

const runs = JSON.parse(document.getElementById("data").textContent).runs;
let shown = { state: { refresh: [] } };

function mount(which) {
  shown.state.gone = true;
  if (shown.state.stop) shown.state.stop();
  plots.forEach(clear);
  plots.length = 0;
  const run = runs[which], state = { afterMount: [], perGroup: [], refresh: [] };
  const built = SECTIONS.map(([id, title, build]) => [id, title, build(run, state)]).filter(([, , node]) => node);
  document.getElementById("main").replaceChildren(
    summarySection(run, runs, mount, state), ...built.map(([, , node]) => node));
  document.getElementById("nav").replaceChildren(...built.map(([id, title]) => el("a", { href: "#" + id }, title)));
  shown = { state };
  state.afterMount.forEach((act) => act());
  reachable();
}

function setTheme(name, remember) {
  document.documentElement.dataset.theme = name;
  const button = document.getElementById("theme");
  button.textContent = name === "dark" ? "☀ Light" : "☾ Dark";
  button.setAttribute("aria-label", `Switch to ${name === "dark" ? "light" : "dark"} colours`);
  if (remember) try { localStorage.setItem("bayesin-theme", name); } catch (error) { /* storage is off for local files */ }
  plots.forEach((plot) => plot.draw());
}

// A choice made on the page holds against the system's; without one the page follows the system.
function chosenTheme() {
  try { return localStorage.getItem("bayesin-theme"); } catch (error) { return null; }
}

document.getElementById("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark", true));
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => { if (!chosenTheme()) setTheme(event.matches ? "dark" : "light", false); });
// Plotly follows small changes of width itself; between phone and laptop, and where the height depends on the width, draw afresh.
let wasNarrow = narrow(), settle = null;
window.addEventListener("resize", () => {
  clearTimeout(settle);
  settle = setTimeout(() => {
    const changed = narrow() !== wasNarrow;
    wasNarrow = narrow();
    const { state } = shown, stale = plots.filter((plot) => changed || plot.options.fit);
    Promise.all(stale.map(clear)).then(() => {
      if (state.gone) return;
      stale.forEach((plot) => plot.draw());
      if (changed) state.refresh.forEach((act) => act());
      reachable();
    });
  }, 120);
});
setTheme(document.documentElement.dataset.theme, false);
mount(0);
document.documentElement.dataset.ready = "yes";

// Tables of other verbs, and what was run: settings, versions, time, files.

function tablesSection(run) {
  if (!(run.tables || []).length) return null;
  return section("tables", "Tables", run.tables.map((one) => el("div", { class: "panel" }, el("h3", {}, one.title),
    table(one.columns, one.rows.map((row) => row.map((cell) => (typeof cell === "number" ? brief(cell) : String(cell ?? "–")))), { class: "wrap" }), one.says ? el("p", { class: "lead", style: "margin:.5rem 0 0;font-size:.88rem" }, one.says) : null)));
}

function runSection(run, state) {
  const what = run.run || {}, panels = [[], []];
  for (const [key, title, side] of [["config", "Settings", 0], ["provenance", "Versions and machine", 1]]) {
    const entries = Object.entries(what[key] || {});
    if (entries.length) panels[side].push(el("div", { class: "panel" }, el("h3", {}, title), table([], entries.map(([name, value]) => [name, show(value)]), { class: "text" })));
  }
  const plot = (what.seconds || []).length ? secondsFigure(what.seconds) : null;
  if (plot) { panels[1].push(plot.node); state.afterMount.push(() => plot.draw()); }
  const files = (run.files || []).map((file) => el("li", {}, safe(file.href) ? el("a", { href: file.href }, file.name) : el("span", {}, file.name), el("span", {}, bytes(file.bytes)), el("span", {}, file.says || "")));
  if (!panels.flat().length && !files.length) return null;
  return section("run", "What was run", lead("Everything needed to do it again, and the numbers behind every plot as files beside this page."),
    el("div", { class: "grid" }, panels.filter((side) => side.length).map((side) => el("div", { class: "w6 stack" }, side)), files.length ? el("div", { class: "panel", style: "margin:0" }, el("h3", {}, "Files"), el("ul", { class: "files" }, files)) : null));
}

const safe = (href) => typeof href === "string" && /^\.{1,2}\//.test(href); // a relative path, never a scheme

function show(value) {
  if (value === null || value === undefined) return "–";
  if (Array.isArray(value)) return value.map(show).join(", ");
  if (typeof value === "object") return Object.entries(value).map(([name, inner]) => `${name}: ${show(inner)}`).join(", ");
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

function secondsFigure(seconds) {
  const rows = [...seconds].reverse();
  return figure({
    name: "seconds", title: "Where the time went", width: "", height: 60 + 30 * rows.length, label: "Seconds spent in each stage",
    says: "Wall-clock seconds of each stage on the machine above, compilation included.",
    draw: (colours) => ({ data: [{ type: "bar", orientation: "h", y: rows.map((row) => plain(row.name)), x: rows.map((row) => row.seconds), marker: { color: colours.third }, text: rows.map((row) => fixed(row.seconds, 1) + " s"), textposition: "outside", cliponaxis: false, hoverinfo: "skip" }],
      layout: layout(colours, { hovermode: false, bargap: 0.35, margin: { l: 60, r: 48, t: 6, b: 44 }, xaxis: axis(colours, "seconds"), yaxis: axis(colours, "", { type: "category", ticks: "", showgrid: false }) }) }),
  });
}

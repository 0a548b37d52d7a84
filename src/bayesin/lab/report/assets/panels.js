// A figure of a paper as interactive panels, from what was drawn for print.

function panelsSection(run, state) {
  const panels = ((run.panels || {}).panels || []).filter((panel) => panel.marks.length);
  if (!panels.length) return null;
  // One legend serves all panels, unless one look means several things: then each has its own.
  const named = panels.map(namedMarks), means = new Map();
  named.flatMap((marks) => [...marks]).forEach(([label, mark]) => { const look = mark.colour + keyOfMark(mark); means.set(look, (means.get(look) || new Set()).add(label)); });
  const shared = [...means.values()].every((labels) => labels.size === 1);
  const figures = panels.map((panel, at) => panelFigure(panel, at, panels.length, shared ? "" : panelLegend(named[at])));
  state.afterMount.push(() => figures.forEach((plot) => plot.draw()));
  return section("panels", "Figure", run.panels.says ? lead(run.panels.says) : null, shared ? panelLegend(new Map(named.flatMap((marks) => [...marks]))) : null, el("div", { class: "grid" }, figures.map((plot) => plot.node)));
}

const namedMarks = (panel) => new Map(panel.marks.filter((mark) => mark.label && mark.kind !== "area").reverse().map((mark) => [mark.label, mark]).reverse());
const keyOfMark = (mark) => (mark.dash === "dash" || mark.dash === "dashdot" ? "dash" : mark.dash === "dot" ? "dot" : "");

function panelLegend(named) {
  const keys = [...named].map(([label, mark]) => el("li", {}, el("span", { class: `key ${keyOfMark(mark)}`, style: `color:${inkOf(mark.colour, ink())}`, "aria-hidden": "true" }), el("span", {}, label)));
  return keys.length ? el("ul", { class: "legend" }, keys) : null;
}

function panelFigure(panel, at, count, says) {
  const bars = panel.marks.filter((mark) => mark.kind === "bars" && mark.lying), rows = Math.max(0, ...bars.map((mark) => mark.y.length));
  const height = rows > 6 ? 90 + 22 * rows : 320;
  const title = panel.title || [panel.y.label, panel.x.label].filter(Boolean).join(" against ") || "Panel";
  return figure({ name: "panel-" + at, title, width: count === 1 || rows > 12 ? "" : count % 3 === 0 ? "w4" : "w6", height, phone: rows > 6 ? 90 + 44 * rows : 280, label: `${title}: ${panel.y.label || "values"} against ${panel.x.label || "places"}`, says, draw: (colours) => panelPlot(panel, colours) });
}

// Colours are roles of the page or hexadecimal, with a share of opacity after a slash.
function inkOf(text, colours) {
  const [name, share] = String(text || "ink").split("/"), dark = document.documentElement.dataset.theme === "dark";
  const own = colours[name] || (/^#[0-9a-f]{6}$/.test(name) ? (dark ? mix(name, "#ffffff", 0.6) : name) : colours.ink);
  return share ? faint(own, Number(share)) : own;
}

const PANEL_MARKS = {
  line: (mark, colour) => ({ x: mark.x, y: mark.y, mode: mark.mode || "lines", line: { color: colour, dash: mark.dash, width: mark.width ? 1.4 * mark.width : 2 }, marker: { color: colour, symbol: mark.symbol || "circle", size: 6 } }),
  area: (mark, colour) => ({ x: mark.x, y: mark.y, mode: "lines", line: { width: 0 }, fill: "toself", fillcolor: colour, hoverinfo: "skip" }),
  bars: (mark, colour) => ({ type: "bar", orientation: mark.lying ? "h" : "v", x: mark.x, y: mark.y, width: mark.thick, marker: { color: colour } }),
  image: (mark) => ({ type: "heatmap", x: mark.x, y: mark.y, z: mark.z, colorscale: "Cividis", colorbar: { thickness: 11, outlinewidth: 0 } }),
};

function panelPlot(panel, colours) {
  const data = panel.marks.filter((mark) => PANEL_MARKS[mark.kind]).map((mark) => ({ name: plain(mark.label || ""), hovertemplate: mark.kind === "area" ? undefined : `%{x:.4g}, %{y:.4g}<extra>${plain(mark.label || "")}</extra>`, ...PANEL_MARKS[mark.kind](mark, inkOf(mark.colour, colours)) }));
  const shapes = panel.marks.filter((mark) => mark.kind === "rule").map((mark) => ({ type: "line", line: { color: inkOf(mark.colour, colours), width: 1.4, dash: mark.dash },
    ...(mark.x ? { x0: mark.x[0], x1: mark.x[0], y0: 0, y1: 1, yref: "paper" } : { y0: mark.y[0], y1: mark.y[0], x0: 0, x1: 1, xref: "paper" }) }));
  return { data, layout: layout(colours, { hovermode: "closest", barmode: "overlay", shapes, xaxis: panelAxis(panel.x, colours), yaxis: panelAxis(panel.y, colours) }) };
}

// A phone has no room for a long name on one line.
const folded = (text) => (narrow() ? plain(text).replace(/(.{14,22}?)[ ]/g, "$1<br>") : plain(text).replaceAll("\n", "<br>"));

function panelAxis(one, colours) {
  const ends = one.scale === "log" ? one.range.map(Math.log10) : one.range;
  const ticks = (one.ticks || []).length ? { tickmode: "array", tickvals: one.ticks.map(([value]) => value), ticktext: one.ticks.map(([, text]) => folded(text)), ...(narrow() && one.ticks.length > 6 ? { tickfont: { size: 10 } } : {}) } : one.scale === "log" ? logTicks(one.range) : {};
  return axis(colours, plain(one.label || ""), { type: one.scale, range: ends, ...ticks, fixedrange: false });
}

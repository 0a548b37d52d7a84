// The loss on the plane through the two posteriors and the aligned copy.

const FIELDS = [
  { name: "nll", choice: "Loss", title: "loss (nats)", plural: "loss", flip: true },
  { name: "log_posterior", choice: "Log posterior", title: "log posterior, below the best", plural: "log posterior" },
  { name: "accuracy", choice: "Accuracy", title: "accuracy", plural: "accuracy" },
];

function planeSection(run, state) {
  const plane = run.plane;
  if (!plane) return null;
  const fields = FIELDS.filter((field) => plane[field.name]);
  state.field = fields[0];
  const plot = figure({
    name: "plane", title: "The plane through three posteriors", width: "w8", label: "Heat map of the loss with contours and the three posteriors marked",
    fit: (width) => planeHeight(plane, width), draw: (colours) => planePlot(plane, state.field, colours),
    says: plane.says || "Every point is a Gaussian posterior, a weighted sum of the three marked ones. Bright is good. Contours join equal values; what lies beyond the scale has the colour of its end.",
  });
  const control = fields.length > 1 ? choice("What is shown", fields.map((field) => [field.name, field.choice]), state.field.name, (name) => { state.field = fields.find((field) => field.name === name); plot.draw(); }) : null;
  state.afterMount.push(() => plot.draw());
  return section("plane", "The landscape",
    lead("A flat cut through the space of posteriors. Distances on it are distances between the means of the weights, the same scale on both axes."), control,
    el("div", { class: "grid" }, plot.node, el("div", { class: "w4" }, planeGuide(plane))));
}

function planeGuide(plane) {
  const rows = plane.points.map((point) => [point.name, fixed(point.nll, 3), present(point.distance) ? brief(point.distance) : "–"]);
  return el("div", { class: "panel" }, el("h3", {}, "What to see"),
    el("p", { class: "small" }, el("span", { class: "key naive dash", "aria-hidden": "true" }), el("b", {}, "Dashed: "), "the way without alignment. Darker ground on it is the barrier."),
    el("p", { class: "small" }, el("span", { class: "key aligned", "aria-hidden": "true" }), el("b", {}, "Solid: "), "the way to the aligned copy, which computes the same function as the second posterior. Where alignment works this way stays on bright ground."),
    table(["posterior", "loss (nats)", "distance"], rows));
}

// As tall as the plane's own proportions ask for, within reason; on a phone the scale lies below.
function planeHeight(plane, width) {
  const [x, y] = [ends(plane.x), ends(plane.y)], inner = narrow() ? width - 60 : width - 150;
  return Math.round(Math.min(680, Math.max(230, (inner * (y[1] - y[0])) / (x[1] - x[0]))) + (narrow() ? 125 : 60));
}

function planePlot(plane, field, colours) {
  const values = plane[field.name], flat = values.flat().filter(present).sort((a, b) => a - b);
  const [low, high] = scaleOf(plane, field, flat), step = niceStep((high - low) / 12);
  const bar = narrow() ? { orientation: "h", y: -0.28, yanchor: "top", title: { text: field.title, side: "bottom" }, thickness: 11 } : { title: { text: field.title, side: "right" }, thickness: 13 };
  const contour = { type: "contour", x: plane.x, y: plane.y, z: values, colorscale: "Cividis", reversescale: Boolean(field.flip), zmin: low, zmax: high, autocontour: false,
    contours: { start: Math.ceil(low / step) * step, end: high, size: step, coloring: "heatmap" }, line: { width: 0.8, color: "rgba(128,128,128,0.75)" },
    colorbar: { ...bar, outlinewidth: 0, len: 1, tickfont: { color: colours.ink } }, hovertemplate: field.title + ": %{z:.3f}<extra></extra>" };
  const find = (role) => plane.points.find((point) => point.role === role);
  const [target, source, aligned] = ["target", "source", "aligned"].map(find);
  const data = [contour, ...(target && source ? pathLine(target, source, colours.naive, "dash") : []), ...(target && aligned ? pathLine(target, aligned, colours.aligned, "solid") : [])];
  data.push({ x: plane.points.map((point) => point.x), y: plane.points.map((point) => point.y), mode: "markers", hoverinfo: "skip",
    marker: { size: 13, color: "#ffffff", symbol: "circle", line: { color: "#111111", width: 2.2 } } });
  const centre = (plane.y[0] + plane.y[plane.y.length - 1]) / 2;
  const annotations = plane.points.map((point) => ({ x: point.x, y: point.y, text: plain(point.name), showarrow: false, yshift: point.y >= centre ? 20 : -20,
    font: { color: "#111111", size: 12 }, bgcolor: "rgba(255,255,255,0.9)", borderpad: 3 }));
  const box = { showgrid: false, constrain: "domain" };
  return { data, layout: layout(colours, { hovermode: "closest", annotations, margin: { l: 52, r: 8, t: 8, b: 44 },
    xaxis: axis(colours, narrow() ? "distance, first axis" : "distance between means, first axis", { ...box, range: ends(plane.x) }),
    yaxis: axis(colours, narrow() ? "second axis" : "distance between means, second axis", { ...box, scaleanchor: "x", range: ends(plane.y) }) }) };
}

// Far away the values run off; the scale covers what the report asks for, or nine tenths of the plane.
function scaleOf(plane, field, flat) {
  const at = (share) => flat[Math.round(share * (flat.length - 1))];
  const [low, high] = field.name === "nll" ? [at(0), plane.cut > at(0) ? Math.min(plane.cut, at(1)) : at(0.9)] : [at(0.1), at(1)];
  return high > low ? [low, high] : [low, low + 1e-6 + Math.abs(low) * 1e-3]; // a flat plane still needs a scale
}

// In the colour of its path with a white edge, so that the line is seen on bright and on dark ground.
function pathLine(from, to, path, dash) {
  const line = (colour, width, kind) => ({ x: [from.x, to.x], y: [from.y, to.y], mode: "lines", line: { color: colour, width, dash: kind }, hoverinfo: "skip" });
  return [line("rgba(255,255,255,0.85)", 6.5, "solid"), line(path, 3.2, dash)];
}

const ends = (values) => [values[0], values[values.length - 1]];
function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  return power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999);
}

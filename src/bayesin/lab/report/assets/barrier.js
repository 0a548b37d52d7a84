// Loss, accuracy and calibration error along the path, with and without alignment.

const MEASURES = [
  { name: "nll", title: "Marginal loss", axis: "loss (nats per example)", scale: 1, digits: 3,
    says: "Negative log of the predictive probability of the true class, averaged over the set. The dotted chord joins the two ends; the barrier is the most that a curve rises above its chord." },
  { name: "accuracy", title: "Accuracy", axis: "accuracy (%)", scale: 100, digits: 1,
    says: "Share of examples whose most probable class is the true one. A dip half way means that the network between the two is worse than either." },
  { name: "ece", title: "Calibration error", axis: "ECE (percentage points)", scale: 100, digits: 1,
    says: "Expected calibration error: the mean distance between how sure the network is and how often it is right. Lower is better." },
];

function barrierSection(run, state) {
  const sets = (run.barrier || {}).sets;
  if (!sets || !Object.keys(sets).length) return null;
  const names = Object.keys(sets);
  state.set = names.includes(state.set) ? state.set : names[0];
  const key = el("div"), numbers = el("details", { ontoggle: reachable }, el("summary", {}, "All numbers of these curves"), el("div"));
  const shown = MEASURES.filter((measure) => names.some((set) => Object.values(sets[set]).some((curve) => curve && curve[measure.name])));
  const figures = shown.map((measure) => figure({
    name: "barrier-" + measure.name, title: measure.title, says: measure.says, width: shown.length === 3 ? "w4" : "w6", height: 300, phone: 250,
    label: `${measure.title} along the path from the first posterior to the second, with and without alignment`,
    draw: (colours) => barrierPlot(sets[state.set], measure, colours, state.tau),
  }));
  state.markers = figures;
  const update = () => {
    key.replaceChildren(barrierLegend(sets[state.set]));
    numbers.lastChild.replaceChildren(barrierTable(sets[state.set]));
    figures.forEach((plot) => plot.draw());
  };
  const titles = { test: "Test set", train: "Training set" };
  state.afterMount.push(() => {
    update();
    state.refresh.push(() => figures.forEach(follow));
    figures.forEach(follow);
  });
  const follow = (plot) => plot.target.on("plotly_click", (event) => state.go && state.go(event.points[0].x));
  const both = names.some((name) => sets[name].aligned);
  return section("barrier", both ? "The barrier, before and after" : "The barrier",
    lead(run.barrier.says || "The path runs from the first posterior (τ = 0) to the second (τ = 1) along the Wasserstein geodesic: every mean and every standard deviation moves in a straight line. At each τ the loss is that of the averaged prediction of many weight samples; all τ share the same random numbers, and the bands of the loss show the Monte-Carlo error of its height above the chord. The bands of accuracy and calibration error show how well that many examples can determine them."),
    names.length > 1 ? choice("Data set", names.map((name) => [name, known(titles, name, name)]), state.set, (name) => { state.set = name; update(); }) : null,
    key, el("div", { class: shown.length === 3 ? "grid trio" : "grid" }, figures.map((plot) => plot.node)), numbers);
}

function barrierLegend(curves) {
  const lines = PATHS.filter((path) => curves[path.name]).map((path) => {
    const curve = curves[path.name];
    return [keyOf(path), path.title + ": barrier ", el("b", {}, nats(curve.value, curve.error)), " nats"];
  });
  const known = PATHS.some((path) => curves[path.name]);
  const band = Object.values(curves).some((curve) => curve && (curve.nll_error || curve.accuracy_error));
  return legend([...lines, known ? ["dot muted", "chord"] : null, band ? ["band muted", "± 2 standard errors"] : null]);
}

function barrierPlot(curves, measure, colours, tau) {
  const data = [], annotations = [];
  for (const path of PATHS) {
    const curve = curves[path.name];
    if (!curve || !curve[measure.name]) continue;
    const colour = colours[path.name], values = curve[measure.name].map((value) => present(value) ? value * measure.scale : null);
    const errors = curve[measure.name + "_error"];
    if (errors) data.push(...band(curve.taus, values, errors.map((error) => 2 * (error || 0) * measure.scale), colour));
    if (measure.name === "nll") {
      data.push({ x: [0, 1], y: [values[0], values[values.length - 1]], mode: "lines", line: { color: colour, width: 1.5, dash: "dot" }, hoverinfo: "skip" });
      const note = barrierArrow(curve, values, colour, path);
      if (note) annotations.push(...note);
    }
    data.push({ x: curve.taus, y: values, name: path.brief, mode: "lines+markers", line: { color: colour, width: 2.5, dash: path.dash },
      marker: { color: colour, size: 5, symbol: path.symbol }, hovertemplate: `%{y:.${measure.digits}f}` });
  }
  const shapes = present(tau) ? [marker(tau, colours)] : [];
  const y = axis(colours, measure.axis, measure.name === "accuracy" ? { rangemode: "normal" } : { rangemode: "tozero" });
  return { data, layout: layout(colours, { xaxis: axis(colours, "position on the path, τ", { range: [-0.02, 1.02], tickvals: [0, 0.25, 0.5, 0.75, 1], ticktext: ["0", "0.25", "0.5", "0.75", "1"], hoverformat: ".3f", unifiedhovertitle: { text: "τ = %{x:.3f}" } }), yaxis: y, shapes, annotations }) };
}

// Outline of the band first, then the fill down to it.
function band(x, middle, half, colour) {
  const edge = { x, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
  return [{ ...edge, y: middle.map((value, at) => value - half[at]) },
    { ...edge, y: middle.map((value, at) => value + half[at]), fill: "tonexty", fillcolor: faint(colour, 0.22) }];
}

// An arrow from the chord to the highest rise; only where the barrier is tall enough to hold one.
function barrierArrow(curve, values, colour, path) {
  if (path.name !== "naive" || !present(curve.value) || curve.value < 0.1) return null;
  const last = values.length - 1;
  const rise = values.map((value, at) => value - ((1 - curve.taus[at]) * values[0] + curve.taus[at] * values[last]));
  const top = rise.indexOf(Math.max(...rise));
  const foot = values[top] - rise[top];
  const arrow = { x: curve.taus[top], ax: curve.taus[top], xref: "x", yref: "y", axref: "x", ayref: "y", text: "", showarrow: true, arrowhead: 2, arrowwidth: 1.4, arrowcolor: colour };
  return [{ ...arrow, y: values[top], ay: foot }, { ...arrow, y: foot, ay: values[top] },
    { x: curve.taus[top], y: foot + 0.17 * rise[top], xref: "x", yref: "y", text: `barrier<br><b>${fixed(curve.value, 2)}</b>`, showarrow: false, xanchor: "left", xshift: 6, align: "left", font: { color: colour, size: 12.5 } }];
}

const marker = (tau, colours) => ({ type: "line", x0: tau, x1: tau, y0: 0, y1: 1, yref: "paper", line: { color: colours.muted, width: 1.2 }, layer: "below" });

function barrierTable(curves) {
  const found = PATHS.filter((path) => curves[path.name]);
  if (!found.length) return el("p", {}, "No curves.");
  const columns = ["τ", ...found.flatMap((path) => ["loss", "accuracy", "ECE"].map((name) => `${name}, ${path.title}`))];
  const rows = curves[found[0].name].taus.map((tau, at) => [fixed(tau, 3), ...found.flatMap((path) => {
    const curve = curves[path.name], pick = (name) => (curve[name] || [])[at];
    return [nats(pick("nll"), pick("nll_error")), percent(pick("accuracy")), percent(pick("ece"))];
  })]);
  return table(columns, rows);
}

// Predictions against targets: the scores, and whether the posterior is as sure as it may be.

const LINE_LOOKS = ["aligned", "naive", "third", "fourth"];

function evaluationSection(run, state) {
  const found = run.evaluation;
  if (!found) return null;
  const figures = [];
  if ((found.reliability || []).length) figures.push(lineFigure("reliability", "Reliability", found.reliability, "confidence", "accuracy", { diagonal: true, markers: true,
    says: "Accuracy of examples by the probability of the named class. Below the diagonal the prediction is too sure, above it not sure enough." }));
  if ((found.selective || []).length) figures.push(lineFigure("selective", "Selective accuracy", found.selective, "share of examples kept", "accuracy", {
    says: "Accuracy when the least certain examples are left out. A prediction that knows when it errs falls towards the right." }));
  if ((found.entropy || []).length) figures.push(lineFigure("entropies", "Total entropy", found.entropy, "nats", "share of examples", {
    says: "How unsure the averaged prediction is; inputs of another kind should lie further to the right." }));
  if ((found.coverage || []).length) figures.push(lineFigure("coverage", "Coverage of central intervals", found.coverage, "probability of the interval", "share of targets inside", { diagonal: true, markers: true,
    says: "Below the diagonal the intervals are too narrow, above it too wide." }));
  state.afterMount.push(() => figures.forEach((plot) => plot.draw()));
  return section("evaluation", "Predictions against targets", el("div", { class: "panel" }, table(["of", ...found.columns], found.rows.map((row) => [row.name, ...row.values]), { class: "wrap" })),
    el("div", { class: "grid" }, figures.map((plot) => plot.node)));
}

function lineFigure(name, title, lines, across, up, options) {
  return figure({
    name, title, width: "w6", height: 300, phone: 270, label: title, says: options.says,
    draw: (colours) => ({
      data: [...(options.diagonal ? [{ x: [0, 1], y: [0, 1], mode: "lines", line: { color: colours.line, dash: "dot" }, showlegend: false, hoverinfo: "skip" }] : []),
        ...lines.map((line, at) => ({ x: line.x, y: line.y, name: plain(line.name), mode: options.markers ? "lines+markers" : "lines",
          line: { color: colours[LINE_LOOKS[at % LINE_LOOKS.length]], dash: at < LINE_LOOKS.length ? "solid" : "dash" }, hovertemplate: "%{y:.3f}" }))],
      layout: layout(colours, { showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, margin: { l: 52, r: 14, t: narrow() ? 62 : 44, b: 44 },
        xaxis: axis(colours, across), yaxis: axis(colours, up) }) }),
  });
}

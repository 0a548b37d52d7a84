// Predictions against targets: the scores, and whether the posterior is as sure as it may be.

const LINE_LOOKS = ["third", "fourth", "fifth", "third dash", "fourth dash", "fifth dash", "third dot", "fourth dot", "fifth dot"];
const LINE_DASHES = { dash: "dash", dot: "dot" };

function evaluationSection(run, state) {
  const found = run.evaluation;
  if (!found) return null;
  const looks = lineLooks(found), figures = [];
  if ((found.reliability || []).length) figures.push(lineFigure("reliability", "Reliability", found.reliability, looks, "confidence", "accuracy", { diagonal: true, markers: true,
    says: "Accuracy of examples by the probability of the named class. Below the diagonal the prediction is too sure, above it not sure enough." }));
  if ((found.selective || []).length) figures.push(lineFigure("selective", "Selective accuracy", found.selective, looks, "share of examples kept", "accuracy", {
    says: "Accuracy when the least certain examples are left out. A prediction that knows when it errs falls towards the right." }));
  if ((found.entropy || []).length) figures.push(lineFigure("entropies", "Total entropy", found.entropy, looks, "nats", "share of examples", {
    says: "How unsure the averaged prediction is; inputs of another kind should lie further to the right." }));
  if ((found.coverage || []).length) figures.push(lineFigure("coverage", "Coverage of central intervals", found.coverage, looks, "probability of the interval", "share of targets inside", { diagonal: true, markers: true,
    says: "Below the diagonal the intervals are too narrow, above it too wide." }));
  state.afterMount.push(() => figures.forEach((plot) => plot.draw()));
  return section("evaluation", "Predictions against targets", el("div", { class: "panel" }, table(["of", ...found.columns], found.rows.map((row) => [row.name, ...row.values]), { class: "wrap" })),
    figures.length ? legend([...looks].map(([name, look]) => [look, name])) : null, el("div", { class: "grid" }, figures.map((plot) => plot.node)));
}

// One look for each name in all figures, so that one legend serves them all; what has a colour elsewhere brings it along.
function lineLooks(found) {
  const lines = [found.reliability, found.selective, found.entropy, found.coverage].flatMap((some) => some || []), looks = new Map();
  for (const { name } of lines) if (!looks.has(name)) looks.set(name, (found.looks || {})[name] || LINE_LOOKS[looks.size % LINE_LOOKS.length]);
  return looks;
}

function lineFigure(name, title, lines, looks, across, up, options) {
  return figure({
    name, title, width: "w6", height: 300, phone: 270, label: title, says: options.says,
    draw: (colours) => ({
      data: [...(options.diagonal ? [{ x: [0, 1], y: [0, 1], mode: "lines", line: { color: colours.muted, width: 1.4, dash: "dot" }, showlegend: false, hoverinfo: "skip" }] : []),
        ...lines.map((line) => [line, looks.get(line.name).split(" ")]).map(([line, [colour, dash]]) => ({ x: line.x, y: line.y, name: plain(line.name), mode: options.markers ? "lines+markers" : "lines",
          line: { color: colours[colour], dash: LINE_DASHES[dash] || "solid" }, hovertemplate: "%{y:.3f}" }))],
      layout: layout(colours, { xaxis: axis(colours, across), yaxis: axis(colours, up) }) }),
  });
}

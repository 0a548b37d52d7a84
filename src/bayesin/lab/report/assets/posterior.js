// What the two posteriors look like, layer by layer.

function posteriorSection(run, state) {
  const posterior = run.posterior;
  if (!posterior) return null;
  const figures = [];
  if ((posterior.layers || []).length) figures.push(stdLayers(posterior), snrFigure(posterior));
  const pruned = posterior.units && posterior.units.length ? prunedTable(posterior) : null;
  state.afterMount.push(() => figures.forEach((plot) => plot.draw()));
  return section("posterior", (posterior.names || []).length > 1 ? "The posteriors" : "The posterior", ...(posterior.says || []).map((text) => lead(text)),
    el("div", { class: "grid" }, figures.map((plot) => plot.node)), pruned);
}

// Boxes from stored quantiles: 5, 25, 50, 75 and 95 per cent. A point has no signal-to-noise ratio, hence no box.
function boxes(layers, names, key, colours) {
  return names.map((name, at) => {
    const known = layers.filter((layer) => present(layer[key][at][0])), colour = at ? colours.fifth : colours.third;
    const quantile = (number) => known.map((layer) => layer[key][at][number]);
    return { type: "box", name: plain(name), x: known.map((layer) => plain(layer.name)), lowerfence: quantile(0), q1: quantile(1), median: quantile(2),
      q3: quantile(3), upperfence: quantile(4), line: { color: colour, width: 1.6 }, fillcolor: faint(colour, 0.25), hoverformat: ".3g" };
  });
}

function stdLayers(posterior) {
  return figure({
    name: "std-layers", title: "Standard deviations by layer", width: "w6", height: 340, phone: 320, label: "Box plot of the standard deviations of each layer",
    says: "Boxes hold the middle half of the weights of a tensor, whiskers nine in ten." + (posterior.prior_std ? " Weights that the data do not determine are drawn towards the standard deviation of the prior (dotted line)." : ""),
    draw: (colours) => layered(posterior, "std", "standard deviation", colours, posterior.prior_std ? [{ value: posterior.prior_std, text: "prior" }] : []),
  });
}

function snrFigure(posterior) {
  return figure({
    name: "snr", title: "Signal to noise by layer", width: "w6", height: 340, phone: 320, label: "Box plot of the signal-to-noise ratio of each layer",
    says: "Size of the mean of a weight over its standard deviation. Below 1 (dotted line) even the sign of the weight is uncertain.",
    draw: (colours) => layered(posterior, "snr", "|mean| / std", colours, [{ value: 1, text: "1" }]),
  });
}

function layered(posterior, key, title, colours, lines) {
  const shapes = lines.map((line) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: line.value, y1: line.value, line: { color: colours.muted, width: 1.4, dash: "dot" } }));
  const annotations = lines.filter((line) => line.text !== "1").map((line) => ({ xref: "paper", x: 0.995, xanchor: "right", y: Math.log10(line.value), yanchor: "bottom", text: `${line.text} (${brief(line.value)})`, showarrow: false, font: { color: colours.muted, size: 11.5 } }));
  return { data: boxes(posterior.layers, posterior.names, key, colours), layout: layout(colours, { boxmode: "group", hovermode: "closest", shapes, annotations, showlegend: posterior.names.length > 1,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, margin: { l: 58, r: 14, t: 34, b: 60 }, xaxis: axis(colours, "", { type: "category", tickangle: narrow() || posterior.layers.length > 4 ? -35 : 0 }), yaxis: axis(colours, title, logTicks(posterior.layers.flatMap((layer) => layer[key].flat()))) }) };
}

function prunedTable(posterior) {
  const columns = ["group", "units", ...posterior.names.map((name) => `pruned, ${name}`)];
  const rows = posterior.units.map((group) => [group.name, String(group.size), ...group.pruned.map((count) => `${count} (${percent(count / group.size, 0)})`)]);
  return el("div", { class: "panel", style: "margin-top:1rem" }, el("h3", {}, "Pruned units"), table(columns, rows), el("p", { class: "lead", style: "margin:.5rem 0 0;font-size:.88rem" }, posterior.pruned_says || ""));
}

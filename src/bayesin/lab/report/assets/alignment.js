// How the units were matched, and what the matching did to them.

function alignmentSection(run, state) {
  const alignment = run.alignment;
  if (!alignment) return null;
  const groups = alignment.groups || [], figures = [], control = groupControl(alignment, state);
  if ((alignment.history || []).length > 1) figures.push(historyFigure(alignment));
  if (groups.length) figures.push(movedFigure(groups));
  if (Object.keys(alignment.similarity || {}).length) figures.push(...similarityFigures(alignment, state));
  if (Object.keys(alignment.correlation || {}).length) figures.push(correlationFigure(alignment, state));
  if (alignment.stds && alignment.stds.curves) figures.push(stdFigure(alignment.stds));
  state.afterMount.push(() => figures.forEach((plot) => plot.draw()));
  return section("alignment", "The alignment", ...(alignment.says || []).map((text) => lead(text)),
    control, el("div", { class: "grid" }, figures.map((plot) => plot.node)));
}

function groupControl(alignment, state) {
  const names = Object.keys({ ...alignment.similarity, ...alignment.correlation });
  if (!names.length) return null;
  state.group = names.includes(state.group) ? state.group : names[0];
  if (names.length === 1) return null;
  const titles = Object.fromEntries((alignment.groups || []).map((group) => [group.name, `${group.name} (${group.size} units)`]));
  const select = el("select", { id: "group", onchange: (event) => { state.group = event.target.value; state.perGroup.forEach((plot) => plot.draw()); } },
    names.map((name) => el("option", { value: name, selected: name === state.group }, known(titles, name, name))));
  return el("p", {}, el("label", {}, "Group of units shown in the matrices and the histogram of correlations: ", select));
}

// The distance without alignment comes first, where it is known: the search may start from something better.
function historyFigure(alignment) {
  const known = present(alignment.unaligned), values = known ? [alignment.unaligned, ...alignment.history] : alignment.history;
  const steps = values.map((_, at) => at), last = values[values.length - 1];
  const start = known ? ` Step 0 is the posterior as it was, step 1 where the search began (${alignment.start || "its start"}).` : "";
  return figure({
    name: "history", title: "Objective, step by step", width: "w6", height: 300, phone: 250, label: "Squared Wasserstein distance after every step of the alignment",
    says: `Squared Wasserstein distance between the first posterior and the moved second one after every accepted step, from ${brief(values[0])} to ${brief(last)}.${start} The search never lets it rise.`,
    draw: (colours) => ({ data: [{ x: steps, y: values, mode: "lines+markers", line: { color: colours.aligned, width: 2.2 },
      marker: { opacity: 1, size: steps.map((at) => (known && !at ? 10 : 7)), color: steps.map((at) => (known && !at ? colours.naive : colours.aligned)), symbol: steps.map((at) => (known && !at ? "diamond" : "circle")) }, hovertemplate: "W₂² = %{y:.4g}<extra></extra>" }],
      layout: layout(colours, { xaxis: axis(colours, "accepted step", { tickformat: "d", range: [-0.04 * values.length, values.length - 1 + 0.04 * values.length], hoverformat: "d", unifiedhovertitle: { text: "step %{x}" } }), yaxis: axis(colours, "W₂²", { rangemode: "tozero" }) }) }),
  });
}

function movedFigure(groups) {
  const names = groups.map((group) => plain(group.name));
  const bars = (name, key, colour, pattern) => ({ type: "bar", name, x: names, y: groups.map((group) => group[key]), marker: { color: colour, pattern: { shape: pattern, bgcolor: colour, fgcolor: "rgba(255,255,255,0.6)", size: 6 } }, hovertemplate: "%{y}" });
  return figure({
    name: "moved", title: "Units moved", width: "w6", height: 300, phone: 260, label: "Units, units moved and transpositions for every group",
    says: "A group is a set of units that may be reordered together, such as one hidden layer. A transposition swaps two units; the count is the least number of swaps that gives the permutation. Two unrelated networks leave almost no unit in its place.",
    draw: (colours) => ({ data: [bars("units", "size", faint(colours.muted, 0.55), ""), bars("moved", "moved", colours.fourth, ""), bars("transpositions", "transpositions", colours.fifth, "/")],
      layout: layout(colours, { barmode: "group", bargap: 0.35, showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, margin: { l: 52, r: 14, t: 34, b: 44 },
        xaxis: axis(colours, "group", { type: "category" }), yaxis: axis(colours, "count", { tickformat: "d" }) }) }),
  });
}

function similarityFigures(alignment, state) {
  state.perGroup = state.perGroup || [];
  const sweeps = sweepControl(alignment, state);
  return [["before", "Similarity of units, before"], ["after", "Similarity of units, after"]].map(([key, title]) => {
    const plot = figure({
      name: "similarity-" + key, title, width: "w6", height: 480, phone: 300, label: `Matrix of correlations between units of the two posteriors ${key} alignment`,
      control: key === "after" ? sweeps.node : null,
      says: key === "before" ? "Correlation of the mean weights of unit i of the first posterior with unit j of the second. Without alignment the diagonal is nothing special: unit i of one network has no reason to resemble unit i of the other."
        : "The same after alignment: matched units stand on the diagonal. Units are ordered by the size of their weights in the first posterior; where there are many, the largest are shown.",
      draw: (colours) => similarityPlot(key === "before" ? alignment.similarity[state.group].before : sweeps.shown(), colours),
    });
    if (key === "after") sweeps.redraw = () => plot.draw();
    state.perGroup.push(plot);
    return plot;
  });
}

// The matrix after every sweep of the search: it begins as the one before, and falls onto its diagonal.
function sweepControl(alignment, state) {
  const frames = () => { const found = alignment.similarity[state.group]; return [found.before, ...(found.between || []), found.after]; };
  const count = frames().length, control = { shown: () => frames()[at], redraw: () => null, node: null };
  let at = count - 1;
  if (count < 3) return control;
  const slider = el("input", { type: "range", min: 0, max: count - 1, step: 1, value: at, id: "sweep", "aria-label": "Sweep of the search" });
  const says = el("output", { for: "sweep" }), button = el("button", { type: "button", class: "quiet" });
  const show = () => {
    at = Number(slider.value);
    says.textContent = at === 0 ? "before" : at === count - 1 ? "after" : `on the way, ${at} of ${count - 1}`;
    slider.setAttribute("aria-valuetext", says.textContent);
    control.redraw();
  };
  const player = playback(button, slider, count, show, 650, "the search, sweep by sweep");
  slider.addEventListener("input", () => { player.stop(); show(); });
  show();
  control.node = el("div", { class: "sweeps" }, button, slider, says);
  return control;
}

function similarityPlot(matrix, colours) {
  const dark = document.documentElement.dataset.theme === "dark";
  const zero = dark ? "#10141a" : "#ffffff", scale = [[0, colours.fifth], [0.25, mix(colours.fifth, zero, 0.45)], [0.5, zero], [0.75, mix(colours.fourth, zero, 0.5)], [1, colours.fourth]];
  return { data: [{ type: "heatmap", z: matrix, zmin: -1, zmax: 1, colorscale: scale, hovertemplate: "first %{y}, second %{x}: %{z:.2f}<extra></extra>",
    colorbar: { thickness: 11, outlinewidth: 0, tickvals: [-1, -0.5, 0, 0.5, 1], ticktext: ["−1", "−0.5", "0", "0.5", "1"], tickfont: { color: colours.ink } } }],
    layout: layout(colours, { hovermode: "closest", margin: { l: 48, r: 6, t: 8, b: 44 }, xaxis: axis(colours, "unit of the second posterior", { showgrid: false, constrain: "domain" }),
      yaxis: axis(colours, "unit of the first posterior", { autorange: "reversed", showgrid: false, scaleanchor: "x", constrain: "domain" }) }) };
}

function correlationFigure(alignment, state) {
  state.perGroup = state.perGroup || [];
  const plot = figure({
    name: "correlation", title: "Correlation of matched units", width: "w6", height: 300, phone: 260, label: "Histogram of correlations of matched units before and after alignment",
    says: "Correlation between the mean weights of each unit and its partner, for all units of the chosen group. The further to the right after alignment, the better the units match.",
    draw: (colours) => ({ data: PATHS.slice(0, 2).map((path, at) => histogram(alignment.correlation[state.group][at ? "after" : "before"], path, colours)),
      layout: layout(colours, { barmode: "overlay", bargap: 0.04, showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, margin: { l: 52, r: 14, t: 34, b: 44 },
        xaxis: axis(colours, "correlation with the matched unit", { range: [-1.02, 1.02], dtick: 0.5 }), yaxis: axis(colours, "number of units") }) }),
  });
  state.perGroup.push(plot);
  return plot;
}

function histogram(values, path, colours) {
  return { type: "histogram", x: values, name: path.title, xbins: { start: -1, end: 1, size: 0.05 }, opacity: 0.72,
    marker: { color: colours[path.name], pattern: { shape: path.name === "naive" ? "/" : "", bgcolor: colours[path.name], fgcolor: "rgba(255,255,255,0.6)", size: 5 } }, hovertemplate: "%{y}" };
}

function stdFigure(stds, name = "stds", title = "Standard deviations half way") {
  const looks = { first: ["third", "dot"], second: ["fifth", "dot"], naive: ["naive", "dash"], aligned: ["aligned", "solid"] };
  return figure({
    name, title, width: "w6", height: 300, phone: 270, label: "Histograms of standard deviations, before and after alignment",
    says: stds.says || "Share of weights by standard deviation. Moving units does not change the histogram of a posterior, but it changes which deviations are averaged half way: without alignment those of unrelated weights.",
    draw: (colours) => ({ data: stds.curves.map((curve) => ({ x: stds.centres, y: curve.shares.map((share) => 100 * share), name: plain(curve.name), mode: "lines", line: { color: colours[known(looks, curve.role, looks.first)[0]], dash: known(looks, curve.role, looks.first)[1], width: 2.2, shape: "hvh" }, hovertemplate: "%{y:.1f} %" })),
      layout: layout(colours, { showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 11.5 } }, margin: { l: 52, r: 14, t: narrow() ? 62 : 50, b: 44 },
        xaxis: axis(colours, "standard deviation", { ...(stds.scale === "log" ? logTicks(stds.centres) : {}), hoverformat: ".2g", unifiedhovertitle: { text: "std %{x:.2g}" } }), yaxis: axis(colours, "share of weights (%)", { rangemode: "tozero" }) }) }),
  });
}

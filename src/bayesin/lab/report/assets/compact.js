// Many samples folded into one Gaussian: does it predict what they predict, and how far was each from the common order?

function compactSection(run, state) {
  const compact = run.compact;
  if (!compact) return null;
  const groups = compact.groups || [], figures = [];
  if (groups.length) figures.push(swapsFigure(groups));
  if (compact.stds && compact.stds.curves) figures.push(stdFigure(compact.stds, "folded-stds", "Standard deviations of the Gaussian"));
  state.afterMount.push(() => figures.forEach((plot) => plot.draw()));
  return section("compact", "Many samples, one Gaussian", ...(compact.says || []).map((text) => lead(text)),
    (compact.scores || []).length ? scoresPanel(compact.scores) : null, el("div", { class: "grid" }, figures.map((plot) => plot.node)));
}

function scoresPanel(scores) {
  const rows = scores.map((score) => [score.name, percent(score.agreement), fixed(score.total_variation, 4), percent(score.accuracy), fixed(score.nll, 3), fixed(score.ece, 3)]);
  return el("div", { class: "panel" }, el("h3", {}, "Predictions on the test set"),
    table(["prediction of", "agreement", narrow() ? "TV" : "total variation", "accuracy", "NLL", "ECE"], rows, { class: "wrap" }),
    el("p", { class: "lead", style: "margin:.5rem 0 0;font-size:.88rem" }, "Agreement: share of test examples whose most probable class is that of the samples. Total variation: half the summed distance between its class probabilities and those of the samples, averaged over the test set. Neither says whether a prediction is as sure as it may be; NLL (nats) and expected calibration error do."));
}

const MOST_GROUPS = 4; // lines that stay apart; with more groups their sum is shown
const GROUP_LOOKS = [["third", "circle"], ["fourth", "diamond"], ["fifth", "square"], ["muted", "x"]];

function swapsFigure(groups) {
  const few = groups.length <= MOST_GROUPS, count = groups[0].transpositions.length, samples = [...Array(count).keys()];
  const total = samples.map((at) => groups.reduce((sum, group) => sum + (group.transpositions[at] || 0), 0));
  const lines = few ? groups.map((group) => [`${group.name} (${group.size} units)`, group.transpositions]) : [[`all ${groups.length} groups`, total]];
  const chance = groups.map((group) => [...Array(group.size).keys()].reduce((sum, at) => sum - 1 / (at + 1), group.size));
  const text = few ? groups.map((group, at) => `${fixed(chance[at], 1)} in ${group.name}`).join(", ") : fixed(chance.reduce((a, b) => a + b, 0), 0);
  return figure({
    name: "swaps", title: "Transpositions of each sample", width: "w6", height: 300, phone: 270, label: "Number of transpositions that move each sample into the common order",
    says: `The least number of swaps of two units that brings a sample into the common order. A permutation drawn at random takes on average ${text}.`,
    draw: (colours) => ({ data: lines.map(([name, counts], at) => ({ x: samples, y: counts, name: plain(name), mode: "markers",
      marker: { color: colours[GROUP_LOOKS[at][0]], symbol: GROUP_LOOKS[at][1], size: count > 60 ? 5 : 8 }, hovertemplate: "%{y}" })),
      layout: layout(colours, { showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, margin: { l: 52, r: 14, t: narrow() ? 62 : 44, b: 44 },
        xaxis: axis(colours, "sample", { tickformat: "d", range: [-0.5, count - 0.5], unifiedhovertitle: { text: "sample %{x}" } }), yaxis: axis(colours, "transpositions", { tickformat: "d", rangemode: "tozero" }) }) }),
  });
}

// One slider over τ, and everything that changes with it: calibration, confusion, single images.

function walkSection(run, state) {
  const walk = run.walk;
  if (!walk) return null;
  const kinds = PATHS.filter((path) => (walk[path.name] || []).length);
  const taus = walk.taus, output = el("output", { for: "tau", "aria-live": "polite" });
  const slider = el("input", { id: "tau", type: "range", min: 0, max: taus.length - 1, step: 1, value: middle(taus), "aria-label": "Position on the path, tau" });
  const play = el("button", { type: "button" });
  const numbers = el("div"), images = walk.images && (walk.images.labels || []).length ? imageCards(walk, kinds) : null;
  const trio = kinds.length === 2, width = trio ? "w4" : "w6"; // three figures in a row, or two: none is left alone
  const calibration = figure({
    name: "calibration", title: "Calibration", width, height: 330, phone: 280, label: "Calibration plot at the chosen tau",
    says: "How sure the network is against how often it is right; larger marks hold more images. On the diagonal its confidence can be believed; above it, it is not sure enough, below it too sure. Faint: fewer than five images.",
    draw: (colours) => calibrationPlot(walk, kinds, state.step, colours),
  });
  const confusions = kinds.map((path) => figure({
    name: "confusion-" + path.name, title: "Confusion, " + path.title, width, height: 330, phone: 320, label: `Confusion matrix ${path.title} at the chosen tau`,
    says: "Number of test images of each true class (rows) given each class (columns). Everything off the diagonal is a mistake.",
    draw: (colours) => confusionPlot(walk, path.name, state.step, colours),
  }));
  const figures = [calibration, ...confusions];
  let waiting = false;
  const show = () => {
    state.step = Number(slider.value);
    state.tau = taus[state.step];
    output.textContent = "τ = " + fixed(state.tau, 3);
    slider.setAttribute("aria-valuetext", output.textContent);
    numbers.replaceChildren(walkNumbers(walk, kinds, state.step));
    if (images) images.update(state.step);
    if (waiting) return;
    waiting = true; // at most one redraw a frame, however fast the slider moves
    requestAnimationFrame(() => {
      waiting = false;
      if (state.gone) return; // another run is shown by now
      figures.forEach((plot) => plot.draw());
      (state.markers || []).forEach((plot) => plot.draw());
    });
  };
  const player = playback(play, slider, taus.length, show, 260, "walk along the path");
  slider.addEventListener("input", () => { player.stop(); show(); });
  state.go = (tau) => { slider.value = nearest(taus, tau); player.stop(); show(); };
  state.stop = player.stop;
  state.step = Number(slider.value);
  state.tau = taus[state.step];
  state.afterMount.push(show);
  state.refresh.push(show);
  return section("walk", "A walk along the path",
    lead("Move the slider to walk from the first posterior to the second. At the ends both paths show the same two networks, up to the noise of drawing weights: moving units changes nothing there. In between they need not agree."),
    el("div", { class: "panel slider" }, output, slider, play, el("div", { class: "ends" }, el("span", {}, "first posterior"), el("span", {}, "second posterior"))),
    el("div", { class: "panel" }, numbers),
    el("div", { class: trio ? "grid trio" : "grid" }, figures.map((plot) => plot.node)), images ? images.node : null);
}

const middle = (taus) => Math.floor(taus.length / 2);
const nearest = (taus, tau) => taus.reduce((best, other, at) => (Math.abs(other - tau) < Math.abs(taus[best] - tau) ? at : best), 0);

// A button that moves a slider to its end. Where the system asks for less motion, every press is one step instead.
function playback(button, slider, count, show, every, what) {
  const still = window.matchMedia("(prefers-reduced-motion: reduce)"), last = () => Number(slider.value) === count - 1;
  let timer = null;
  const say = (text) => { button.textContent = text; button.setAttribute("aria-label", `${text}: ${what}`); };
  const stop = () => { clearInterval(timer); timer = null; say(still.matches ? "Next step" : "Play"); };
  const step = () => { if (!slider.isConnected) return stop(); slider.value = Number(slider.value) + 1; show(); if (last()) stop(); };
  button.addEventListener("click", () => {
    if (timer) return stop();
    if (last()) { slider.value = 0; show(); } else if (still.matches) step();
    if (still.matches) return stop();
    timer = setInterval(step, every);
    say("Pause");
  });
  still.addEventListener("change", stop);
  stop();
  return { stop };
}

function walkNumbers(walk, kinds, step) {
  const rows = kinds.map((path) => {
    const here = walk[path.name][step];
    return [el("span", {}, el("span", { class: "key " + keyOf(path), "aria-hidden": "true" }), narrow() ? path.brief : path.title),
      fixed(here.nll, 3), percent(here.accuracy), percent(here.ece), percent(here.confidence)];
  });
  // A phone has room for four columns; the calibration plot shows how sure the network is.
  const columns = narrow() ? ["at this τ", "loss", "accuracy", "ECE"] : ["at this τ", "loss (nats)", "accuracy", "calibration error", "mean confidence"];
  return table(columns, rows.map((row) => row.slice(0, columns.length)));
}

const FEW = 5; // images in a bin, below which its share says little

function calibrationPlot(walk, kinds, step, colours) {
  const data = [{ x: [0, 1], y: [0, 1], mode: "lines", line: { color: colours.muted, width: 1.2, dash: "dot" }, hoverinfo: "skip" }];
  for (const path of kinds) {
    const bins = walk[path.name][step].calibration.filter((bin) => bin.count > 0), solid = bins.filter((bin) => bin.count >= FEW);
    data.push({ x: solid.map((bin) => bin.confidence), y: solid.map((bin) => bin.accuracy), mode: "lines", line: { color: colours[path.name], width: 1.6, dash: path.dash }, hoverinfo: "skip" });
    data.push({ x: bins.map((bin) => bin.confidence), y: bins.map((bin) => bin.accuracy), mode: "markers", name: path.title, text: bins.map((bin) => bin.count),
      marker: { color: colours[path.name], symbol: path.symbol, opacity: bins.map((bin) => (bin.count < FEW ? 0.35 : 0.95)), size: bins.map((bin) => 5 + 2.2 * Math.cbrt(bin.count)), line: { color: colours.card, width: 1 } },
      hovertemplate: "sure: %{x:.2f}<br>right: %{y:.2f}<br>%{text} images<extra>%{fullData.name}</extra>" });
  }
  const range = [-0.04, 1.06];
  return { data, layout: layout(colours, { hovermode: "closest", xaxis: axis(colours, "confidence", { range, tickvals: [0, 0.25, 0.5, 0.75, 1] }), yaxis: axis(colours, "share that is right", { range, tickvals: [0, 0.25, 0.5, 0.75, 1] }) }) };
}

function confusionPlot(walk, kind, step, colours) {
  const counts = walk[kind][step].confusion, names = walk.classes.map(plain);
  const shares = counts.map((row) => { const total = row.reduce((a, b) => a + b, 0); return row.map((value) => (total ? value / total : 0)); });
  const small = counts.length <= 12;
  return { data: [{ type: "heatmap", z: shares, x: names, y: names, zmin: 0, zmax: 1, showscale: false, xgap: 1, ygap: 1,
    colorscale: [[0, 0.03], [0.001, 0.14], [0.25, 0.5], [1, 1]].map(([at, share]) => [at, mix(colours[kind], colours.card, share)]),
    text: counts.map((row) => row.map((value) => (value ? String(value) : ""))), texttemplate: small ? "%{text}" : undefined, textfont: { size: narrow() ? 10 : 11 },
    customdata: counts, hovertemplate: "true %{y}, called %{x}: %{customdata}<extra></extra>" }],
    layout: layout(colours, { hovermode: "closest", margin: { l: 44, r: 8, t: 6, b: 40 }, xaxis: axis(colours, "predicted class", { type: "category", showgrid: false, ticks: "" }),
      yaxis: axis(colours, "true class", { type: "category", autorange: "reversed", showgrid: false, ticks: "" }) }) };
}

const isWord = (name) => String(name).length > 2;

function imageCards(walk, kinds) {
  const updates = [];
  const cards = walk.images.labels.map((label, at) => {
    const strips = kinds.map((path) => probabilityStrip(walk, path, at, label));
    updates.push(...strips.map((strip) => strip.update));
    return el("li", { class: "image" }, el("div", { class: "shot" }, picture(walk.images, at, walk.classes[label]), el("div", { class: "truth" }, "true: ", el("b", {}, walk.classes[label]))),
      el("div", { class: "strips" }, strips.map((strip) => strip.node)));
  });
  const node = el("div", { class: "panel", style: "margin-top:1rem" }, el("h3", {}, "Single images"),
    el("p", { class: "lead", style: "margin:0;font-size:.88rem" }, walk.images.says || "Predictive probabilities of a few test images; the true class stands out."),
    legend(kinds.map((path) => [keyOf(path), path.title])), el("ul", { class: walk.classes.some(isWord) ? "images named" : "images" }, cards));
  return { node, update: (step) => updates.forEach((update) => update(step)) };
}

function probabilityStrip(walk, path, image, truth) {
  const says = el("div", { class: "says" }), bars = el("div", { class: "bars", "aria-hidden": "true" }), ticks = el("div", { class: "ticks", "aria-hidden": "true" });
  const few = walk.classes.length <= 12, named = walk.classes.some(isWord);  // words do not fit below a bar
  const items = few ? walk.classes.map((name, at) => {
    if (!named) ticks.append(el("span", { class: at === truth ? "true" : "" }, String(name)));
    return bars.appendChild(el("i", { class: at === truth ? "" : "not-true" }));
  }) : [];
  const update = (step) => {
    const chances = walk[path.name][step].probabilities[image];
    items.forEach((item, at) => { item.style.height = 100 * chances[at] + "%"; item.title = `${walk.classes[at]}: ${percent(chances[at])}`; });
    const best = chances.indexOf(Math.max(...chances));
    const verdict = best === truth ? "✓" : "✗";
    says.replaceChildren(el("span", { class: "key " + keyOf(path), title: path.title }), el("b", { "aria-label": `${walk.classes[best]}, ${best === truth ? "right" : "wrong"}, ${percent(chances[best], 0)}` }, `${verdict} ${walk.classes[best]} · ${percent(chances[best], 0)}`));
  };
  return { node: el("div", { class: "strip " + path.name }, says, few ? [bars, ticks] : null), update };
}

function picture(images, at, name) {
  const [height, width, channels] = images.shape, pixels = images.pixels[at];
  const canvas = el("canvas", { width, height, role: "img", "aria-label": `Test image of class ${name}` });
  const context = canvas.getContext("2d"), frame = context.createImageData(width, height);
  for (let pixel = 0; pixel < width * height; pixel++) {
    for (let channel = 0; channel < 3; channel++) frame.data[4 * pixel + channel] = pixels[pixel * channels + (channels === 3 ? channel : 0)];
    frame.data[4 * pixel + 3] = 255;
  }
  context.putImageData(frame, 0, 0);
  return canvas;
}

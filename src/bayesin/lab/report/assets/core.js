// Building blocks: elements without innerHTML (names come from files), numbers for people, plots that follow the theme.

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

// Plotly reads a little HTML in its labels; text from files must stay text.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// Names from files are looked up among our own alone: every object also has a "constructor".
const known = (table, name, otherwise) => (Object.hasOwn(table, name) ? table[name] : otherwise);

const present = (value) => value !== null && value !== undefined && Number.isFinite(value);
const fixed = (value, digits) => (present(value) ? value.toFixed(digits).replace(/^-(?=0(\.0*)?$)/, "").replace("-", "−") : "–");
const percent = (value, digits = 1) => (present(value) ? fixed(100 * value, digits) + "\u00a0%" : "–");
// Three significant digits; small numbers as a power of ten.
function brief(value) {
  if (!present(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en").replace("-", "−");
  if (size < 1e-3) return value.toExponential(1).replace("e-", " × 10⁻").replace(/⁻(\d+)$/, (_, d) => "⁻" + superscript(d)).replace("-", "−");
  return fixed(value, Math.max(0, 2 - Math.floor(Math.log10(size))));
}
const superscript = (digits) => digits.replace(/\d/g, (d) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[d]);
// A point has no draws, and so no error: it is given as zero.
const nats = (value, error) => fixed(value, 3) + (present(error) && error > 0 ? " ± " + fixed(error, 3) : "");
const bytes = (count) => (count < 1000 ? `${count} B` : count < 1e6 ? `${fixed(count / 1e3, count < 1e4 ? 1 : 0)} kB` : `${fixed(count / 1e6, 1)} MB`);

function ink() {
  const style = getComputedStyle(document.documentElement);
  const names = ["paper", "card", "ink", "muted", "line", "grid", "naive", "aligned", "rescaled", "mixture", "third", "fourth", "fifth"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
}

function faint(colour, alpha) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

// The opaque colour that `share` of one colour over another gives; plotly picks readable text on opaque colours only.
function mix(over, under, share) {
  const parts = [1, 3, 5].map((at) => [over, under].map((colour) => parseInt(colour.slice(at, at + 2), 16)));
  return "#" + parts.map(([top, bottom]) => Math.round(share * top + (1 - share) * bottom).toString(16).padStart(2, "0")).join("");
}

// Ticks of a logarithmic axis as plain numbers: 1, 2 and 5 where the range is short, powers of ten where it is long.
function logTicks(values) {
  const found = values.filter((value) => present(value) && value > 0);
  const low = Math.log10(Math.min(...found)), high = Math.log10(Math.max(...found));
  const steps = high - low < 2.6 ? [1, 2, 5] : [1], tickvals = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power++) steps.forEach((step) => tickvals.push(step * 10 ** power));
  return { type: "log", tickvals, ticktext: tickvals.map((value) => (value < 1e-3 ? "10" + superscript10(value) : String(Number(value.toPrecision(2))))) };
}
const superscript10 = (value) => "⁻" + superscript(String(Math.round(-Math.log10(value))));

const narrow = () => window.innerWidth < 600;
const plots = []; // every plot on the page, so that a change of theme or width redraws all

function axis(colours, title, more) {
  return {
    title: { text: title, standoff: 8, font: { size: 13 } }, gridcolor: colours.grid, linecolor: colours.line, zeroline: false,
    ticks: "outside", ticklen: 4, tickcolor: colours.line, automargin: true, fixedrange: true, ...more,
  };
}

function layout(colours, more) {
  return {
    font: { family: getComputedStyle(document.body).fontFamily, size: narrow() ? 11.5 : 12.5, color: colours.ink },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 52, r: 14, t: 10, b: 44 }, showlegend: false,
    hoverlabel: { bgcolor: colours.card, bordercolor: colours.line, font: { color: colours.ink, size: 12.5 } },
    hovermode: "x unified", dragmode: false, ...more,
  };
}

// A plot with its title and the sentence that says what it shows. `draw(colours)` returns plotly's {data, layout}.
function figure(options) {
  const target = el("div", { class: "plot", role: "img", "aria-label": options.label || options.title, "data-plot": options.name });
  const head = el("div", { class: "head" }, el(options.heading || "h3", {}, options.title), options.control);
  const node = el("figure", { class: options.width }, head, target, el("figcaption", {}, options.says || null));
  const plot = { node, target, options, drawing: Promise.resolve(), draw: () => { plot.drawing = drawPlot(plot); return plot.drawing; } };
  plots.push(plot);
  return plot;
}

function drawPlot({ target, options }) {
  const height = options.fit ? options.fit(target.clientWidth) : narrow() ? options.phone || options.height : options.height;
  target.style.height = height + "px";
  const { data, layout } = options.draw(ink());
  const drawing = Plotly.react(target, data, { ...layout, height }, { displayModeBar: false, responsive: true, displaylogo: false });
  // A plot that has left the page while it was drawn has no size, which is no error of the page.
  return drawing.catch((error) => { if (target.isConnected) throw error; });
}

// Plotly draws in steps; taking a plot apart waits for the last of them.
const clear = (plot) => plot.drawing.finally(() => Plotly.purge(plot.target));

function table(columns, rows, options = {}) {
  const head = el("thead", {}, el("tr", {}, columns.map((column) => el("th", { scope: "col" }, column))));
  const body = rows.map((row) => el("tr", {}, row.map((cell, at) => (at ? el("td", {}, cell) : el("th", { scope: "row" }, cell)))));
  return el("div", { class: "scroll" }, el("table", { class: "numbers " + (options.class || "") }, columns.length ? head : null, el("tbody", {}, body)));
}

// What scrolls sideways must be within reach of the keyboard; what does not would be a stop for nothing.
function reachable() {
  document.querySelectorAll(".scroll:not(.drawn)").forEach((node) => {
    const scrolls = node.scrollWidth > node.clientWidth + 1 || node.scrollHeight > node.clientHeight + 1;
    const names = { tabindex: "0", role: "group", "aria-label": "Table that scrolls" };
    Object.entries(names).forEach(([name, value]) => (scrolls ? node.setAttribute(name, value) : node.removeAttribute(name)));
  });
}

function legend(entries) {
  return el("ul", { class: "legend" }, entries.filter(Boolean).map(([key, ...text]) => el("li", {}, el("span", { class: "key " + key, "aria-hidden": "true" }), el("span", {}, text))));
}

// A row of choices: real radio buttons, so that arrow keys work.
function choice(label, options, chosen, onchange) {
  const name = "choice-" + Math.random().toString(36).slice(2);
  return el("fieldset", { class: "choice" }, el("legend", {}, label), options.map(([value, text]) =>
    el("label", {}, el("input", { type: "radio", name, value, checked: value === chosen, onchange: () => onchange(value) }), el("span", {}, text))));
}

function section(id, title, ...children) {
  return el("section", { id, "aria-labelledby": id + "-title" }, el("h2", { id: id + "-title" }, title), ...children);
}
const keyOf = (path) => `${path.name} ${path.dash === "dashdot" ? "dash" : path.dash}`;
const lead = (...text) => el("p", { class: "lead" }, ...text);

// What the kinds of path are called, drawn and keyed everywhere on the page. Each has a colour of its own, and nothing else has it.
const PATHS = [
  { name: "naive", title: "without alignment", brief: "not aligned", dash: "dash", symbol: "diamond" },
  { name: "aligned", title: "after alignment", brief: "aligned", dash: "solid", symbol: "circle" },
  { name: "rescaled", title: "aligned and rescaled", brief: "rescaled", dash: "dashdot", symbol: "triangle-up" },
  { name: "mixture", title: "mixture of both, a control", brief: "mixture", dash: "dot", symbol: "square" },
];

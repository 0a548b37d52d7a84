// The headline: what was found, in words, in one picture, and in the numbers that matter.

function summarySection(run, all, choose, state) {
  const cards = (run.summary || []).map((card) => el("div", { class: "card " + (PATHS.some((path) => path.name === card.tone) ? card.tone : "") },
    el("dt", {}, card.label), el("dd", {}, card.value, card.unit ? el("small", {}, " " + card.unit) : null), card.note ? el("dd", { class: "note" }, card.note) : null));
  const select = all.length > 1 ? el("select", { id: "which", onchange: (event) => choose(Number(event.target.value)) },
    all.map((other, at) => el("option", { value: at, selected: other === run }, other.name || other.title))) : null;
  const words = el("div", { class: "words" }, el("h1", {}, run.title || "Report"),
    select ? el("p", {}, el("label", {}, "Run ", select)) : null, ...(run.lead || []).map((text) => lead(text)));
  const picture = heroFigure(run, state);
  return el("section", { id: "top", "aria-label": "What was found" }, picture ? el("div", { class: "hero" }, words, picture) : words,
    cards.length ? el("dl", { class: "cards" }, cards) : null, ...(all.length > 1 ? comparisons(all) : []));
}

const firstSet = (run) => { const sets = (run.barrier || {}).sets || {}; return sets.test || Object.values(sets)[0]; };

// The loss along the path stands beside the headline; the section below has it again with all else that was measured.
function heroFigure(run, state) {
  const curves = firstSet(run);
  if (!curves || !PATHS.some((path) => curves[path.name])) return null;
  const known = PATHS.filter((path) => curves[path.name]);
  const plot = figure({
    name: "hero", heading: "h2", title: "Loss on the way from one to the other", width: "", height: 290, phone: 240,
    label: "Loss along the path: " + known.map((path) => `barrier ${path.title} ${nats(curves[path.name].value)} nats`).join(", "),
    says: legend(known.map((path) => [keyOf(path), path.title])), draw: (colours) => barrierPlot(curves, MEASURES[0], colours, null),
  });
  state.afterMount.push(() => plot.draw());
  return plot.node;
}

// Several runs on one page: a table for each kind of run, with the columns that this kind has.
const COMPARED = [
  { title: "Barriers", has: firstSet, row: barrierRow },
  { title: "Many samples in one Gaussian", has: (run) => ((run.compact || {}).scores || []).length, row: compactRow },
  { title: "Predictions", has: (run) => !run.compact && ((run.evaluation || {}).rows || []).length, row: evaluationRow },
  { title: "Claims", has: (run) => (run.claims || []).length, row: claimsRow },
];

function comparisons(all) {
  const placed = new Set();
  const tables = COMPARED.map((kind) => {
    const runs = all.filter((run) => kind.has(run));
    if (!runs.length) return null;
    runs.forEach((run) => placed.add(run));
    const cells = runs.map((run) => kind.row(run)), names = [...new Set(cells.flatMap((row) => Object.keys(row)))];
    return comparison(kind.title, ["run", ...names], runs.map((run, at) => [run.name || run.title, ...names.map((name) => cells[at][name] ?? "–")]));
  });
  const others = all.filter((run) => !placed.has(run));
  return [...tables.filter(Boolean), others.length ? comparison("Other runs", ["run", ""], others.map((run) => [run.name || run.title, run.title || ""])) : null];
}

const comparison = (title, columns, rows) => el("div", { class: "panel compared" }, el("h2", {}, title), table(columns, rows, { class: "wrap" }));

function barrierRow(run) {
  const curves = firstSet(run), first = Object.values(curves)[0] || {}, row = {};
  if (present((first.accuracy || [])[0])) row["accuracy at τ = 0"] = percent(first.accuracy[0]);
  for (const path of PATHS) if (curves[path.name]) row[`barrier ${path.title} (nats)`] = nats(curves[path.name].value, curves[path.name].error);
  return row;
}

function compactRow(run) {
  const scores = run.compact.scores, score = scores.find((one) => one.name === "Gaussian in a common order") || scores[scores.length - 1];
  return { "prediction of": score.name, agreement: percent(score.agreement), "total variation": fixed(score.total_variation, 4), accuracy: percent(score.accuracy) };
}

function evaluationRow(run) {
  const { columns, rows } = run.evaluation;
  return { of: rows.length > 1 ? `${rows[0].name} (first of ${rows.length})` : rows[0].name, ...Object.fromEntries(columns.slice(0, 3).map((column, at) => [column, rows[0].values[at]])) };
}

function claimsRow(run) {
  const counts = Object.keys(VERDICTS).map((verdict) => [verdict, run.claims.filter((one) => one.verdict === verdict).length]).filter(([, count]) => count);
  return Object.fromEntries(counts.map(([verdict, count]) => [verdict, String(count)]));
}

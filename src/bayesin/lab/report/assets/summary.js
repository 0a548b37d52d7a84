// The headline: what was done, in words, and the numbers that matter.

function summarySection(run, all, choose) {
  const cards = (run.summary || []).map((card) => el("div", { class: "card " + (["naive", "aligned"].includes(card.tone) ? card.tone : "") },
    el("dt", {}, card.label), el("dd", {}, card.value, card.unit ? el("small", {}, " " + card.unit) : null), card.note ? el("dd", { class: "note" }, card.note) : null));
  const select = all.length > 1 ? el("select", { id: "which", onchange: (event) => choose(Number(event.target.value)) },
    all.map((other, at) => el("option", { value: at, selected: other === run }, other.name || other.title))) : null;
  return el("section", { id: "top" }, el("h1", {}, run.title || "Report"),
    select ? el("p", {}, el("label", {}, "Run ", select)) : null,
    ...(run.lead || []).map((text) => lead(text)), cards.length ? el("dl", { class: "cards" }, cards) : null,
    all.length > 1 ? comparison(all) : null);
}

// Several runs on one page: one row each.
function comparison(all) {
  const value = (run, kind) => {
    const sets = (run.barrier || {}).sets || {};
    const curve = ((sets.test || Object.values(sets)[0] || {})[kind]) || {};
    return nats(curve.value, curve.error);
  };
  const accuracy = (run) => {
    const sets = (run.barrier || {}).sets || {};
    const curve = Object.values(sets.test || Object.values(sets)[0] || {})[0] || {};
    return percent((curve.accuracy || [])[0]);
  };
  const rows = all.map((run) => [run.name || run.title, accuracy(run), value(run, "naive"), value(run, "aligned")]);
  return el("div", { class: "panel", style: "margin-top:1rem" }, el("h3", {}, "All runs on this page"),
    table(["run", "accuracy at τ = 0", "barrier without alignment (nats)", "barrier after alignment (nats)"], rows));
}

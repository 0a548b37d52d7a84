// Claims of a paper, each with what it says, what was measured, and a verdict.

const VERDICTS = { confirmed: ["✓", "ink"], partly: ["◐", "fifth"], "not confirmed": ["✗", "fourth"], "not decided": ["?", "muted"], "not judged": ["·", "muted"], "not measured": ["–", "muted"] };

function claimsSection(run) {
  if (!(run.claims || []).length) return null;
  return section("claims", "Claims", run.claims.map((one) => {
    const [sign, colour] = known(VERDICTS, one.verdict, VERDICTS["not measured"]);
    const row = (label, text) => (text && text !== "–" ? [el("dt", {}, label), el("dd", {}, text)] : []);
    return el("div", { class: "panel claim" }, el("h3", {}, one.claim),
      el("p", { class: "verdict", style: `border-color:var(--${colour})` }, `${sign} ${one.verdict}`),
      el("dl", {}, row("the paper", one.paper), row("measured here", one.ours), row("why", one.reason)));
  }));
}

// Figures drawn elsewhere, as pictures.

function picturesSection(run) {
  // Only pictures that the page itself holds; an address would be a request.
  const held = (run.pictures || []).filter((one) => typeof one.image === "string" && one.image.startsWith("data:image/svg+xml;base64,"));
  if (!held.length) return null;
  return section("pictures", "Figure", held.map((one) => el("div", { class: "panel" }, one.title ? el("h3", {}, one.title) : null,
    el("div", { class: "scroll drawn", tabindex: "0", role: "group", "aria-label": one.label || one.title || "figure" }, el("img", { src: one.image, alt: one.label || one.title || "figure" })),
    one.says ? el("p", { class: "lead", style: "margin:.5rem 0 0;font-size:.88rem" }, one.says) : null)));
}

// Runs before anything is drawn, so that the page never flashes in the wrong colours.
(function () {
  var chosen = null;
  try { chosen = localStorage.getItem("bayesin-theme"); } catch (error) { /* storage is off for local files */ }
  var dark = window.matchMedia && window.matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = chosen === "light" || chosen === "dark" ? chosen : dark ? "dark" : "light";
})();

// What the theme leaves out for keyboards and screen readers: levels of the sidebar's headings, names of its landmarks,
// and a way to scroll code and tables without a mouse.
document.addEventListener("DOMContentLoaded", () => {
  for (const heading of document.querySelectorAll(".caption[role=heading]")) heading.setAttribute("aria-level", "2");
  const name = (selector, text) => document.querySelectorAll(selector).forEach((node) => node.setAttribute("aria-label", text));
  name(".sidebar-drawer", "All pages");
  name(".toc-drawer", "This page");
  for (const node of document.querySelectorAll(".highlight pre, .table-wrapper"))
    if (node.scrollWidth > node.clientWidth) node.tabIndex = 0;
});

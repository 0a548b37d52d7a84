// A choice of versions at the top of the sidebar. versions.py puts the list before this script.
(function () {
  const { versions: root, version, page } = document.currentScript.dataset;
  const address = (one) => `${root}${one.name}/${one.pages.includes(page) ? page : "index.html"}`;
  const select = document.createElement("select"), label = document.createElement("label");
  for (const one of window.bayesinVersions) select.add(new Option(one.name, address(one), false, one.name === version));
  select.id = "version-switch";
  select.addEventListener("change", () => { location.href = select.value; });
  label.htmlFor = select.id;
  label.textContent = "Version ";
  label.style.cssText = "display:block;padding:0 var(--sidebar-item-spacing-horizontal,1rem) .5rem;font-size:.875rem";
  select.style.cssText = "font:inherit;color:inherit;background:var(--color-background-primary,Canvas);border:1px solid var(--color-foreground-border,GrayText);border-radius:4px;padding:.15rem .3rem";
  label.append(select);
  const brand = document.querySelector(".sidebar-brand");
  if (brand) brand.after(label); else document.body.prepend(label);
})();

// Clicks before the page's modules have loaded are kept, and repeated once they have. This is not a module itself, because modules wait for
// the whole page. Links, and forms with a method, need no script and work at once.
(() => {
  const pressed = new Set();
  const keep = (event) => {
    const one = event.target.closest(event.type === "submit" ? "form:not([method])" : "button[type='button']");
    if (!one) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    pressed.add(one);
  };
  const kinds = ["click", "submit"];
  for (const kind of kinds) document.addEventListener(kind, keep, true);
  // This event comes when every module has run.
  document.addEventListener("DOMContentLoaded", () => {
    for (const kind of kinds) document.removeEventListener(kind, keep, true);
    for (const one of pressed) one instanceof HTMLFormElement ? one.requestSubmit() : one.click();
  });
})();

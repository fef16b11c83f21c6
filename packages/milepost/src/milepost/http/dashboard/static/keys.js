// Keyboard shortcuts for the items of a route: j and k move, x selects, ? lists the keys. Enter opens: a row is a link.
const dialog = document.querySelector("[data-keys]");
const rows = () => [...document.querySelectorAll("[data-items] a.row")];

function move(step) {
  const all = rows();
  const at = all.indexOf(document.activeElement?.closest("tr")?.querySelector("a.row"));
  const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + step))];
  next?.focus();
}

const keys = {
  j: () => move(1),
  k: () => move(-1),
  x: () => document.activeElement?.closest("tr")?.querySelector("[data-key]")?.click(),
  "?": () => dialog.showModal(),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input:not([type='checkbox']), textarea, select")) return;
  if (!Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
});
document.querySelector("[data-keys-open]").addEventListener("click", () => dialog.showModal());

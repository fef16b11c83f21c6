// The items of a route: ticks, "all that match", and the verbs.
import { ask } from "./dialog.js";
import { askDeed } from "./bulk.js";

const bar = document.querySelector("[data-acts]");
let all = false;

const ticked = () => [...document.querySelectorAll("[data-key]:checked")].map((box) => box.dataset.key);
const count = () => (bar.querySelector("[data-chosen]").textContent = all ? "all that match" : ticked().length);

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-tick-all]")) for (const box of document.querySelectorAll("[data-key]")) box.checked = event.target.checked;
  if (event.target.matches("[data-tick-all], [data-key]")) {
    all = false;
    count();
  }
});
bar?.querySelector("[data-all]").addEventListener("click", () => {
  all = true;
  count();
});
bar?.addEventListener("click", (event) => {
  const verb = event.target.closest("[data-verb]")?.dataset.verb;
  if (!verb) return;
  const keys = ticked();
  if (!all && !keys.length) ask({ title: "Nothing chosen", told: "Choose some items first." });
  else askDeed(bar.dataset.route, verb, all ? { filter: JSON.parse(bar.dataset.filter) } : { keys });
});

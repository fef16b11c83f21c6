// The items of a route: selection, "all that match", the acts, and a filter whose URL contains only the fields in use.
import { ask } from "./dialog.js";
import { askDeed } from "./bulk.js";

const bar = document.querySelector("[data-acts]");
const table = document.querySelector("[data-items]");
const found = document.querySelector("[data-told]");
const button = bar.querySelector("[data-all]");
const { route, filter, scan, stages } = bar.dataset;
const narrowed = JSON.parse(filter);

// The statuses that each act applies to: an act on the whole route is limited to these.
const WHOLE = {
  retry: ["live", "failed", "CANCELLED"],
  skip: ["live", "failed", "CANCELLED"],
  resend: ["live"],
  cancel: ["live"],
  rerun: ["COMPLETED"],
  reschedule: ["PENDING", "QUEUED"],
};

let all = false;

const shown = () => [...table.querySelectorAll("[data-key]")];
const ticked = () => shown().filter((box) => box.checked);

function everything() {
  const { total } = found.dataset;
  return total ? `all ${Number(total).toLocaleString()} that match` : "all that match";
}

function count() {
  if (all) for (const box of shown()) box.checked = true;
  const chosen = bar.querySelector("[data-chosen]");
  if (chosen) chosen.textContent = all ? everything() : ticked().length.toLocaleString();
  if (button) button.textContent = all ? "select none" : "select all that match";
  const whole = table.querySelector("[data-tick-all]");
  if (whole) whole.checked = ticked().length > 0 && ticked().length === shown().length;
}

document.addEventListener("change", ({ target }) => {
  if (!target.matches("[data-tick-all], [data-key]")) return;
  if (target.matches("[data-tick-all]")) for (const box of shown()) box.checked = target.checked;
  all = false;
  count();
});
// Rows appear and disappear while the page is open.
const watching = new MutationObserver(count);
watching.observe(table, { childList: true, subtree: true });
watching.observe(found, { attributes: true });

button?.addEventListener("click", () => {
  all = !all;
  for (const box of shown()) box.checked = all;
  count();
});

function which(verb) {
  if (!all) return { keys: ticked().map((box) => box.dataset.key) };
  const chosen = Object.keys(narrowed).length ? narrowed : { status: WHOLE[verb] };
  return { filter: chosen, ...(scan === "1" ? { scan: true } : {}) };
}

bar.addEventListener("click", (event) => {
  const word = event.target.closest("[data-verb]")?.dataset.verb;
  if (!word) return;
  if (!all && !ticked().length) {
    ask({ title: "Nothing selected", told: "Select some items first." });
    return;
  }
  const verb = word === "back" ? "retry" : word;
  const options = { whole: all && !Object.keys(narrowed).length };
  if (word === "back") {
    options.title = "Send back";
    options.words = "back";
    options.fields = [
      { name: "stage", label: "To the stage", type: "select", options: stages.split(",").map((name) => [name, name]) },
      { name: "as_new", label: "As new work: partners do not treat it as a repeat", type: "checkbox" },
    ];
  }
  if (word === "rerun") {
    options.fields = [
      { name: "stage", label: "From the stage", type: "select", options: stages.split(",").map((name) => [name, name]) },
      { name: "as_new", label: "As new work also at the last stage", type: "checkbox" },
    ];
  }
  if (word === "reschedule") {
    options.fields = [{ name: "not_before", label: "Not before", value: "2h", help: "2h, 3d, 2027-01-31, or 2027-01-31T08:00:00Z" }];
  }
  askDeed(route, verb, which(verb), options);
});

// A form sends its empty fields too.
document.querySelector("[data-filters]").addEventListener("formdata", ({ formData }) => {
  for (const [name, value] of [...formData]) if (!value) formData.delete(name);
});

// Some boxes may be ticked already: before this script ran, or after going back to the page.
count();

// The items of a route: selection, "all that match", the acts, and a filter whose URL contains only the fields in use.
import { ask } from "./dialog.js";
import { askDeed } from "./bulk.js";
import { morph } from "./morph.js";

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

// While rows are ticked, none moves away and none is added: what is acted on is what was ticked. New rows wait behind a button.
const news = bar.querySelector("[data-news]");
const ticked = new Set();
let all = false;
let waiting = null;

const shown = () => [...table.querySelectorAll("[data-key]")];

function everything() {
  const { total } = found.dataset;
  return total ? `all ${Number(total).toLocaleString()} that match` : "all that match";
}

function elsewhere() {
  const here = shown().filter((box) => ticked.has(box.dataset.key)).length;
  return here === ticked.size ? "" : ` (${(ticked.size - here).toLocaleString()} not on this page)`;
}

function count() {
  for (const box of shown()) {
    const checked = all || ticked.has(box.dataset.key);
    if (box.checked !== checked) box.checked = checked;
  }
  const chosen = bar.querySelector("[data-chosen]");
  if (chosen) chosen.textContent = all ? everything() : ticked.size.toLocaleString() + elsewhere();
  if (button) button.textContent = all ? "select none" : "select all that match";
  const whole = table.querySelector("[data-tick-all]");
  if (whole) whole.checked = shown().length > 0 && shown().every((box) => box.checked);
  table.toggleAttribute("data-held", !all && ticked.size > 0);
  if (!table.hasAttribute("data-held")) letIn();
}

// Shows the rows that have waited. Ticked rows that are not among them stay selected.
function letIn() {
  const fresh = waiting;
  waiting = null;
  if (news) news.hidden = true;
  if (fresh) morph(table, fresh);
}

function letGo() {
  all = false;
  ticked.clear();
  count();
}

table.addEventListener("held", ({ detail: { left, fresh } }) => {
  waiting = fresh;
  if (!news) return;
  news.hidden = !left;
  news.textContent = `${left.toLocaleString()} new ↑`;
});
news?.addEventListener("click", letIn);

document.addEventListener("change", ({ target }) => {
  if (!target.matches("[data-tick-all], [data-key]")) return;
  if (all) for (const box of shown()) if (box !== target) ticked.add(box.dataset.key);
  for (const box of target.matches("[data-tick-all]") ? shown() : [target]) {
    if (target.checked) ticked.add(box.dataset.key);
    else ticked.delete(box.dataset.key);
  }
  all = false;
  count();
});
// A browser may have kept ticks from before this script ran, or from before going back to the page.
for (const box of shown()) if (box.checked) ticked.add(box.dataset.key);
// Rows appear and disappear while the page is open.
const watching = new MutationObserver(count);
watching.observe(table, { childList: true, subtree: true });
watching.observe(found, { attributes: true });

button?.addEventListener("click", () => {
  const chosen = !all;
  letGo();
  all = chosen;
  count();
});

function which(verb) {
  if (!all) return { keys: [...ticked] };
  const chosen = Object.keys(narrowed).length ? narrowed : { status: WHOLE[verb] };
  return { filter: chosen, ...(scan === "1" ? { scan: true } : {}) };
}

bar.addEventListener("click", (event) => {
  const word = event.target.closest("[data-verb]")?.dataset.verb;
  if (!word) return;
  if (!all && !ticked.size) {
    ask({ title: "Nothing selected", told: "Select some items first." });
    return;
  }
  const verb = word === "back" ? "retry" : word;
  const options = { whole: all && !Object.keys(narrowed).length };
  if (!all) options.done = letGo;
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

count();

// One item: the verbs that make sense for it.
import { askDeed } from "./bulk.js";

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-verb]");
  if (!button) return;
  const { route, one, stage } = button.closest("[data-acts]").dataset;
  const verb = button.dataset.verb;
  if (verb !== "confirm") return askDeed(route, verb, { keys: [one] });
  askDeed(route, verb, { keys: [one] }, {
    fields: [{ name: "value", label: "What was confirmed (JSON; empty: yes)", type: "long" }],
    made: ({ value }) => ({ stage, ...(value ? { outcome: { type: "done", output: parsed(value) } } : {}) }),
  });
});

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("What was confirmed is not JSON.");
  }
}

// One item: the acts that are possible for it, and a form for another item like it.
import { Written, base, call, segment } from "./api.js";
import { askDeed } from "./bulk.js";

const asked = {
  retry: () => ({
    fields: [
      {
        name: "as_new",
        label: "as new work, with another work id: partners do not treat it as a repeat",
        type: "checkbox",
      },
    ],
    made: ({ as_new }) => (as_new ? { as_new } : {}),
  }),
  back: ({ back }) => ({
    title: "send back",
    fields: [{ name: "stage", label: "To which stage?", type: "select", options: JSON.parse(back).map((name) => [name, name]) }],
  }),
  rerun: ({ stages }) => ({
    fields: [
      { name: "stage", label: "From which stage on?", type: "select", options: JSON.parse(stages).map((name) => [name, name]) },
      { name: "as_new", label: "as new work also at the last stage, with another work id", type: "checkbox" },
    ],
    made: ({ stage, as_new }) => ({ stage, ...(as_new ? { as_new } : {}) }),
  }),
  replace: ({ content }) => ({
    fields: [
      { name: "content", label: "New content (JSON)", type: "long", value: content },
      { name: "here", label: "Start again at its present stage, not at the first", type: "checkbox" },
    ],
    made: ({ content: given, here }) => ({ content: new Written(given, "The content"), ...(here ? { here } : {}) }),
  }),
  reschedule: () => ({
    fields: [
      { name: "not_before", label: "Not before", value: "now", help: "now, 2h, 3d, 2027-01-31, or 2027-01-31T08:00:00Z" },
    ],
    made: ({ not_before }) => ({ not_before: not_before === "now" ? "0s" : not_before }),
  }),
  confirm: ({ stage }) => ({
    title: `confirm ${stage}`,
    fields: [
      {
        name: "outcome",
        label: "Outcome",
        type: "select",
        options: [
          ["done", "done"],
          ["retry", "failed; it may be tried again"],
          ["reject", "rejected, permanently"],
        ],
      },
      { name: "value", label: "Output (JSON; empty: true)", type: "long", when: ({ outcome }) => outcome === "done" },
      {
        name: "force",
        label: "Confirm with force, although the answer does not cover what the stage was given. The history says so.",
        type: "checkbox",
        when: ({ outcome }) => outcome === "done",
      },
      { name: "error", label: "Error", when: ({ outcome }) => outcome !== "done" },
    ],
    made: ({ outcome, value, error, force }) => {
      if (outcome !== "done") return { stage, outcome: { type: outcome, ...(error ? { error } : {}) } };
      const given = value ? { outcome: { type: "done", output: new Written(value, "The output") } } : {};
      return { stage, ...given, ...(force ? { force } : {}) };
    },
  }),
};

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-verb]");
  if (!button) return;
  const bar = button.closest("[data-acts]").dataset;
  const { verb } = button.dataset;
  askDeed(bar.route, verb === "back" ? "retry" : verb, { keys: [bar.one] }, { words: verb, ...asked[verb]?.(bar) });
});

document.addEventListener("submit", async (event) => {
  if (!event.target.matches("[data-another]")) return;
  event.preventDefault();
  const form = event.target;
  const told = form.querySelector("[data-told]");
  told.classList.remove("bad");
  told.textContent = "Submitting…";
  try {
    const route = segment(form.dataset.route);
    const taken = await call("POST", `/routes/${route}/items`, { body: new Written(form.elements.content.value, "The content") });
    const link = document.createElement("a");
    [link.href, link.textContent] = [`${base}/items/${route}/${segment(taken.key)}`, taken.key];
    told.replaceChildren(link, taken.answer === "new" ? " is accepted." : " is known already; nothing was changed.");
  } catch (error) {
    told.classList.add("bad");
    told.textContent = error.message;
  }
});

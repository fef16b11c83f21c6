// One item: the verbs that make sense for it, and another like it.
import { Written, base, call, segment } from "./api.js";
import { askDeed } from "./bulk.js";

const asked = {
  retry: () => ({
    fields: [
      {
        name: "as_new",
        label: "as new work, under another work id: whoever did it before does not take it for the same",
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
      { name: "as_new", label: "as new work also at the last stage, under another work id", type: "checkbox" },
    ],
    made: ({ stage, as_new }) => ({ stage, ...(as_new ? { as_new } : {}) }),
  }),
  replace: ({ content }) => ({
    fields: [
      { name: "content", label: "Its content from now on (JSON)", type: "long", value: content },
      { name: "here", label: "Start again at its own stage, not at the first", type: "checkbox" },
    ],
    made: ({ content: given, here }) => ({ content: new Written(given, "Its content"), ...(here ? { here } : {}) }),
  }),
  reschedule: () => ({
    fields: [
      { name: "not_before", label: "Not before when?", value: "now", help: "now, 2h, 3d, 2027-01-31, or 2027-01-31T08:00:00Z" },
    ],
    made: ({ not_before }) => ({ not_before: not_before === "now" ? "0s" : not_before }),
  }),
  confirm: ({ stage }) => ({
    title: `confirm ${stage}`,
    fields: [
      {
        name: "outcome",
        label: "What became of it?",
        type: "select",
        options: [
          ["done", "done"],
          ["retry", "failed; it may be tried again"],
          ["reject", "rejected, for good"],
        ],
      },
      { name: "value", label: "What it gave (JSON; empty: yes)", type: "long", when: ({ outcome }) => outcome === "done" },
      {
        name: "force",
        label: "Confirm with force, although the answer does not cover what the stage was given. The history says so.",
        type: "checkbox",
        when: ({ outcome }) => outcome === "done",
      },
      { name: "error", label: "What went wrong?", when: ({ outcome }) => outcome !== "done" },
    ],
    made: ({ outcome, value, error, force }) => {
      if (outcome !== "done") return { stage, outcome: { type: outcome, ...(error ? { error } : {}) } };
      const given = value ? { outcome: { type: "done", output: new Written(value, "What it gave") } } : {};
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
  told.textContent = "Handing it over…";
  try {
    const route = segment(form.dataset.route);
    const taken = await call("POST", `/routes/${route}/items`, { body: new Written(form.elements.content.value, "Its content") });
    const link = document.createElement("a");
    [link.href, link.textContent] = [`${base}/items/${route}/${segment(taken.key)}`, taken.key];
    told.replaceChildren(link, taken.answer === "new" ? " is taken in." : " is known already; nothing was changed.");
  } catch (error) {
    told.classList.add("bad");
    told.textContent = error.message;
  }
});

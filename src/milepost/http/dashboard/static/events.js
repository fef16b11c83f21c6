// Subscribers: trying again what they did not take, telling them again, and letting one go.
import { call, segment } from "./api.js";
import { ask } from "./dialog.js";

const SPANS = [
  ["1h", "an hour ago"],
  ["1d", "a day ago"],
  ["7d", "a week ago"],
  ["", "a time of my own"],
];

const path = (name, act) => `/subscribers/${segment(name)}/${act}`;
const lines = (n) => `${n.toLocaleString()} line${n === 1 ? "" : "s"}`;

function release(name, { route, key }) {
  ask({
    title: key ? `Release ${key} for ${name}` : `Release all for ${name}`,
    told: key
      ? "It is tried again now, with what waits behind it."
      : "Whatever is parked is tried again now, each item with what waits behind it.",
    act: async ({ reason }) => {
      const { released } = await call("POST", path(name, "release"), { body: { reason, ...(key ? { route, key } : {}) } });
      return `${released.toLocaleString()} tried again.`;
    },
  });
}

const OWN = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?))?$/;

// From when on: a span back from now, or a time of the reader's own, by their clock. What is neither goes as it stands: the server says
// what is wrong with it, or knows what is meant.
function since({ span, moment }) {
  if (span) return span;
  const [, day, hour = "00:00"] = OWN.exec(moment) ?? [];
  const time = new Date(`${day}T${hour}`);
  return Number.isNaN(time.getTime()) ? moment : time.toISOString();
}

function replay(name) {
  const again = (values, more) => call("POST", path(name, "replay"), { body: { since: since(values), ...more } });
  ask({
    title: `Replay for ${name}`,
    fields: [
      { name: "span", label: "Tell it again everything since", type: "select", options: SPANS },
      { name: "moment", label: "Since when?", help: "2026-03-01 12:00", when: ({ span }) => !span },
    ],
    preview: async (values) => {
      if (!values.span && !values.moment) return { told: "Say since when.", none: true };
      const found = await again(values, { dry_run: true });
      if (!found.lines) return { told: "Nothing that it has been told is as young as that.", none: true };
      const from = new Date(found.since).toLocaleString();
      const gone = found.pruned ? ` ${lines(found.pruned)} before that are gone and cannot be told again.` : "";
      return `About ${lines(found.lines)}, from ${from} on, are told again in their order, with the ids that they had.${gone}`;
    },
    act: async ({ reason, ...values }) => {
      const found = await again(values, { reason });
      return `${lines(found.lines)} are told again.`;
    },
  });
}

function forget(name) {
  ask({
    title: `Forget ${name}`,
    told: "It is told no more, and nothing is kept for it. If it is started again, it goes on from then.",
    act: async ({ reason }) => {
      await call("POST", path(name, "forget"), { body: { reason } });
      return "It is told no more.";
    },
  });
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  const name = button?.closest("[data-subscriber]")?.dataset.subscriber;
  if (!name) return;
  if ("release" in button.dataset) release(name, button.dataset);
  if ("replay" in button.dataset) replay(name);
  if ("forget" in button.dataset) forget(name);
});

// Subscribers: release parked items, replay events, and remove a subscriber.
import { call, segment } from "./api.js";
import { ask } from "./dialog.js";

const SPANS = [
  ["1h", "an hour ago"],
  ["1d", "a day ago"],
  ["7d", "a week ago"],
  ["", "another time"],
];

const path = (name, act) => `/subscribers/${segment(name)}/${act}`;
const lines = (n) => `${n.toLocaleString()} line${n === 1 ? "" : "s"}`;

function release(name, { route, key }) {
  ask({
    title: key ? `Release ${key} for ${name}` : `Release all for ${name}`,
    told: key
      ? "The item is tried again now, with the events that wait."
      : "All parked items are tried again now, each with the events that wait.",
    act: async ({ reason }) => {
      const { released } = await call("POST", path(name, "release"), { body: { reason, ...(key ? { route, key } : {}) } });
      return `${released.toLocaleString()} tried again.`;
    },
  });
}

const OWN = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?))?$/;

// The start: a span back from now, or a time that the reader typed, in their time zone. Any other text is sent as it is, and the server
// reports what is wrong.
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
      { name: "span", label: "Send all events again since", type: "select", options: SPANS },
      { name: "moment", label: "Since when?", help: "2026-03-01 12:00", when: ({ span }) => !span },
    ],
    preview: async (values) => {
      if (!values.span && !values.moment) return { told: "Give a start.", none: true };
      const found = await again(values, { dry_run: true });
      if (!found.lines) return { told: "It has received no events since then.", none: true };
      const from = new Date(found.since).toLocaleString();
      const gone = found.pruned ? ` ${lines(found.pruned)} before that were pruned and cannot be sent again.` : "";
      return `About ${lines(found.lines)}, from ${from} on, are sent again in order, with the same ids.${gone}`;
    },
    act: async ({ reason, ...values }) => {
      const found = await again(values, { reason });
      return `${lines(found.lines)} are sent again.`;
    },
  });
}

function forget(name) {
  ask({
    title: `Forget ${name}`,
    told: "It gets no more events, and its cursor is deleted. If it is started again, it begins with new events.",
    act: async ({ reason }) => {
      await call("POST", path(name, "forget"), { body: { reason } });
      return "The subscriber is removed.";
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

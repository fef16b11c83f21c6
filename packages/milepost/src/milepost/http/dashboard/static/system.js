// The system page: items that are dated in the future, limits of stages, breakers, and the quarantine.
import { base, call, segment } from "./api.js";
import { does, newId, summed, watched } from "./bulk.js";
import { ask } from "./dialog.js";

function limit(scope, path, { rate, concurrency }) {
  ask({
    title: `Limit ${scope}`,
    told: "An empty field stays as it is. Every process applies the limits within five seconds.",
    fields: [
      { name: "rate", label: "Calls for the whole ledger", value: rate, help: "50/s, 10/m or 1000/h" },
      { name: "concurrency", label: "Calls at a time in each process", value: concurrency, help: "16" },
    ],
    act: async ({ reason, rate, concurrency }) => {
      if (!rate && !concurrency) throw new Error("Give a rate, a concurrency, or both.");
      if (concurrency && !/^\d+$/.test(concurrency)) throw new Error("Calls at a time is a whole number, such as 16.");
      const body = { reason, ...(rate ? { rate } : {}), ...(concurrency ? { concurrency: Number(concurrency) } : {}) };
      await call("PUT", `/routes/${path}`, { body });
      return "The limits are set.";
    },
  });
}

function clear(scope, path) {
  ask({
    title: `Clear the limits of ${scope}`,
    told: "The route file's limits apply again.",
    act: async ({ reason }) => {
      await call("DELETE", `/routes/${path}`, { query: { reason } });
      return "The route file's limits apply again.";
    },
  });
}

function closeBreaker(title, path) {
  ask({
    title,
    told: "Items that wait in the lane can be claimed again at once. The breaker opens again if attempts still fail.",
    act: async ({ reason }) => {
      const { closed } = await call("DELETE", `/routes/${path}`, { query: { reason } });
      return closed.length ? "The breaker is closed." : "The breaker was closed already.";
    },
  });
}

function redate(title, route) {
  const path = `/routes/${segment(route)}/redate`;
  ask({
    title,
    about: does("redate"),
    preview: async () => {
      const report = await call("POST", path, { body: { dry_run: true } });
      return { told: summed(report, false), none: report.done === 0 };
    },
    act: async ({ reason }, progress) => {
      const id = newId();
      const report = await watched(id, progress, () => call("POST", path, { body: { reason, id } }));
      return { told: summed(report, true), link: { href: `${base}/acts/${segment(id)}`, text: "See the act" } };
    },
  });
}

function aside(act, id) {
  const what = id ? { ids: [id] } : { all: true };
  const replay = act === "replay";
  const which = id ? "The entry is" : "All entries are";
  ask({
    title: `${replay ? "Replay" : "Drop"} ${id ? "this" : "all"}`,
    told: replay
      ? `${which} tried again, with the present row. An entry that fails again stays.`
      : `${which} discarded, and cannot be restored.`,
    act: async ({ reason }) => {
      const told = await call("POST", `/quarantine/${act}`, { body: { ...what, reason } });
      if (!replay) return `${told.dropped.length.toLocaleString()} discarded.`;
      const left = told.replayed.filter((one) => !one.done);
      const why = left.length ? ` ${left.length.toLocaleString()} stay: ${left[0].why}` : "";
      return `${(told.replayed.length - left.length).toLocaleString()} of ${told.replayed.length.toLocaleString()} processed.${why}`;
    },
  });
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const place = button.closest("[data-limits]");
  if (place && "limit" in button.dataset) limit(place.dataset.scope, place.dataset.limits, button.dataset);
  if (place && "clear" in button.dataset) clear(place.dataset.scope, place.dataset.limits);
  if (button.dataset.breaker) closeBreaker(button.getAttribute("aria-label"), button.dataset.breaker);
  if (button.dataset.redate) redate(button.getAttribute("aria-label"), button.dataset.redate);
  if (button.dataset.aside) aside(button.dataset.aside, button.dataset.id);
});

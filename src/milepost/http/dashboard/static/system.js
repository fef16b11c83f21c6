// The system: limits of stages, and what was set aside.
import { call } from "./api.js";
import { ask } from "./dialog.js";

function limit(scope, path, { rate, concurrency }) {
  ask({
    title: `Limit ${scope}`,
    told: "What is left empty stays as it is. Every process obeys within five seconds.",
    fields: [
      { name: "rate", label: "Calls for the whole ledger", value: rate, help: "50/s, 10/m or 1000/h" },
      { name: "concurrency", label: "Calls at a time in each process", value: concurrency, help: "16" },
    ],
    act: async ({ reason, rate, concurrency }) => {
      if (!rate && !concurrency) throw new Error("Say a rate, a number at a time, or both.");
      if (concurrency && !/^\d+$/.test(concurrency)) throw new Error("Calls at a time is a whole number, such as 16.");
      const body = { reason, ...(rate ? { rate } : {}), ...(concurrency ? { concurrency: Number(concurrency) } : {}) };
      await call("PUT", `/routes/${path}`, { body });
      return "It is limited.";
    },
  });
}

function clear(scope, path) {
  ask({
    title: `Clear the limits of ${scope}`,
    told: "What the route file says holds again.",
    act: async ({ reason }) => {
      await call("DELETE", `/routes/${path}`, { query: { reason } });
      return "The route file's limits hold again.";
    },
  });
}

function closeBreaker(title, path) {
  ask({
    title,
    told: "What waits in the lane is worked on again at once. The breaker opens again if tries go on failing.",
    act: async ({ reason }) => {
      const { closed } = await call("DELETE", `/routes/${path}`, { query: { reason } });
      return closed.length ? "The breaker is closed." : "The breaker was closed already.";
    },
  });
}

function aside(act, id) {
  const what = id ? { ids: [id] } : { all: true };
  const replay = act === "replay";
  const which = id ? "It is" : "Everything that is set aside is";
  ask({
    title: `${replay ? "Replay" : "Drop"} ${id ? "this" : "all"}`,
    told: replay
      ? `${which} seen to once more, as it stands now. What still cannot be used stays.`
      : `${which} thrown away, and cannot be had back.`,
    act: async ({ reason }) => {
      const told = await call("POST", `/quarantine/${act}`, { body: { ...what, reason } });
      if (!replay) return `${told.dropped.length.toLocaleString()} thrown away.`;
      const left = told.replayed.filter((one) => !one.done);
      const why = left.length ? ` ${left.length.toLocaleString()} stay: ${left[0].why}` : "";
      return `${(told.replayed.length - left.length).toLocaleString()} of ${told.replayed.length.toLocaleString()} seen to.${why}`;
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
  if (button.dataset.aside) aside(button.dataset.aside, button.dataset.id);
});

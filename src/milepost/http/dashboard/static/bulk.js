// Acting on items, one or many: choose, see how many it would be, say why, watch it being done.
import { base, call, segment } from "./api.js";
import { ask } from "./dialog.js";

const LOOK_MS = 700;

// A report in a sentence.
export function summed(report, done) {
  const refused = report.refused_count ? ` ${report.refused_count.toLocaleString()} ${done ? "were" : "would be"} left alone: ${report.refused[0]?.[1] ?? ""}` : "";
  return `${report.done.toLocaleString()} of ${report.matched.toLocaleString()} ${done ? "done" : "would be done"}.${refused}`;
}

// An act on many takes a while: meanwhile the ledger says how far it is.
export async function deed(route, body, progress) {
  const path = `/routes/${segment(route)}/acts`;
  if (!body.filter && body.keys.length < 2) return call("POST", path, { body });
  const id = `page-${crypto.randomUUID()}`;
  const timer = setInterval(async () => {
    const told = await call("GET", `/acts/${id}`).catch(() => null);
    if (told) progress(told.done + told.refused, told.expected);
  }, LOOK_MS);
  try {
    return { ...(await call("POST", path, { body: { ...body, id } })), id };
  } finally {
    clearInterval(timer);
  }
}

// The dialog for one verb on these items: `which` is {keys} or {filter}.
export function askDeed(route, verb, which, { fields = [], made = (values) => values, title = verb } = {}) {
  const body = ({ reason, ...values }) => ({ verb, ...which, ...made(values), ...(reason ? { reason } : {}) });
  ask({
    title: `${title[0].toUpperCase()}${title.slice(1)}`,
    fields,
    preview: async (values) => {
      const report = await call("POST", `/routes/${segment(route)}/acts`, { body: { ...body(values), dry_run: true } });
      return { told: summed(report, false), none: report.done === 0 };
    },
    act: async (values, progress) => {
      const report = await deed(route, body(values), progress);
      const link = report.matched > 1 && { href: `${base}/acts/${segment(report.id)}`, text: "Who did what" };
      return { told: summed(report, true), link };
    },
  });
}

// Acts on one or many items: select, preview, give a reason, watch the progress.
import { base, call, segment } from "./api.js";
import { ask } from "./dialog.js";

const LOOK_MS = 700;

const DEEDS = {
  retry: "restarted",
  rerun: "started again",
  resend: "offered again",
  skip: "skipped",
  confirm: "confirmed",
  cancel: "cancelled",
  replace: "replaced",
  reschedule: "rescheduled",
  redate: "dated as of now",
};

// A report as a sentence.
export function summed(report, done) {
  const refused = report.refused_count
    ? ` ${report.refused_count.toLocaleString()} ${done ? "were" : "would be"} refused: ${report.refused[0]?.[1] ?? ""}`
    : "";
  const since = report.left_out - report.from_future;
  const changed = since ? ` ${since.toLocaleString()} more changed after this act began and were left out.` : "";
  const ahead = report.from_future
    ? ` ${report.from_future.toLocaleString()} more are dated in the future, by a clock that was ahead, and were left out.`
    : "";
  const sum = `${report.done.toLocaleString()} of ${report.matched.toLocaleString()} ${done ? (DEEDS[report.verb] ?? "done") : "would be done"}.`;
  const told = `${sum}${refused}${changed}${ahead}`;
  return [told, ...(done ? [] : (report.difference ?? []).map(({ text }) => text))].join("\n");
}

// A name for an act, by which its progress is read. Not randomUUID: browsers offer it only to pages that came over HTTPS.
export const newId = () => `page-${crypto.getRandomValues(new Uint32Array(3)).join("-")}`;

// Shows the progress of an act on many items, from the ledger, while `work` runs.
export async function watched(id, progress, work) {
  const timer = setInterval(async () => {
    const told = await call("GET", `/acts/${segment(id)}`).catch(() => null);
    if (told) progress(told.done + told.refused, told.expected);
  }, LOOK_MS);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

async function deed(route, body, progress) {
  const path = `/routes/${segment(route)}/acts`;
  if (!body.filter && body.keys.length < 2) return call("POST", path, { body });
  const id = newId();
  return { ...(await watched(id, progress, () => call("POST", path, { body: { ...body, id } }))), id };
}

// What a verb does, from the text that every page contains.
export const does = (verb) => document.querySelector(`template[data-does="${verb}"]`).content.textContent;

// The dialog for one verb on these items: `which` is {keys} or {filter}. An act on a `whole` route needs a second confirmation. `words`: the
// verb whose description is shown, if that is another one. `done` is called after the act.
export function askDeed(route, verb, which, { fields = [], made = (values) => values, title = verb, words = verb, whole = false, done } = {}) {
  const sure = { name: "sure", label: `There is no filter: this is for the whole route. Type ${route} to continue.` };
  const body = ({ reason, sure: _, ...values }) => ({ verb, ...which, ...made(values), ...(reason ? { reason } : {}) });
  let previewed = "";
  let matched;
  let told;
  ask({
    title: `${title[0].toUpperCase()}${title.slice(1)}`,
    about: does(words),
    fields: whole ? [...fields, sure] : fields,
    preview: async (values) => {
      const asked = { ...body(values), dry_run: true };
      if (JSON.stringify(asked) !== previewed) {
        const report = await call("POST", `/routes/${segment(route)}/acts`, { body: asked });
        matched = report.matched;
        told = { told: summed(report, false), none: report.done === 0 };
        previewed = JSON.stringify(asked);
      }
      return told;
    },
    act: async (values, progress) => {
      if (whole && values.sure !== route) throw new Error(`Type ${route} to act on the whole route.`);
      // The ledger may know only an approximate number; the preview has counted exactly.
      const report = await deed(route, body(values), (now, of) => progress(now, Math.max(now, matched ?? of)));
      done?.();
      const link = report.matched > 1 && { href: `${base}/acts/${segment(report.id)}`, text: "See the act" };
      return { told: summed(report, true), link };
    },
  });
}

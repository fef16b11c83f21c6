// Live updates: after an event the page is fetched again, and the differences are applied. Nothing else moves.
import { base } from "./api.js";
import { morph, morphInPlace } from "./morph.js";
import { times } from "./times.js";

const CALM_MS = 1000;
const AGES_MS = 30000;
const AGAIN_MS = 5000;
// The server is heard every three seconds. One that is silent for longer is asked, and hangs if it does not answer either.
const SILENT_MS = 8000;
const PROBE_MS = 5000;
const ANSWER_MS = 10000;
const WATCH_MS = 500;

export function live() {
  if (!document.querySelector("[data-live]")) return;
  const state = document.querySelector("[data-live-state]");
  const gone = document.querySelector("[data-gone]");
  let waiting = null;
  let last = 0;
  let heard = null;
  let asking = false;

  async function refresh(patience = ANSWER_MS) {
    waiting = null;
    last = Date.now();
    if (document.hidden || document.querySelector("dialog[open]")) return;
    let fresh;
    const given = new AbortController();
    const timer = setTimeout(() => given.abort(), patience);
    try {
      // The header tells the server that only live parts are needed, so that it skips expensive ones.
      const answer = await fetch(location.href, { headers: { Accept: "text/html", "X-Live": "1" }, signal: given.signal });
      // Without a session the server redirects to the log-in, and from there back.
      if (answer.redirected) return location.assign(location.href);
      // A proxy whose server is down may answer too.
      if (answer.status >= 500) throw new Error(answer.status);
      gone.replaceChildren();
      if (!answer.ok) return;
      fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch {
      // The page keeps its content, and shows how old it is.
      const seen = state.querySelector("time").cloneNode(true);
      if (!gone.hasChildNodes()) gone.append("The server does not answer; trying again. This is as of ", seen, ".");
      return;
    } finally {
      clearTimeout(timer);
    }
    times(fresh);
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = fresh.querySelector(`[data-live="${CSS.escape(part.dataset.live)}"]`);
      if (other && part.hasAttribute("data-held")) {
        part.dispatchEvent(new CustomEvent("held", { detail: { left: morphInPlace(part, other), fresh: other } }));
      } else if (other) morph(part, other);
    }
    morph(state, fresh.querySelector("[data-live-state]"));
  }

  function soon() {
    waiting ??= setTimeout(() => refresh(), Math.max(0, CALM_MS - (Date.now() - last)));
  }

  function listen() {
    const source = new EventSource(`${base}/live`);
    // The first event comes on connecting: later changes follow.
    source.addEventListener("changed", () => {
      heard = Date.now();
      soon();
    });
    source.addEventListener("here", () => {
      heard = Date.now();
      // The server hung, and answers again.
      if (gone.hasChildNodes()) soon();
    });
    source.addEventListener("error", () => {
      heard = null;
      soon();
      // A browser reconnects by itself if the connection was cut, but not after another answer (from a proxy, say).
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, AGAIN_MS);
    });
  }

  listen();
  // While a dialog was open, nothing was updated behind it.
  document.addEventListener("close", soon, true);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) soon();
  });
  setInterval(soon, AGES_MS);
  // Only a stream that was heard can fall silent: a proxy may hold the events back.
  setInterval(async () => {
    if (heard === null || asking || Date.now() - heard < SILENT_MS) return;
    asking = true;
    await refresh(PROBE_MS);
    asking = false;
    heard = gone.hasChildNodes() ? heard : Date.now();
  }, WATCH_MS);
}

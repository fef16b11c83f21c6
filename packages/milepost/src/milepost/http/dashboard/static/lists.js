// A list from a file: preview first, then submit.
import { base, call, complaint, headers, segment } from "./api.js";

const TYPES = { csv: "text/csv", txt: "text/plain", jsonl: "application/x-ndjson", ndjson: "application/x-ndjson" };
const LOOK_MS = 1000;
const SHOWN = 20;
const ODD = ["changed", "malformed", "vanished"];
const AGAIN = "Items that were accepted stay. Submit the same file again: known items are skipped, and nothing is done twice.";

const form = document.querySelector("[data-upload]");
const part = (name) => form.querySelector(`[data-${name}]`);
const number = (n) => n.toLocaleString();
const file = form?.elements.file;
let looked = null;
let busy = false;

function made(tag, text = "", className = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

function tell(...parts) {
  part("report").replaceChildren(...parts);
}

function complain(text) {
  const told = made("p", text, "bad");
  told.role = "alert";
  tell(told);
}

// The format of a file: by its extension, otherwise by its first characters.
async function typeOf(chosen) {
  if (form.elements.form.value) return form.elements.form.value;
  const known = TYPES[chosen.name.split(".").pop().toLowerCase()];
  if (known) return known;
  const begin = (await chosen.slice(0, 4096).text()).trimStart();
  if (begin.startsWith("[")) throw new Error(`${chosen.name} is one JSON array. Make it one object a line, as in: jq -c '.[]' FILE`);
  if (begin.startsWith("{")) return TYPES.jsonl;
  return begin.split("\n", 1)[0].includes(",") ? TYPES.csv : TYPES.txt;
}

function table(counts) {
  const found = document.querySelector("[data-words]").content.cloneNode(true).querySelector("table");
  for (const row of found.querySelectorAll("[data-word]")) {
    const { word } = row.dataset;
    if (!(word in counts)) {
      row.remove();
      continue;
    }
    row.querySelector(".num").textContent = number(counts[word]);
    row.className = !counts[word] ? "none" : ODD.includes(word) ? "odd" : word;
  }
  return found;
}

function malformed(told) {
  if (!told.malformed.length) return [];
  const list = made("table", "", "report lines");
  const head = list.createTHead().insertRow();
  for (const word of ["Line", "Error"]) {
    const cell = made("th", word);
    cell.scope = "col";
    head.append(cell);
  }
  const body = list.createTBody();
  for (const bad of told.malformed.slice(0, SHOWN)) {
    const row = body.insertRow();
    row.append(made("td", number(bad.line)), made("td", bad.reason));
    if (bad.text) row.lastChild.append(made("pre", bad.text));
  }
  return [made("h3", "Malformed lines"), list, ...rest(told.counts.malformed, Math.min(SHOWN, told.malformed.length))];
}

// Items by their keys, each with a word before it, if there is one.
function items(title, route, found, all) {
  if (!found.length) return [];
  const list = made("ul", "", "plain");
  for (const { key, word, more = [] } of found.slice(0, SHOWN)) {
    const link = made("a", key);
    link.href = `${base}/items/${segment(route)}/${segment(key)}`;
    list.append(made("li"));
    list.lastChild.append(...(word ? [made("span", word, "dim")] : []), link, ...(more.length ? [made("pre", more.join("\n"))] : []));
  }
  return [made("h3", title), list, ...rest(all, Math.min(SHOWN, found.length))];
}

function changed(told) {
  const became = told.dry_run ? "would be replaced" : "replaced";
  const found = told.changed.map(({ line, key, left, difference = [] }) => ({
    key,
    word: `line ${number(line)}`,
    more: "replaced" in told.counts ? [left ? `left as it is: ${left}` : became, ...difference.map(({ text }) => text)] : [],
  }));
  return items("Known with other content", told.route, found, found.length);
}

function vanished(told) {
  const found = told.vanished.map((key) => ({ key }));
  return items("Vanished", told.route, found, told.counts.vanished);
}

const rest = (all, shown) => (all > shown ? [made("p", `and ${number(all - shown)} more`, "dim")] : []);

function report(told) {
  const lines = `${number(told.lines)} ${told.lines === 1 ? "line" : "lines"}`;
  const what = told.dry_run ? "This is a preview; nothing was accepted yet." : "It is accepted.";
  const head = made("p", `${told.name} for ${told.route}: ${lines}. ${what} `);
  if (told.id) {
    const link = made("a", "The list");
    link.href = `${base}/lists/${segment(told.id)}`;
    head.append(link);
  }
  tell(head, table(told.counts), ...told.notes.map((note) => made("p", note)), ...malformed(told), ...changed(told), ...vanished(told));
}

// Only XMLHttpRequest reports how much of a file has been sent.
function post(chosen, type, look, sent) {
  const query = new URLSearchParams({ name: chosen.name, full: form.elements.full.checked, dry_run: look });
  // Only for CSV: other formats have no header, and the API refuses the option.
  if (type === TYPES.csv && form.elements.no_header.checked) query.set("no_header", "true");
  const { not_before, replace_changed, rerun, reason } = form.elements;
  if (not_before.value.trim()) query.set("not_before", not_before.value.trim());
  if (replace_changed?.checked) {
    query.set("replace_changed", true);
    query.set("rerun", rerun.checked);
    query.set("reason", reason.value.trim());
  }
  const request = new XMLHttpRequest();
  request.open("POST", `${base}/api/v1/routes/${segment(form.elements.route.value)}/items?${query}`);
  for (const [name, value] of Object.entries(headers({ "Content-Type": type }))) request.setRequestHeader(name, value);
  request.upload.onprogress = (event) => event.lengthComputable && sent(event.loaded, event.total);
  request.upload.onload = () => sent(chosen.size, chosen.size);
  const cut = `The connection was cut off. ${look ? "Nothing was changed; try the preview again." : AGAIN}`;
  return new Promise((resolve, reject) => {
    request.onerror = () => reject(new Error(cut));
    request.onload = () => {
      let told;
      try {
        told = JSON.parse(request.responseText);
      } catch {
        return reject(new Error(cut));
      }
      if (request.status < 400) resolve(told);
      else reject(new Error(look || request.status < 500 ? complaint(told) : `${complaint(told)} ${AGAIN}`));
    };
    request.send(chosen);
  });
}

function moving(told, now, of) {
  part("moving").hidden = false;
  part("moving-told").textContent = told;
  if (of) [part("progress").max, part("progress").value] = [of, now];
  else part("progress").removeAttribute("value");
}

// Progress of a list that is being submitted: how much of the file has been sent, and how many items the route has gained. The server
// accepts lines while the rest of the file is being sent.
async function watch(route, expected) {
  const total = async () => (await call("GET", `/routes/${segment(route)}/counts`)).total;
  const before = await total().catch(() => null);
  let sent = ["Sending…"];
  let taken = 0;
  let timer = null;
  let over = false;
  const show = () => {
    const [told, ...parts] = sent;
    if (before === null || !expected) moving(told, ...parts);
    else moving(`${told} About ${number(taken)} of ${number(expected)} new items are in.`, taken, expected);
  };
  const look = async () => {
    const now = await total().catch(() => null);
    if (over) return;
    if (now !== null) taken = Math.min(expected, Math.max(taken, now - before));
    show();
    timer = setTimeout(look, LOOK_MS);
  };
  if (before !== null && expected) timer = setTimeout(look, LOOK_MS);
  return {
    tell: (...parts) => {
      sent = parts;
      show();
    },
    end: () => {
      over = true;
      clearTimeout(timer);
    },
  };
}

// While a file is being sent, its options cannot be changed.
function pause(now) {
  busy = now;
  part("preview").disabled = now;
  part("fields").disabled = now;
}

async function send(look) {
  const chosen = file.files[0];
  if (!chosen || busy) return;
  if (!chosen.size) return complain(`${chosen.name} is empty.`);
  const expected = looked?.counts.new;
  pause(true);
  offer(null);
  const route = form.elements.route.value;
  let watched = null;
  try {
    const type = await typeOf(chosen);
    if (!look) watched = await watch(route, expected);
    const say = watched?.tell ?? moving;
    const told = await post(chosen, type, look, (now, of) => {
      if (now < of) say(`${Math.floor((100 * now) / of)} % of ${chosen.name} has been sent.`, now, of);
      else say(look ? "The file is received. Preparing the preview…" : "The file is received, and is being accepted.");
    });
    report(told);
    if (look) offer(told);
  } catch (error) {
    complain(error.message);
  } finally {
    watched?.end();
    pause(false);
    part("moving").hidden = true;
    // Refresh the page now: a list without new items makes no event.
    document.dispatchEvent(new Event("visibilitychange"));
  }
}

// Only a list that was previewed can be submitted.
function offer(told) {
  looked = told;
  const take = part("submit");
  take.disabled = !told?.lines;
  part("preview").classList.toggle("plain-button", Boolean(told?.lines));
  const others = told?.counts.replaced ? `, ${number(told.counts.replaced)} replaced` : "";
  take.textContent = told?.lines ? `Submit (${number(told.counts.new)} new${others})` : "Submit";
}

function begin() {
  for (const kind of ["dragover", "dragleave", "drop"]) {
    form.addEventListener(kind, (event) => {
      event.preventDefault();
      form.classList.toggle("over", kind === "dragover" && !busy);
      if (kind !== "drop" || busy || !event.dataTransfer.files.length) return;
      file.files = event.dataTransfer.files;
      send(true);
    });
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(true);
  });
  form.addEventListener("change", ({ target }) => {
    if (target.name === "reason") return;
    offer(null);
    tell();
  });
  part("submit").addEventListener("click", () => send(false));
  addEventListener("beforeunload", (event) => {
    if (busy) event.preventDefault();
  });
}

if (form) begin();

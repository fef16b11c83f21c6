// One dialog for every act: it says what would happen, asks why (and whatever else the act needs), does it, and shows how far it is.
const dialog = document.querySelector("[data-dialog]");
const READ_MS = 900;
const part = (name) => dialog.querySelector(`[data-${name}]`);

function field({ name, label, type = "text", options = [], value = "", help = "" }) {
  const box = document.createElement("label");
  box.className = type === "checkbox" ? "inline" : "above";
  const input = document.createElement(type === "select" ? "select" : type === "long" ? "textarea" : "input");
  if (type === "checkbox") input.type = "checkbox";
  if (type === "long") input.rows = 3;
  for (const [word, shown] of options) input.append(new Option(shown, word));
  input.name = name;
  if (value) input.value = value;
  if (help) input.placeholder = help;
  box.append(...(type === "checkbox" ? [input, label] : [label, input]));
  return box;
}

// A field with a `when(values)` is there only while that holds.
function fit(fields) {
  const now = values();
  for (const { name, when } of fields) if (when) part("fields").querySelector(`[name="${name}"]`).closest("label").hidden = !when(now);
}

function values() {
  const found = {};
  for (const input of part("fields").querySelectorAll("[name]"))
    found[input.name] = input.type === "checkbox" ? input.checked : input.value.trim();
  return found;
}

// On a page that is going away nothing can be pressed: nobody would hear it.
function anew() {
  document.body.inert = true;
  location.reload();
}

// Opens the dialog. `title` and `told` say what it is about, and `about` what the act does. `fields` are asked for beside the reason; each
// has a name, a label, and may have a type (text, long, checkbox, select with options [[value, shown]]), a value, a help text, and `when`.
// `preview(values)` gives a sentence, or {told, none: true} if there is nothing to do; it is asked for again whenever a field changes. `act({reason, ...values}, progress)`
// does it, and gives the last sentence, or {told, link: {href, text}}: with a link the dialog stays open for it, else it closes by itself.
// `progress(done, of)` moves the bar. `then` is called when the dialog is closed after that; if it is not given, the page is loaded anew.
// Who closes the dialog while it is being done does not stop it; what comes of it is then told nowhere, least of all in the next dialog.
export function ask({ title, about = "", told = "", fields = [], preview, act, then }) {
  let done = false;
  let left = false;
  let asked = 0;
  part("title").textContent = title;
  part("about").textContent = about;
  part("told").textContent = told;
  part("told").classList.remove("bad");
  part("fields").replaceChildren(...fields.map(field));
  fit(fields);
  part("reason").value = "";
  part("reason-label").hidden = !act;
  part("progress").hidden = true;
  part("do").hidden = !act;
  part("do").disabled = false;
  part("cancel").textContent = act ? "Leave it" : "Close";

  const say = (text, wrong = false) => {
    if (left) return;
    part("told").textContent = text;
    part("told").classList.toggle("bad", wrong);
  };
  const look = async () => {
    if (!preview) return;
    const mine = ++asked;
    // Only at first: a field that is left for the button must not take the button away under the click.
    part("do").disabled ||= mine === 1;
    say("Looking what that would be…");
    try {
      const found = await preview(values());
      if (mine !== asked || left) return;
      say(found.told ?? found);
      part("do").disabled = Boolean(found.none);
    } catch (error) {
      if (mine === asked) say(error.message, true);
    }
  };
  const run = async () => {
    const reason = part("reason").value.trim();
    if (!reason) {
      say("Say why, please.", true);
      part("reason").focus();
      return;
    }
    const bar = part("progress");
    bar.hidden = false;
    bar.removeAttribute("value");
    part("do").disabled = true;
    part("cancel").textContent = "Close, it goes on";
    asked += 1;
    try {
      const answer = await act({ reason, ...values() }, (now, of) => {
        if (left) return;
        if (of) [bar.max, bar.value] = [of, now];
        say(`${now.toLocaleString()}${of ? ` of ${of.toLocaleString()}` : ""} done so far…`);
      });
      if (left) return;
      done = true;
      // A text has a `link` of its own.
      const last = typeof answer === "string" ? { told: answer } : answer;
      say(last.told);
      // What was asked for is not asked for any more.
      part("about").textContent = "";
      part("fields").replaceChildren();
      part("reason-label").hidden = true;
      part("do").hidden = true;
      if (!last.link) {
        setTimeout(() => left || dialog.close(), READ_MS);
        return;
      }
      const link = document.createElement("a");
      [link.href, link.textContent] = [last.link.href, last.link.text];
      part("told").append(" ", link);
      part("cancel").textContent = "Close";
      part("cancel").focus();
    } catch (error) {
      if (left) return;
      say(error.message, true);
      part("do").disabled = false;
      part("cancel").textContent = "Leave it";
    }
    bar.hidden = true;
  };
  part("fields").onchange = () => {
    fit(fields);
    look();
  };
  part("cancel").onclick = () => dialog.close();
  part("do").onclick = run;
  part("form").onsubmit = (event) => {
    event.preventDefault();
    if (act && !part("do").disabled) run();
  };
  dialog.onclose = () => {
    left = true;
    if (done) (then ?? anew)();
  };
  dialog.showModal();
  look();
}

// One dialog for every act: it shows a preview, asks for the reason (and other fields of the act), runs it, and shows the progress.
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

// A field with `when(values)` is shown only while that returns true.
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

// When the page is being left, the buttons do nothing.
function anew() {
  document.body.inert = true;
  location.reload();
}

// Opens the dialog. `title` and `told` say what it is about, and `about` what the act does. `fields` are shown beside the reason; each
// has a name, a label, and may have a type (text, long, checkbox, select with options [[value, shown]]), a value, a help text, and `when`.
// `preview(values)` returns a sentence, or {told, none: true} if there is nothing to do; it is called again when a field changes.
// `act({reason, ...values}, progress)` runs the act and returns the last sentence, or {told, link: {href, text}}: with a link the dialog
// stays open, otherwise it closes by itself. `progress(done, of)` moves the bar. `then` is called when the dialog is closed after that; by
// default the page is reloaded. Closing the dialog while the act runs does not stop it; its result is then not shown.
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
  part("cancel").textContent = act ? "Cancel" : "Close";

  const say = (text, wrong = false) => {
    if (left) return;
    part("told").textContent = text;
    part("told").classList.toggle("bad", wrong);
  };
  const look = async () => {
    if (!preview) return;
    const mine = ++asked;
    // Only at first: when the focus moves from a field to the button, the button must not be disabled under the click.
    part("do").disabled ||= mine === 1;
    say("Loading the preview…");
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
      say("A reason is needed.", true);
      part("reason").focus();
      return;
    }
    const bar = part("progress");
    bar.hidden = false;
    bar.removeAttribute("value");
    part("do").disabled = true;
    part("cancel").textContent = "Close (it continues)";
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
      // The request is outdated.
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
      part("cancel").textContent = "Cancel";
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

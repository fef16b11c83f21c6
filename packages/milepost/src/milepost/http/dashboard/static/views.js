// Saved views: filters with a name, stored in this browser for each route. To share one, share its URL.
import { base } from "./api.js";

const part = document.querySelector("[data-views]");
const place = `views ${base}/${part.dataset.views}`;
const here = location.search;

function kept() {
  try {
    const found = JSON.parse(localStorage.getItem(place) ?? "[]");
    return Array.isArray(found) ? found.filter(({ name, query }) => typeof name === "string" && String(query).startsWith("?")) : [];
  } catch {
    return [];
  }
}

function keep(views) {
  localStorage.setItem(place, JSON.stringify(views));
  show();
}

function chip({ name, query }) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  [link.href, link.textContent] = [query, name];
  if (query === here) link.setAttribute("aria-current", "true");
  const away = document.createElement("button");
  [away.type, away.className, away.textContent] = ["button", "quiet", "×"];
  away.setAttribute("aria-label", `Forget the view ${name}`);
  away.addEventListener("click", () => keep(kept().filter((view) => view.name !== name)));
  item.append(link, away);
  return item;
}

function show() {
  const views = kept();
  const chips = part.querySelector("ul");
  chips.replaceChildren(...views.map(chip));
  chips.hidden = !views.length;
  const saving = part.querySelector("details");
  if (saving) saving.hidden = views.some(({ query }) => query === here);
}

part.querySelector("form")?.addEventListener("submit", (event) => {
  event.preventDefault();
  const name = event.target.elements.name.value.trim();
  if (!name) return;
  keep([...kept().filter((view) => view.name !== name), { name, query: here }]);
  event.target.reset();
  event.target.closest("details").open = false;
});
show();

// Makes a part of the page like a fresh one, and changes only differences: nothing flickers, and focus, ticks, open details and
// unfinished input stay. An element with a data-name has an identity: a row that has moved is moved, not overwritten.
const kept = { INPUT: ["checked", "value"], DETAILS: ["open"], SELECT: ["value"], TEXTAREA: ["value"] };
const mine = (element, name) => kept[element.nodeName]?.includes(name) ?? false;
const named = (node) => node.dataset?.name ?? "";

// As `morph`, but in an element whose rows must not move: rows that are there are updated in place, and none comes, goes or changes its place.
// Returns the number of fresh rows that are left out.
export function morphInPlace(old, fresh) {
  const rows = new Map([...fresh.querySelectorAll("tr[data-name]")].map((row) => [named(row), row]));
  for (const row of old.querySelectorAll("tr[data-name]")) {
    const other = rows.get(named(row));
    row.classList.toggle("unmatched", !other);
    if (other) morph(row, other);
    rows.delete(named(row));
  }
  return rows.size;
}

export function morph(old, fresh) {
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !mine(old, name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value && !mine(old, name)) old.setAttribute(name, value);
  const byName = new Map([...old.children].filter(named).map((child) => [named(child), child]));
  const wanted = [...fresh.childNodes];
  wanted.forEach((node, place) => {
    const there = old.childNodes[place] ?? null;
    const name = named(node);
    const same = name ? byName.get(name) : there && !named(there) && there.nodeName === node.nodeName ? there : undefined;
    if (!same) {
      if (there && !name && !named(there)) there.replaceWith(node);
      else old.insertBefore(node, there);
      return;
    }
    if (same !== there) old.insertBefore(same, there);
    if (node.nodeType === Node.ELEMENT_NODE) morph(same, node);
    else if (same.nodeValue !== node.nodeValue) same.nodeValue = node.nodeValue;
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

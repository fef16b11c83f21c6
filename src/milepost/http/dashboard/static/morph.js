// Making a part of the page like a fresh one, touching only what differs: so nothing flickers, and focus, ticks, open details and
// half-written words stay.
const kept = { INPUT: ["checked", "value"], DETAILS: ["open"], SELECT: ["value"], TEXTAREA: ["value"] };

export function morph(old, fresh) {
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !mine(old, name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value && !mine(old, name)) old.setAttribute(name, value);
  const before = [...old.childNodes];
  const after = [...fresh.childNodes];
  after.forEach((node, place) => {
    const there = before[place];
    if (!there) old.append(node);
    else if (there.nodeType !== node.nodeType || there.nodeName !== node.nodeName || named(there) !== named(node)) there.replaceWith(node);
    else if (node.nodeType === Node.ELEMENT_NODE) morph(there, node);
    else if (there.nodeValue !== node.nodeValue) there.nodeValue = node.nodeValue;
  });
  for (const node of before.slice(after.length)) node.remove();
}

// An element with a name is that one and no other: a row that has moved is not the row that was there.
const named = (node) => node.dataset?.name ?? "";
const mine = (element, name) => kept[element.nodeName]?.includes(name) ?? false;

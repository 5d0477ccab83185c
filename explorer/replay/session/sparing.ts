// Changes to the document that cost nothing if they change nothing: a browser styles and
// lays out again whatever is written, also if it was the same before.

export function put(element: Element, text: string): void {
  const only = element.firstChild;
  // A text of its own keeps its node.
  if (only?.nodeType === Node.TEXT_NODE && !only.nextSibling) {
    if ((only as Text).data !== text) (only as Text).data = text;
  } else if (only || text) element.textContent = text;
}

export function dress(element: Element, classes: string): void {
  if (element.className !== classes) element.className = classes;
}

export function mark(element: Element, attribute: string, value: string): void {
  if (element.getAttribute(attribute) !== value) element.setAttribute(attribute, value);
}

/** The children, in this order; those that are there already stay where they are. */
export function arrange(parent: Element, children: readonly Element[]): void {
  const staying = new Set(children);
  for (const each of [...parent.children]) if (!staying.has(each)) each.remove();
  let next = parent.firstElementChild;
  for (const each of children) {
    if (each === next) next = next.nextElementSibling;
    else parent.insertBefore(each, next);
  }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
// Elements in one call. Text arrives as text nodes, so a name can never become markup.

type Child = Node | string | undefined | false;
type Attributes = Record<string, string | number | boolean | undefined | ((event: never) => void)>;

/** `h('button', { class: 'x', onclick: go, 'aria-label': 'Go' }, 'Go')`; `undefined` and `false` are left out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name.slice(2), value as EventListener);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  fill(element, children);
  return element;
}

export function fill(element: Element, children: Child[]): void {
  element.replaceChildren(...children.filter((c): c is Node | string => c !== undefined && c !== false));
}

/** A picture for a button, from the template of the page; says nothing to screen readers. */
export function icon(name: string): Node {
  const icons = document.getElementById('icons') as HTMLTemplateElement;
  return icons.content.querySelector(`[data-icon="${name}"]`)!.cloneNode(true);
}

/** A little longer than a zoom takes: tables follow when the graph has come to rest. */
export const afterZoomMs = 300;

/** Calls `work` when the page has been left alone for `ms`: after an animation, not in its first picture. */
export function whenCalm(ms: number, work: () => void): () => void {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = window.setTimeout(work, ms);
  };
}

/** Calls `work` at most once per picture. */
export function oncePerFrame(work: (now: number) => void): () => void {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame((now) => {
      asked = false;
      work(now);
    });
  };
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
// Dark or light: what the system prefers, until the reader chooses.

import { h, icon } from './dom.js';
import type { State } from './state.js';

const preference = window.matchMedia('(prefers-color-scheme: dark)');
const key = 'lightfoot-theme';

export function isDark(): boolean {
  const chosen = document.documentElement.dataset['theme'];
  return chosen ? chosen === 'dark' : preference.matches;
}

export function themeButton(state: State): HTMLElement {
  const button = h('button', { class: 'quiet', id: 'theme', type: 'button' }, icon('theme'));
  const label = () => {
    const next = isDark() ? 'Light colours' : 'Dark colours';
    button.setAttribute('aria-label', next);
    button.title = `${next} (d)`;
  };
  // Storage may be forbidden, for example in a sandboxed frame: then the choice lasts as long as the page.
  try {
    const stored = localStorage.getItem(key);
    if (stored === 'dark' || stored === 'light') document.documentElement.dataset['theme'] = stored;
  } catch {}
  button.addEventListener('click', () => {
    const next = isDark() ? 'light' : 'dark';
    document.documentElement.dataset['theme'] = next;
    try {
      localStorage.setItem(key, next);
    } catch {}
    state.tell('theme');
  });
  preference.addEventListener('change', () => state.tell('theme'));
  state.on((change) => {
    if (change === 'theme') label();
  });
  label();
  return button;
}

/** Paper is light. Redraws for printing and back. */
export function printLight(redraw: () => void): void {
  let before: string | undefined;
  window.addEventListener('beforeprint', () => {
    before = document.documentElement.dataset['theme'];
    document.documentElement.dataset['theme'] = 'light';
    redraw();
  });
  window.addEventListener('afterprint', () => {
    if (before === undefined) delete document.documentElement.dataset['theme'];
    else document.documentElement.dataset['theme'] = before;
    redraw();
  });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
// Reads the profile out of the page and shows it. Marks of time: lightfoot-read, -built, -drawn (all of the
// page's own work is done), -shown (and the browser has painted it).

import { readProfile } from './profile/data.js';
import { h } from './view/dom.js';
import { build } from './view/shell.js';
import { State } from './view/state.js';

declare global {
  interface Window {
    /** Set when the first picture is complete and painted, for tests and benchmarks. */
    lightfootReady?: boolean;
  }
}

const app = document.getElementById('app')!;
try {
  const profile = readProfile(document.getElementById('lightfoot-profile')!.textContent ?? '');
  performance.mark('lightfoot-read');
  const state = new State(profile);
  performance.mark('lightfoot-built');
  const draw = build(app, state);
  draw();
  performance.mark('lightfoot-drawn');
  requestAnimationFrame(() =>
    setTimeout(() => {
      performance.mark('lightfoot-shown');
      window.lightfootReady = true;
    }),
  );
} catch (error) {
  const reason = error instanceof Error ? error.message : String(error);
  app.replaceChildren(
    h('main', { class: 'nothing', role: 'alert' }, h('h2', {}, 'This profile cannot be shown'), h('p', {}, reason)),
  );
  throw error;
}

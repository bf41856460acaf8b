// SPDX-License-Identifier: Apache-2.0 OR MIT
// The way from the root to the zoomed box; each step is a button that zooms out to it.

import { pathTo, totalTime } from '../profile/layout.js';
import { legibleName, middleCut, shorterForms } from '../profile/names.js';
import { formatShare, share } from '../profile/units.js';
import { fill, h } from './dom.js';
import type { State } from './state.js';

const longest = 7;

export function crumbs(state: State): HTMLElement {
  const list = h('ol');
  const reset = h('button', { type: 'button', id: 'reset', class: 'small', onclick: () => state.zoomTo(0) }, 'Reset zoom');
  const draw = () => {
    reset.hidden = state.zoom === 0;
    const path = pathTo(state.layout, state.zoom);
    // Of a long path the ends: where it starts and what is zoomed.
    const left = path.length - longest;
    const shown = left <= 0 ? path : [...path.slice(0, 2), -left, ...path.slice(2 + left)];
    fill(
      list,
      shown.map((box, at) => {
        if (box < 0) return h('li', { class: 'left-out' }, `… ${-box} more …`);
        const name = legibleName(state.nameOf(box));
        const last = at === shown.length - 1;
        const part = formatShare(share(totalTime(state.layout, box), state.allTime));
        const forms = shorterForms(name);
        const text = middleCut(forms.find((f) => f.length <= 32) ?? forms[forms.length - 1]!, 40);
        return h(
          'li',
          {},
          h(
            'button',
            {
              type: 'button',
              title: middleCut(name, 400),
              onclick: () => state.zoomTo(box),
              ...(last ? { 'aria-current': 'true' } : {}),
            },
            h('bdi', {}, text),
            last && path.length > 1 && h('span', { class: 'part' }, part),
          ),
        );
      }),
    );
    // What is zoomed matters most when there is no room for all.
    list.scrollLeft = list.scrollWidth;
  };
  state.on((change) => {
    if (change === 'layout' || change === 'zoom') draw();
  });
  draw();
  return h('nav', { class: 'crumbs', 'aria-label': 'Zoomed frame and its callers' }, list, reset);
}

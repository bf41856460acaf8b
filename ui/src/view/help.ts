// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the keys do.

import { h } from './dom.js';

const keys: readonly (readonly [string[], string])[] = [
  [['←', '→', '↑', '↓'], 'move to the frame beside, the caller or the heaviest callee (in the graph)'],
  [['Enter'], 'zoom into the frame'],
  [['Backspace'], 'zoom out by one frame'],
  [['Esc'], 'close, clear the search, zoom out to everything: one after the other'],
  [['Home'], 'move to the zoomed frame'],
  [['/'], 'search; a regular expression, or plain text'],
  [['g'], 'move to the graph'],
  [['t'], 'move to the table of functions'],
  [['i'], 'turn: callers at the top (icicle) or at the bottom (flame)'],
  [['d'], 'dark or light'],
  [['?'], 'this help'],
];

export class Help {
  readonly element: HTMLDialogElement;

  constructor() {
    const close = h('button', { type: 'button', onclick: () => this.element.close() }, 'Close');
    this.element = h(
      'dialog',
      { class: 'help', id: 'help', 'aria-label': 'Help' },
      h('h2', {}, 'Reading the graph'),
      h(
        'p',
        {},
        'One box is one function, called by the box above it (below it in the flame direction). Its width is CPU time: the part of the ' +
          'run that the function and everything it called took. The order from left to right is by weight and says nothing about time.',
      ),
      h('h2', {}, 'Keys'),
      h(
        'dl',
        {},
        ...keys.flatMap(([names, meaning]) => [h('dt', {}, ...names.map((name) => h('kbd', {}, name))), h('dd', {}, meaning)]),
      ),
      h('div', { class: 'foot' }, close),
    );
    this.element.addEventListener('click', (event) => {
      if (event.target === this.element) this.element.close();
    });
  }

  show(): void {
    if (!this.element.open) this.element.showModal();
  }
}

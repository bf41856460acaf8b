// SPDX-License-Identifier: Apache-2.0 OR MIT
// The search field and what it found.

import { totalTime } from '../profile/layout.js';
import { formatShare, share } from '../profile/units.js';
import { h, icon } from './dom.js';
import type { State } from './state.js';

/** `matched 12.3 %`; '' without a search. */
export function matchedInWords(state: State): string {
  if (!state.found) return '';
  return `matched ${formatShare(share(state.found.time, totalTime(state.layout, state.zoom)))}`;
}

export class SearchBox {
  readonly element: HTMLElement;
  private readonly input: HTMLInputElement;

  constructor(private readonly state: State) {
    const input = h('input', {
      type: 'search',
      id: 'search',
      placeholder: 'Search: function or object, regular expression',
      'aria-label': 'Search functions and objects by regular expression',
      'aria-keyshortcuts': '/',
      autocomplete: 'off',
      autocapitalize: 'off',
      spellcheck: 'false',
    });
    const result = h('output', { id: 'matched', for: 'search' });
    this.input = input;
    this.element = h('div', { class: 'search' }, icon('search'), input, result, h('kbd', { 'aria-hidden': 'true' }, '/'));
    let waiting = 0;
    input.addEventListener('input', () => {
      clearTimeout(waiting);
      // With a hundred thousand stacks a search takes some ms: not after every key of a fast typist.
      waiting = window.setTimeout(() => state.find(input.value, 'box'), 60);
    });
    input.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') state.find(input.value, 'box');
    });
    const draw = () => {
      const { search } = state;
      result.textContent = matchedInWords(state);
      this.element.classList.toggle('active', search !== undefined);
      const problem = search?.invalid;
      if (problem !== undefined) result.append(h('span', { class: 'invalid' }, ' as plain text'));
      result.title = problem === undefined ? '' : `Not a regular expression (${problem}): searched as plain text`;
      input.setAttribute('aria-invalid', String(problem !== undefined));
      if (input.value !== (search?.query ?? '') && document.activeElement !== input) input.value = search?.query ?? '';
    };
    state.on((change) => {
      if (change === 'search' || change === 'zoom' || change === 'layout') draw();
    });
  }

  focus(): void {
    this.input.focus();
    this.input.select();
  }

  clear(): void {
    this.input.value = '';
    this.state.find('', 'box');
  }
}

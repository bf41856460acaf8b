// SPDX-License-Identifier: Apache-2.0 OR MIT
// The mark of a kind of code: a letter on its colour.

import { unknownKind, type Kind } from '../profile/data.js';
import { h } from './dom.js';
import { kindMarks, kindWords } from './palette.js';

export function mark(kind: Kind): HTMLElement {
  const word = kindWords[kind];
  return h('span', { class: `mark ${word}`, title: word, role: 'img', 'aria-label': word }, kindMarks[kind]);
}

export const kindOf = (kinds: Kind[], code: number): Kind => (code < 0 ? unknownKind : kinds[code]!);

// SPDX-License-Identifier: Apache-2.0 OR MIT
// Details of one frame, beside the pointer or the selected box.

import type { Kind } from '../profile/data.js';
import { selfSamples, selfTime, totalSamples, totalTime } from '../profile/layout.js';
import { legible, legibleName, middleCut } from '../profile/names.js';
import {
  formatCount,
  formatShare,
  formatTime,
  interval,
  share,
  type Nanoseconds,
  type SampleCount,
} from '../profile/units.js';
import { fill, h } from './dom.js';
import { mark } from './mark.js';
import { kindHelp, kindWords } from './palette.js';
import type { State } from './state.js';

const longestName = 420;

export class Tooltip {
  readonly element = h('div', { class: 'tooltip', id: 'tooltip', hidden: true, 'aria-hidden': 'true' });
  private box = -1;

  constructor(private readonly state: State) {
    state.on((change) => {
      if (change === 'layout' || change === 'zoom') this.box = -1;
    });
  }

  hide(): void {
    this.element.hidden = true;
  }

  /** @param narrow the frame is drawn only together with others. */
  show(box: number, x: number, y: number, narrow = false): void {
    const { element } = this;
    if (box !== this.box) {
      this.box = box;
      fill(element, [...this.content(box), narrow ? h('div', { class: 'certainty' }, 'one of the frames that are too narrow to draw here') : undefined]);
    }
    element.hidden = false;
    const gap = 14;
    const { offsetWidth: width, offsetHeight: height } = element;
    const [right, bottom] = [document.documentElement.clientWidth, window.innerHeight];
    const left = x + gap + width <= right - 8 ? x + gap : Math.max(8, Math.min(x - gap - width, right - width - 8));
    const top = y + gap + height <= bottom - 8 ? y + gap : Math.max(8, y - gap - height);
    element.style.transform = `translate(${Math.round(left < 8 ? 8 : left)}px, ${Math.round(top)}px)`;
  }

  private content(box: number): (Node | undefined)[] {
    const { state } = this;
    const { layout } = state;
    const code = state.codeOf(box);
    const kind = state.kindOf(box);
    return [
      h(
        'div',
        { class: 'name' },
        kind !== undefined && mark(kind),
        h('bdi', {}, middleCut(legibleName(state.nameOf(box)), longestName)),
      ),
      kind === undefined ? undefined : this.place(box, code, kind),
      h(
        'table',
        {},
        this.head(),
        this.row('total', totalTime(layout, box), totalSamples(layout, box)),
        this.row('self', selfTime(layout, box), selfSamples(layout, box)),
      ),
      this.certainty(box),
    ];
  }

  private place(box: number, code: number, kind: Kind): HTMLElement {
    const { profile, tree, layout } = this.state;
    const node = layout.node[box]!;
    const frame = tree.nodeFrame[node]!;
    const lines: string[] = [`${kindWords[kind]}: ${kindHelp[kind]}`];
    const object = tree.functions.object[code]!;
    const file = frame >= 0 ? profile.strings[profile.frames.file[frame]!]! : '';
    // Of interpreted code the source file is the object.
    if (object !== '' && object !== file) lines.push(middleCut(legible(object), 160));
    if (frame >= 0) {
      const line = profile.frames.line[frame]!;
      const more = tree.nodeLines[node]! - 1;
      const others = more > 0 ? ` (and ${more} more ${more === 1 ? 'place' : 'places'})` : '';
      if (file !== '') lines.push(`${middleCut(legible(file), 160)}${line > 0 ? `:${line}` : ''}${others}`);
      const note = profile.strings[profile.frames.note[frame]!]!;
      if (note !== '') lines.push(`no name: ${legible(note)}`);
    }
    return h('div', { class: 'place' }, ...lines.map((line) => h('div', {}, h('bdi', {}, line))));
  }

  private head(): HTMLElement {
    const { state } = this;
    return h(
      'tr',
      {},
      ...['', 'CPU time', 'samples', 'of all', state.filtered && 'of shown', state.zoom > 0 && 'of zoomed']
        .filter((text) => text !== false)
        .map((text) => h('th', {}, text)),
    );
  }

  private row(name: string, time: Nanoseconds, samples: SampleCount): HTMLElement {
    const { state } = this;
    const parts = [formatTime(time), formatCount(samples), formatShare(share(time, state.allTime))];
    if (state.filtered) parts.push(formatShare(share(time, totalTime(state.layout, 0))));
    if (state.zoom > 0) parts.push(formatShare(share(time, totalTime(state.layout, state.zoom))));
    return h('tr', {}, h('th', {}, name), ...parts.map((text) => h('td', {}, text)));
  }

  /** A share is an estimate from samples: says how good. */
  private certainty(box: number): HTMLElement {
    const { state } = this;
    const [low, high] = interval(totalSamples(state.layout, box), state.allSamples);
    return h('div', { class: 'certainty' }, `total: ${formatShare(low)} to ${formatShare(high)} of all with 95 % probability`);
  }
}

/** The frame in one sentence, for the status line. */
export function describeBox(state: State, box: number): string {
  const { layout } = state;
  const code = state.kindOf(box);
  const kind = code === undefined ? '' : `, ${kindWords[code]}`;
  const total = formatShare(share(totalTime(layout, box), state.allTime));
  return (
    `${middleCut(legibleName(state.nameOf(box)), 120)}${kind}: total ${formatTime(totalTime(layout, box))}, ${total} of all, ` +
    `self ${formatTime(selfTime(layout, box))}, ${formatCount(totalSamples(layout, box))} samples`
  );
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
// Which processes and threads are shown: a button that says it, and a panel that changes it.

import { legible } from '../profile/names.js';
import type { ProcessEntry, ThreadEntry } from '../profile/threads.js';
import { formatShare, share, type Nanoseconds } from '../profile/units.js';
import { fill, h, icon } from './dom.js';
import type { State } from './state.js';

const longest = 300;

export class ThreadPicker {
  readonly element: HTMLElement;
  private readonly button: HTMLButtonElement;
  private readonly panel: HTMLElement;
  private readonly list = h('ul');
  private readonly narrow: HTMLInputElement;

  constructor(private readonly state: State) {
    this.narrow = h('input', {
      type: 'search',
      placeholder: 'name, process id or thread id',
      'aria-label': 'Find a process or thread',
      oninput: () => this.draw(),
    });
    const all = (on: 0 | 1) => () => this.set(new Uint8Array(state.shown.length).fill(on));
    this.panel = h(
      'div',
      { class: 'panel', id: 'threads-panel', role: 'group', 'aria-label': 'Processes and threads', hidden: true },
      h(
        'div',
        { class: 'tools' },
        this.narrow,
        h('button', { type: 'button', class: 'small', onclick: all(1) }, 'All'),
        h('button', { type: 'button', class: 'small', onclick: all(0) }, 'None'),
      ),
      this.list,
    );
    this.button = h(
      'button',
      { type: 'button', id: 'threads', title: 'Choose processes and threads', 'aria-expanded': 'false', 'aria-controls': 'threads-panel', onclick: () => this.toggle() },
      icon('threads'),
      h('span'),
    );
    this.element = h('div', { class: 'picker' }, this.button, this.panel);
    this.element.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && !this.panel.hidden) {
        event.stopPropagation();
        this.toggle();
      }
    });
    document.addEventListener('pointerdown', (event) => {
      if (!this.panel.hidden && !this.element.contains(event.target as Node)) this.toggle(false);
    });
    state.on((change) => {
      if (change === 'layout') this.label();
    });
    this.label();
  }

  private toggle(focus = true): void {
    this.panel.hidden = !this.panel.hidden;
    this.button.setAttribute('aria-expanded', String(!this.panel.hidden));
    if (!this.panel.hidden) {
      this.draw();
      this.keepInside();
    }
    if (focus) (this.panel.hidden ? this.button : this.narrow).focus();
  }

  /** Shifts the panel to the left as far as it would stick out of the window. */
  private keepInside(): void {
    this.panel.style.left = '0';
    const beyond = this.panel.getBoundingClientRect().right - (document.documentElement.clientWidth - 12);
    if (beyond > 0) this.panel.style.left = `${-beyond}px`;
  }

  private label(): void {
    const words = legible(this.state.shownInWords());
    this.button.lastElementChild!.textContent = words.replace(/^(all|no) /, (w) => w.charAt(0).toUpperCase() + w.slice(1));
    this.button.setAttribute('aria-label', `Processes and threads shown: ${words}`);
    this.button.classList.toggle('on', this.state.filtered);
  }

  private set(shown: Uint8Array): void {
    this.state.filter(shown);
    this.draw();
  }

  /** Rows of the list in order; threads only where a process has more than one. */
  private draw(): void {
    const words = this.narrow.value.trim().toLowerCase();
    const fits = (comm: string, id: number) => comm.toLowerCase().includes(words) || String(id).startsWith(words);
    const rows: HTMLElement[] = [];
    let left = 0;
    const add = (make: () => HTMLElement) => {
      if (rows.length < longest) rows.push(make());
      else left += 1;
    };
    for (const process of this.state.processes) {
      const whole = fits(process.comm, process.pid);
      const threads = process.threads.filter((t) => whole || fits(t.comm, t.tid));
      if (threads.length === 0) continue;
      add(() => this.processRow(process));
      if (process.threads.length > 1) for (const thread of threads) add(() => this.threadRow(thread));
    }
    // Redrawing must not throw the keyboard out of the list.
    const focused = (document.activeElement as HTMLElement | null)?.dataset['key'];
    fill(this.list, [...rows, left > 0 && h('li', { class: 'left-out' }, `${left} more: type to find them`)]);
    if (focused) this.list.querySelector<HTMLElement>(`[data-key="${focused}"]`)?.focus();
  }

  private processRow(process: ProcessEntry): HTMLElement {
    const name = `${legible(process.comm)} (${process.pid})`;
    return this.row(`p${process.pid}`, name, process.time, process.threads.map((t) => t.thread), 'process');
  }

  private threadRow(entry: ThreadEntry): HTMLElement {
    const name = `${legible(entry.comm)} (tid ${entry.tid})`;
    return this.row(`t${entry.thread}`, name, entry.time, [entry.thread], 'thread');
  }

  private row(key: string, name: string, time: Nanoseconds, threads: number[], kind: 'process' | 'thread'): HTMLElement {
    const { state } = this;
    const on = threads.filter((t) => state.shown[t]).length;
    const box = h('input', { type: 'checkbox', 'data-key': key });
    box.checked = on === threads.length;
    box.indeterminate = on > 0 && on < threads.length;
    box.addEventListener('change', () => {
      const shown = state.shown.slice();
      for (const thread of threads) shown[thread] = box.checked ? 1 : 0;
      this.set(shown);
    });
    const only = () => {
      const shown = new Uint8Array(state.shown.length);
      for (const thread of threads) shown[thread] = 1;
      this.set(shown);
    };
    return h(
      'li',
      { class: kind },
      h('label', {}, box, h('bdi', {}, name)),
      h('button', { type: 'button', class: 'small', 'data-key': `${key}o`, 'aria-label': `Only ${name}`, onclick: only }, 'only'),
      h('span', { class: 'part' }, formatShare(share(time, state.allTime))),
    );
  }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
// The top table: functions by self and total time, inside the zoomed box.

import { totalTime } from '../profile/layout.js';
import { baseName, legible, legibleName, middleCut } from '../profile/names.js';
import { exactly } from '../profile/search.js';
import { sortRows, topRows, type TopOrder, type TopRow } from '../profile/top.js';
import { formatCount, formatShare, formatTime, sampleCount, share, type Nanoseconds, type SampleCount } from '../profile/units.js';
import { afterZoomMs, fill, h, whenCalm } from './dom.js';
import { mark } from './mark.js';
import type { State } from './state.js';

const step = 100;
const headings: Record<TopOrder, string> = { name: 'Function', self: 'Self', total: 'Total' };

export class TopTable {
  readonly element: HTMLElement;
  private readonly body = h('tbody');
  private readonly caption = h('caption');
  private readonly more = h('button', { type: 'button', class: 'small more' });
  private readonly heads: Record<TopOrder, HTMLElement>;
  private order: TopOrder = 'self';
  private reverse = false;
  private limit = step;
  private all: TopRow[] = [];
  /** The row that Tab reaches; arrow keys move it. */
  private current = 0;
  private visible = true;
  private stale = true;

  constructor(private readonly state: State) {
    const head = (order: TopOrder) =>
      h('th', { scope: 'col', class: order }, h('button', { type: 'button', onclick: () => this.sort(order) }, headings[order]));
    this.heads = { name: head('name'), self: head('self'), total: head('total') };
    const table = h(
      'table',
      { class: 'top', id: 'top' },
      this.caption,
      h('thead', {}, h('tr', {}, this.heads.name, this.heads.self, this.heads.total)),
      this.body,
    );
    this.element = h('div', { class: 'scroll' }, table, this.more);
    this.more.addEventListener('click', () => {
      this.limit += step * 5;
      this.draw();
    });
    this.body.addEventListener('keydown', (event) => this.key(event));
    const soon = whenCalm(afterZoomMs, () => this.refresh());
    state.on((change) => {
      if (change === 'layout' || change === 'zoom') {
        this.all = [];
        this.limit = step;
      }
      if (change === 'zoom') soon();
      else if (change === 'layout' || change === 'search') this.refresh();
    });
    this.refresh();
  }

  /** The table of a hidden tab is made when it is shown. */
  setVisible(visible: boolean): void {
    this.visible = visible;
    if (visible && this.stale) this.draw();
  }

  private refresh(): void {
    this.stale = true;
    if (this.visible) this.draw();
  }

  private sort(order: TopOrder): void {
    this.reverse = order === this.order ? !this.reverse : false;
    this.order = order;
    this.draw();
  }

  private draw(): void {
    this.stale = false;
    const { state } = this;
    const { layout, tree, search } = state;
    if (this.all.length === 0) this.all = topRows(layout, tree, state.zoom);
    for (const order of ['name', 'self', 'total'] as const) {
      const descending = (order === 'name') === this.reverse;
      if (order === this.order) this.heads[order].setAttribute('aria-sort', descending ? 'descending' : 'ascending');
      else this.heads[order].removeAttribute('aria-sort');
    }
    let rows = sortRows(this.all, tree, this.order, this.reverse);
    const narrowed = search && state.searchedBy === 'box';
    if (narrowed) rows = rows.filter((row) => search.matches[row.code]);
    const whole = totalTime(layout, state.zoom);
    const where =
      (state.zoom === 0 ? '' : ` inside ${middleCut(legibleName(state.nameOf(state.zoom)), 60)}`) +
      (state.filtered ? `, of ${legible(state.shownInWords())}` : '');
    const count = formatCount(sampleCount(rows.length));
    fill(this.caption, [
      narrowed ? `${count} of ${formatCount(sampleCount(this.all.length))} functions match` : `${count} ${rows.length === 1 ? 'function' : 'functions'}`,
      where,
    ]);
    this.current = Math.min(this.current, Math.max(0, Math.min(rows.length, this.limit) - 1));
    fill(
      this.body,
      rows.slice(0, this.limit).map((row, at) => this.row(row, whole, at === this.current)),
    );
    const hidden = rows.length - this.limit;
    this.more.hidden = hidden <= 0;
    this.more.textContent = `Show more (${formatCount(sampleCount(Math.max(0, hidden)))} left)`;
  }

  private row(row: TopRow, whole: Nanoseconds, current: boolean): HTMLElement {
    const { tree, search } = this.state;
    const name = legibleName(tree.functions.name[row.code]!);
    const object = legible(tree.functions.object[row.code]!);
    const hit = search?.matches[row.code] === 1;
    const cell = (time: Nanoseconds, samples: SampleCount) => {
      const part = share(time, whole);
      const bar = h('i');
      bar.style.width = `${(part * 100).toFixed(2)}%`;
      return h(
        'td',
        { title: `${formatTime(time)}, ${formatCount(samples)} samples` },
        h('b', {}, formatShare(part)),
        h('small', {}, formatTime(time)),
        h('span', { 'aria-hidden': 'true' }, bar),
      );
    };
    return h(
      'tr',
      // Where only matches are listed there is nothing to tell apart.
      { class: hit && this.state.searchedBy === 'table' ? 'hit' : undefined },
      h(
        'th',
        { scope: 'row' },
        mark(tree.functions.kind[row.code]!),
        h(
          'button',
          {
            type: 'button',
            tabindex: current ? 0 : -1,
            title: middleCut(object === '' ? name : `${name}\n${object}`, 1000),
            'aria-pressed': String(hit),
            onclick: () => this.toggle(row.code),
          },
          h('bdi', {}, middleCut(name, 300)),
        ),
        h('small', {}, h('bdi', {}, middleCut(baseName(object), 80))),
      ),
      cell(row.self, row.selfSamples),
      cell(row.total, row.totalSamples),
    );
  }

  private toggle(code: number): void {
    const { state } = this;
    const query = exactly(state.tree.functions.name[code]!);
    const buttons = this.buttons();
    const focused = buttons.indexOf(document.activeElement as HTMLButtonElement);
    if (focused >= 0) this.current = focused;
    state.find(state.search?.query === query ? '' : query, 'table');
    if (focused >= 0) this.buttons()[this.current]?.focus();
  }

  private buttons(): HTMLButtonElement[] {
    return [...this.body.querySelectorAll('button')];
  }

  private key(event: KeyboardEvent): void {
    const buttons = this.buttons();
    const at = buttons.indexOf(event.target as HTMLButtonElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (at < 0 || to === undefined || !buttons[to]) return;
    event.preventDefault();
    buttons[at]!.tabIndex = -1;
    buttons[to]!.tabIndex = 0;
    buttons[to]!.focus();
    this.current = to;
  }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
// Below the graph: what the profile cost, what became of each firing, how it was made.

import { accounts, debts, price, type AccountRow, type CostRow } from '../profile/ledger.js';
import { legible } from '../profile/names.js';
import { formatBytes, formatCount, formatPercent, formatShare, formatTime, nanoseconds, sampleCount, share } from '../profile/units.js';
import { h } from './dom.js';
import type { State } from './state.js';

export function ledger(state: State): HTMLElement {
  return h(
    'section',
    { class: 'ledger', id: 'ledger', 'aria-label': 'Ledger' },
    notes(state),
    h('div', { class: 'cards' }, costCard(state), accountCard(state), runCard(state)),
    debtCard(state),
  );
}

/** The price in one line. */
export function priceLine(state: State): HTMLElement {
  const cost = price(state.profile);
  const book = accounts(state.profile);
  const missing = book.parts.filter((p) => p.name !== 'recorded' && p.name !== 'filtered' && p.count > 0);
  const total = h('b', {}, cost.total.time === undefined ? 'unknown' : formatTime(cost.total.time));
  // A part that is unknown makes the sum a lower bound.
  const atLeast = cost.parts.some((part) => part.time === undefined) ? 'at least ' : '';
  const line = h('p', { class: 'price' }, `This profile cost ${atLeast}`, total);
  line.append(` of CPU time over ${formatTime(cost.duration)}: ${formatPercent(cost.total.percent ?? 0)} of one CPU, `);
  line.append(`${formatPercent(cost.whileRunning)} while it ran. `);
  line.append(
    missing.length === 0
      ? `All ${formatCount(book.fired)} firings are accounted for, none lost.`
      : `Not recorded: ${missing.map((p) => `${formatCount(p.count)} ${p.name}`).join(', ')} of ${formatCount(book.fired)} firings.`,
  );
  return line;
}

function costCard({ profile }: State): HTMLElement {
  const cost = price(profile);
  const row = (part: CostRow, total = false) =>
    h(
      'tr',
      { class: total ? 'sum' : part.level === 1 ? 'part' : undefined },
      h('th', { scope: 'row' }, part.name, part.origin !== '' && h('small', {}, part.origin)),
      h('td', {}, part.time === undefined ? 'unknown' : formatTime(part.time)),
      h('td', {}, part.perSample === undefined ? '' : formatTime(part.perSample)),
      h('td', {}, part.percent === undefined ? '' : formatPercent(part.percent)),
    );
  const th = (text: string) => h('th', { scope: 'col' }, text);
  return h(
    'div',
    { class: 'card' },
    h('h2', {}, 'What looking cost'),
    h(
      'table',
      { id: 'cost' },
      h('thead', {}, h('tr', {}, th('part'), th('CPU time'), th('per sample'), th('of one CPU'))),
      h('tbody', {}, ...cost.parts.map((part) => row(part)), row(cost.total, true)),
    ),
    h(
      'p',
      { class: 'aside' },
      `While running: ${formatPercent(cost.whileRunning)} of one CPU. `,
      cost.start && `First sample ${formatTime(cost.start.wall)} after launch, for ${formatTime(cost.start.cpu)} of CPU time. `,
      `Memory: ${cost.memory.map((m) => `${formatBytes(m.size)} ${m.origin}`).join(', ')}.`,
    ),
  );
}

function accountCard({ profile }: State): HTMLElement {
  const book = accounts(profile);
  const line = (row: AccountRow, sign: string) =>
    h(
      'tr',
      { class: sign === '' ? 'part' : undefined },
      h('td', { class: 'sign' }, sign),
      h('th', { scope: 'row' }, row.name, row.meaning !== '' && h('small', {}, row.meaning)),
      h('td', {}, formatCount(row.count)),
    );
  return h(
    'div',
    { class: 'card' },
    h('h2', {}, 'What became of each firing'),
    h(
      'table',
      { id: 'accounting' },
      h(
        'tbody',
        {},
        h('tr', { class: 'first' }, h('td', { class: 'sign' }), h('th', { scope: 'row' }, 'fired'), h('td', {}, formatCount(book.fired))),
        ...book.parts.map((row, at) => line(row, at === 0 ? '=' : '+')),
        ...book.reasons.map((row) => line(row, '')),
      ),
    ),
    h(
      'p',
      { class: book.balanced ? 'verdict good' : 'verdict bad' },
      book.balanced ? '✓ The sum is exact: nothing disappeared.' : '✗ The sum does not add up. This is a fault of lightfoot: please report it.',
    ),
    book.endings.length > 0 && h('h3', {}, 'How recorded stacks ended'),
    book.endings.length > 0 && h('table', { id: 'endings' }, h('tbody', {}, ...book.endings.map((row) => line(row, '')))),
  );
}

/** Which objects cut stacks short, and what would help; absent where all stacks are whole. */
function debtCard(state: State): HTMLElement | undefined {
  const rows = debts(state.profile);
  if (rows.length === 0) return undefined;
  const all = state.allSamples;
  const owed = rows.reduce((sum, row) => sum + row.count, 0);
  const th = (text: string) => h('th', { scope: 'col' }, text);
  return h(
    'div',
    { class: 'card debt', id: 'debt' },
    h('h2', {}, 'Stacks that end too soon'),
    h(
      'p',
      {},
      `${formatCount(sampleCount(all - owed))} of ${formatCount(all)} samples reach the root of their stack. ` +
        'In the others callers are missing: they stand in the graph at the object that could not be left.',
    ),
    h(
      'table',
      {},
      h('thead', {}, h('tr', {}, th('samples'), th('of all'), th('object'), th('why, and what would help'))),
      h(
        'tbody',
        {},
        ...rows.map((row) =>
          h(
            'tr',
            {},
            h('td', {}, formatCount(row.count)),
            h('td', {}, formatShare(share(row.count, all))),
            h('th', { scope: 'row', title: row.path === '' ? undefined : legible(row.path) }, h('bdi', {}, legible(row.object))),
            h(
              'td',
              { class: 'why' },
              row.why,
              row.detail !== '' && ` (${legible(row.detail)})`,
              row.remedy !== '' && h('small', {}, `→ ${row.remedy}`),
            ),
          ),
        ),
      ),
    ),
  );
}

const clockWords: Record<string, string> = {
  'cpu-clock': 'a timer (cpu-clock)',
  cycles: "the hardware's cycle counter (cycles)",
  tick: "the scheduler's tick, one of N kept at random (tick)",
};

function runCard({ profile }: State): HTMLElement {
  const { meta } = profile;
  const started = new Date(meta.started_unix_ns / 1e6);
  const when = Number.isNaN(started.getTime()) ? 'unknown' : started.toISOString().replace('T', ' ').replace(/\..*$/, ' UTC');
  const facts: [string, string | HTMLElement][] = [
    ['target', legible(meta.target)],
    ['started', when],
    ['length', formatTime(nanoseconds(meta.duration_ns))],
    ['sampling', `${meta.rate_hz} Hz per CPU on ${clockWords[meta.clock] ?? legible(meta.clock)}: one sample stands for ${formatTime(nanoseconds(meta.period_ns))} of CPU time`],
    ['machine', `${meta.cpus} ${meta.cpus === 1 ? 'CPU' : 'CPUs'}, ${legible(meta.machine)}, Linux ${legible(meta.kernel)}`],
    ['kernel frames', meta.kernel_frames ? 'shown' : 'not shown'],
    ['command', h('code', {}, legible(meta.command_line))],
    ['lightfoot', legible(meta.version)],
  ];
  return h(
    'div',
    { class: 'card' },
    h('h2', {}, 'How it was made'),
    h('dl', {}, ...facts.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])),
  );
}

function notes({ profile }: State): HTMLElement | undefined {
  if (profile.meta.notes.length === 0) return undefined;
  return h(
    'div',
    { class: 'notes', id: 'notes' },
    h('h2', {}, 'Notes'),
    h('ul', {}, ...profile.meta.notes.map((note) => h('li', {}, legible(note)))),
  );
}

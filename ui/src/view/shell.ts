// SPDX-License-Identifier: Apache-2.0 OR MIT
// Puts the parts of the page in their places and hands out the keys that work everywhere.

import { kinds, type Kind } from '../profile/data.js';
import { accounts } from '../profile/ledger.js';
import { totalSamples, totalTime } from '../profile/layout.js';
import { legible, middleCut } from '../profile/names.js';
import { timeByKind } from '../profile/top.js';
import type { Grouping } from '../profile/tree.js';
import { formatCount, formatShare, formatTime, nanoseconds, sampleCount, share } from '../profile/units.js';
import { CallTreeView } from './calltree.js';
import { crumbs } from './crumbs.js';
import { fill, h, icon } from './dom.js';
import { FlameView } from './flame.js';
import { Help } from './help.js';
import { ledger, priceLine } from './ledgerview.js';
import { mark } from './mark.js';
import { kindHelp } from './palette.js';
import { matchedInWords, SearchBox } from './searchbox.js';
import type { Direction, State } from './state.js';
import { TopTable } from './table.js';
import { printLight, themeButton } from './theme.js';
import { ThreadPicker } from './threadpicker.js';
import { describeBox, Tooltip } from './tooltip.js';

/** Builds the page into `app`; the returned function draws the first picture. */
export function build(app: HTMLElement, state: State): () => void {
  const help = new Help();
  const helpButton = h('button', { type: 'button', class: 'quiet', id: 'help-button', title: 'Help (?)', 'aria-label': 'Help', onclick: () => help.show() }, '?');
  const theme = themeButton(state);
  const status = h('div', { class: 'unseen', id: 'status', role: 'status', 'aria-live': 'polite' });
  const header = h(
    'header',
    {},
    h('div', { class: 'brand' }, icon('logo'), 'lightfoot'),
    h('h1', { title: legible(state.profile.meta.target) }, h('bdi', {}, middleCut(legible(state.profile.meta.target), 120))),
    facts(state),
    h('div', { class: 'end' }, theme, helpButton),
  );
  if (state.allSamples === 0) {
    fill(app, [header, nothing(state), ledger(state), help.element, status]);
    return () => {};
  }

  const tooltip = new Tooltip(state);
  const flame = new FlameView(state, tooltip);
  const search = new SearchBox(state);
  const table = new TopTable(state);
  const tree = new CallTreeView(state);
  const side = tabs([
    { id: 'functions', label: 'Functions', content: table.element, shown: (on) => table.setVisible(on) },
    { id: 'calls', label: 'Call tree', content: tree.element, shown: (on) => tree.setVisible(on) },
  ]);
  fill(app, [
    h('a', { class: 'skip', href: '#ledger' }, 'Skip to the ledger'),
    header,
    h('div', { class: 'toolbar' }, search.element, directions(state), new ThreadPicker(state).element, grouping(state)),
    h('main', {}, h('section', { class: 'graph', 'aria-label': 'Flame graph' }, crumbs(state), flame.element, legend(state)), side),
    priceLine(state),
    ledger(state),
    tooltip.element,
    help.element,
    status,
  ]);
  announce(state, status);
  printLight(() => {
    state.tell('theme');
    flame.drawNow();
  });

  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.element.open) return;
    if (event.key === 'Escape') {
      tooltip.hide();
      if (state.search) search.clear();
      else state.zoomTo(0);
      if (document.activeElement?.id === 'search') flame.focus();
      return;
    }
    if (event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement) return;
    const actions: Record<string, () => void> = {
      '/': () => search.focus(),
      '?': () => help.show(),
      g: () => flame.focus(),
      t: () => side.querySelector<HTMLElement>('[role="tab"][aria-selected="true"]')!.focus(),
      i: () => state.turn(state.direction === 'icicle' ? 'flame' : 'icicle'),
      d: () => theme.click(),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  return () => flame.drawNow();
}

function facts(state: State): HTMLElement {
  const { meta } = state.profile;
  const fact = (value: string, what: string) => h('li', {}, h('b', {}, value), ` ${what}`);
  return h(
    'ul',
    { class: 'facts', 'aria-label': 'The run' },
    fact(formatTime(state.allTime), 'CPU time'),
    fact(formatCount(state.allSamples), 'samples'),
    fact(formatTime(nanoseconds(meta.duration_ns)), 'of watching'),
    fact(`${meta.rate_hz} Hz`, meta.clock),
  );
}

function nothing(state: State): HTMLElement {
  const { fired, parts } = accounts(state.profile);
  const most = [...parts].sort((a, b) => b.count - a.count)[0]!;
  return h(
    'main',
    { class: 'nothing', id: 'nothing' },
    h('h2', {}, 'No samples in this profile'),
    h(
      'p',
      {},
      fired === 0
        ? 'Sampling never fired: the target used no CPU time while it was watched, or it had ended before.'
        : `Sampling fired ${formatCount(fired)} times, but nothing was recorded: ${formatCount(most.count)} ${most.name} (${most.meaning}).`,
    ),
    h('p', {}, 'A longer run (-d) or a higher rate (-F) sees more. The ledger below says what happened.'),
  );
}

function directions(state: State): HTMLElement {
  const button = (direction: Direction, label: string, title: string) =>
    h('button', { type: 'button', id: `as-${direction}`, title, onclick: () => state.turn(direction) }, icon(direction), label);
  const buttons = [
    button('icicle', 'Icicle', 'Callers at the top (i)'),
    button('flame', 'Flame', 'Callers at the bottom (i)'),
  ];
  const show = () => buttons.forEach((b) => b.setAttribute('aria-pressed', String(b.id === `as-${state.direction}`)));
  state.on(show);
  show();
  return h('div', { class: 'segments', role: 'group', 'aria-label': 'Direction' }, ...buttons);
}

/** Absent where there is one thread only. */
function grouping(state: State): HTMLElement | undefined {
  if (state.profile.threads.length < 2) return undefined;
  const choices: [Grouping, string][] = [
    ['none', 'All together'],
    ['process', 'By process'],
    ['thread', 'By thread'],
  ];
  const select = h(
    'select',
    { id: 'grouping', 'aria-label': 'Grouping of stacks', title: 'One box per process or thread above the stacks' },
    ...choices.map(([value, label]) => h('option', { value }, label)),
  );
  select.addEventListener('change', () => state.group(select.value as Grouping));
  return select;
}

/** Says when the graph shows less than it seems to: stacks whose callers are missing. */
function shortStacks({ profile }: State): HTMLElement | undefined {
  const all = profile.samples.count.reduce((sum, n) => sum + n, 0);
  const short = profile.samples.count.reduce((sum, n, at) => sum + (profile.samples.outcome[at] === 0 ? 0 : n), 0);
  if (short === 0) return undefined;
  return h(
    'li',
    { class: 'short' },
    h('a', { href: '#debt' }, `callers missing in ${formatShare(share(sampleCount(short), sampleCount(all)))} of samples`),
  );
}

/** Kinds of code that occur, with their share of self time in what is zoomed. */
function legend(state: State): HTMLElement {
  const short = shortStacks(state);
  const list = h('ul', { class: 'legend', 'aria-label': 'Colours: kinds of code' });
  const draw = () => {
    const whole = totalTime(state.layout, state.zoom);
    const times = timeByKind(state.layout, state.tree, state.zoom);
    fill(list, [
      ...kinds.map((word, kind) => {
        const present = state.tree.functions.kind.indexOf(kind as Kind);
        return (
          present >= 0 &&
          present < state.tree.functions.firstGroup &&
          h('li', { title: kindHelp[kind]! }, mark(kind as Kind), ` ${word} `, h('span', { class: 'part' }, formatShare(share(times[kind]!, whole))))
        );
      }),
      short,
    ]);
  };
  state.on((change) => {
    if (change === 'layout' || change === 'zoom') draw();
  });
  draw();
  return list;
}

interface Tab {
  id: string;
  label: string;
  content: HTMLElement;
  shown: (on: boolean) => void;
}

function tabs(all: Tab[]): HTMLElement {
  const buttons = all.map(({ id, label }) =>
    h('button', { type: 'button', role: 'tab', id: `tab-${id}`, 'aria-controls': `panel-${id}` }, label),
  );
  const panels = all.map(({ id, content }) =>
    h('div', { role: 'tabpanel', class: 'tabpanel', id: `panel-${id}`, 'aria-labelledby': `tab-${id}` }, content),
  );
  const choose = (chosen: number) => {
    all.forEach((tab, at) => {
      const on = at === chosen;
      buttons[at]!.setAttribute('aria-selected', String(on));
      buttons[at]!.tabIndex = on ? 0 : -1;
      panels[at]!.hidden = !on;
      tab.shown(on);
    });
  };
  buttons.forEach((button, at) => {
    button.addEventListener('click', () => choose(at));
    button.addEventListener('keydown', (event) => {
      const turn = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (turn === undefined) return;
      event.preventDefault();
      const to = (at + turn + buttons.length) % buttons.length;
      choose(to);
      buttons[to]!.focus();
    });
  });
  choose(0);
  return h('section', { class: 'side', 'aria-label': 'Tables' }, h('div', { role: 'tablist', 'aria-label': 'Tables' }, ...buttons), ...panels);
}

function announce(state: State, status: HTMLElement): void {
  state.on((change) => {
    if (change === 'selection' && state.selectedBy === 'key') status.textContent = describeBox(state, state.selected);
    else if (change === 'zoom') {
      status.textContent = state.zoom === 0 ? 'Zoomed out to everything' : `Zoomed into ${describeBox(state, state.zoom)}`;
    } else if (change === 'search') {
      const { search } = state;
      const plain = search?.invalid === undefined ? '' : ', searched as plain text because it is not a valid regular expression';
      const names = search?.functions === 1 ? '1 name' : `${search?.functions} names`;
      status.textContent = search ? `${matchedInWords(state)}, ${names}${plain}` : 'Search cleared';
    } else if (change === 'layout') {
      status.textContent = `Showing ${state.shownInWords()}: ${formatCount(totalSamples(state.layout, 0))} samples`;
    } else if (change === 'direction') status.textContent = `Direction: ${state.direction}`;
  });
}

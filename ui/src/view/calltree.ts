// SPDX-License-Identifier: Apache-2.0 OR MIT
// The call tree as a tree of text: what the canvas shows, for screen readers and for everybody who prefers lists.
// Branches are made when they are opened.

import { childrenOf, firstChild, selfTime, totalTime } from '../profile/layout.js';
import { legibleName, middleCut } from '../profile/names.js';
import { formatCount, formatShare, formatTime, sampleCount, share } from '../profile/units.js';
import { afterZoomMs, h, whenCalm } from './dom.js';
import { mark } from './mark.js';
import type { State } from './state.js';

const step = 50;

export class CallTreeView {
  readonly element = h('div', { class: 'scroll' });
  private readonly root = h('ul', { role: 'tree', id: 'tree', 'aria-label': 'Call tree' });
  private readonly boxOf = new WeakMap<Element, number>();
  private visible = false;
  private stale = true;

  constructor(private readonly state: State) {
    this.element.append(this.root);
    this.root.addEventListener('keydown', (event) => this.key(event));
    this.root.addEventListener('click', (event) => this.click(event));
    const soon = whenCalm(afterZoomMs, () => {
      if (this.visible && this.stale) this.draw();
    });
    state.on((change) => {
      if (change !== 'layout' && change !== 'zoom' && change !== 'search') return;
      this.stale = true;
      if (change === 'zoom') soon();
      else if (this.visible) this.draw();
    });
  }

  setVisible(visible: boolean): void {
    this.visible = visible;
    if (visible && this.stale) this.draw();
  }

  private draw(): void {
    this.stale = false;
    const hadFocus = this.root.contains(document.activeElement);
    const top = this.item(this.state.zoom, 1, 1, 1);
    top.tabIndex = 0;
    this.root.replaceChildren(top);
    this.open(top, true);
    if (hadFocus) top.focus();
  }

  private item(box: number, level: number, position: number, siblings: number): HTMLLIElement {
    const { state } = this;
    const { layout } = state;
    const code = state.codeOf(box);
    const kind = state.kindOf(box);
    const part = formatShare(share(totalTime(layout, box), totalTime(layout, state.zoom)));
    const self = selfTime(layout, box);
    const item = h(
      'li',
      {
        role: 'treeitem',
        tabindex: -1,
        'aria-level': level,
        'aria-posinset': position,
        'aria-setsize': siblings,
        'aria-expanded': firstChild(layout, box) >= 0 ? 'false' : undefined,
        class: code >= 0 && state.search?.matches[code] ? 'hit' : undefined,
      },
      h(
        'div',
        { class: 'line' },
        h('span', { class: 'twist', 'aria-hidden': 'true' }),
        h('b', {}, part),
        kind !== undefined && mark(kind),
        h('bdi', {}, middleCut(legibleName(state.nameOf(box)), 300)),
        h('small', {}, `${formatTime(totalTime(layout, box))}${self > 0 ? `, self ${formatTime(self)}` : ''}`),
      ),
    );
    (item.firstElementChild as HTMLElement).style.paddingInlineStart = `${Math.min(level - 1, 40) * 12}px`;
    this.boxOf.set(item, box);
    return item;
  }

  /** @param far also open what has no alternative: a chain of single callees opens as one. */
  private open(item: HTMLElement, far: boolean): void {
    if (item.getAttribute('aria-expanded') !== 'false') return;
    item.setAttribute('aria-expanded', 'true');
    const group = h('ul', { role: 'group' });
    item.append(group);
    const children = childrenOf(this.state.layout, this.boxOf.get(item)!);
    this.addChildren(group, children, Number(item.getAttribute('aria-level')) + 1, 0);
    if (far && children.length === 1) this.open(group.firstElementChild as HTMLElement, true);
  }

  private addChildren(group: HTMLElement, children: number[], level: number, from: number): HTMLElement | undefined {
    const until = Math.min(children.length, from + step);
    let first: HTMLElement | undefined;
    for (let at = from; at < until; at++) {
      const item = this.item(children[at]!, level, at + 1, children.length);
      first ??= item;
      group.append(item);
    }
    const left = children.length - until;
    if (left > 0) {
      const more = h(
        'li',
        { role: 'treeitem', tabindex: -1, 'aria-level': level, class: 'more' },
        h('div', { class: 'line' }, `${formatCount(sampleCount(left))} lighter callees …`),
      );
      (more.firstElementChild as HTMLElement).style.paddingInlineStart = `${Math.min(level, 40) * 12}px`;
      more.addEventListener('lightfoot-more', () => {
        more.remove();
        const next = this.addChildren(group, children, level, until);
        if (next) this.focus(next);
      });
      group.append(more);
    }
    return first;
  }

  private close(item: Element): void {
    item.setAttribute('aria-expanded', 'false');
    item.querySelector(':scope > ul')?.remove();
  }

  private activate(item: HTMLElement): void {
    const expanded = item.getAttribute('aria-expanded');
    if (item.classList.contains('more')) item.dispatchEvent(new Event('lightfoot-more'));
    else if (expanded === 'false') this.open(item, true);
    else if (expanded === 'true') this.close(item);
  }

  private click(event: MouseEvent): void {
    const item = (event.target as Element).closest<HTMLElement>('li');
    if (!item) return;
    this.activate(item);
    if (item.isConnected) this.focus(item);
  }

  private focus(item: HTMLElement): void {
    this.root.querySelector('[tabindex="0"]')?.setAttribute('tabindex', '-1');
    item.tabIndex = 0;
    item.focus();
    item.scrollIntoView({ block: 'nearest' });
    const box = this.boxOf.get(item);
    if (box !== undefined) this.state.select(box, 'pointer');
  }

  private key(event: KeyboardEvent): void {
    const item = (event.target as Element).closest<HTMLElement>('li');
    if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
    const items = [...this.root.querySelectorAll<HTMLElement>('li')];
    const at = items.indexOf(item);
    let to: HTMLElement | null | undefined;
    switch (event.key) {
      case 'ArrowDown':
        to = items[at + 1];
        break;
      case 'ArrowUp':
        to = items[at - 1];
        break;
      case 'Home':
        to = items[0];
        break;
      case 'End':
        to = items[items.length - 1];
        break;
      case 'ArrowRight':
        if (item.getAttribute('aria-expanded') === 'false') this.open(item, false);
        else to = item.querySelector<HTMLElement>(':scope > ul > li');
        break;
      case 'ArrowLeft':
        if (item.getAttribute('aria-expanded') === 'true') this.close(item);
        else to = item.parentElement?.closest<HTMLElement>('li');
        break;
      case 'Enter': {
        const box = this.boxOf.get(item);
        if (box === undefined) this.activate(item);
        else this.state.zoomTo(box);
        break;
      }
      case ' ':
        this.activate(item);
        break;
      default:
        return;
    }
    event.preventDefault();
    if (to) this.focus(to);
  }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the page shows at the moment. Views change it by its methods and hear about changes; they never call each other.

import type { Kind, Profile } from '../profile/data.js';
import { buildLayout, totalSamples, totalTime, type Layout } from '../profile/layout.js';
import { countMatches, matched, search, type Search } from '../profile/search.js';
import { describeShown, listProcesses, type ProcessEntry } from '../profile/threads.js';
import { buildTree, type CallTree, type Grouping } from '../profile/tree.js';
import type { Nanoseconds, SampleCount } from '../profile/units.js';

export type Direction = 'icicle' | 'flame';

/** What a change touched. `layout`: the filter or grouping, so every box is new; `zoom`, `selection`, `search` and so on: only that. */
export type Change = 'layout' | 'zoom' | 'selection' | 'search' | 'direction' | 'theme';

export class State {
  tree: CallTree;
  grouping: Grouping = 'none';
  readonly processes: ProcessEntry[];
  /** Of all samples, whatever is filtered. */
  readonly allTime: Nanoseconds;
  readonly allSamples: SampleCount;
  layout: Layout;
  /** 1 for each thread that is shown. */
  shown: Uint8Array;
  /** The box that fills the width. */
  zoom = 0;
  /** The box that keys move, -1 for none. */
  selected = -1;
  /** Where the selection was made: what the pointer did needs no announcement. */
  selectedBy: 'key' | 'pointer' = 'pointer';
  search: Search | undefined;
  /** Where the query came from; the table filters itself by a typed one only. */
  searchedBy: 'box' | 'table' = 'box';
  /** Number of matching boxes before each box (one entry more than boxes), undefined without a search. */
  matchesBefore: Int32Array | undefined;
  /** The part of the zoomed box that matches. */
  found: { time: Nanoseconds; samples: SampleCount } | undefined;
  direction: Direction = 'icicle';

  private readonly listeners: ((change: Change) => void)[] = [];

  constructor(readonly profile: Profile) {
    this.tree = buildTree(profile);
    this.shown = new Uint8Array(profile.threads.length).fill(1);
    this.layout = buildLayout(profile, this.tree);
    this.allTime = totalTime(this.layout, 0);
    this.allSamples = totalSamples(this.layout, 0);
    this.processes = listProcesses(profile);
  }

  on(listener: (change: Change) => void): void {
    this.listeners.push(listener);
  }

  /** For views whose own state changes how others look (theme). */
  tell(change: Change): void {
    for (const listener of this.listeners) listener(change);
  }

  get filtered(): boolean {
    return this.shown.includes(0);
  }

  shownInWords(): string {
    return describeShown(this.processes, this.shown);
  }

  /** Index into `tree.functions`; -1 for the root. */
  codeOf(box: number): number {
    return this.tree.nodeFunction[this.layout.node[box]!]!;
  }

  nameOf(box: number): string {
    const code = this.codeOf(box);
    return code < 0 ? 'all' : this.tree.functions.name[code]!;
  }

  /** Undefined for the root, a process or a thread: they are not code. */
  kindOf(box: number): Kind | undefined {
    const code = this.codeOf(box);
    const { functions } = this.tree;
    return code >= 0 && code < functions.firstGroup ? functions.kind[code] : undefined;
  }

  /** Puts a box per process or thread above the stacks, or takes it away. */
  group(grouping: Grouping): void {
    if (grouping === this.grouping) return;
    this.grouping = grouping;
    this.tree = buildTree(this.profile, grouping);
    this.layout = buildLayout(this.profile, this.tree, this.shown);
    this.zoom = 0;
    this.selected = -1;
    this.search = search(this.tree.functions, this.search?.query ?? '');
    this.index();
    this.count();
    this.tell('layout');
  }

  zoomTo(box: number): void {
    if (box === this.zoom) return;
    this.zoom = box;
    this.count();
    this.tell('zoom');
  }

  select(box: number, by: 'key' | 'pointer'): void {
    if (box === this.selected && by === this.selectedBy) return;
    this.selected = box;
    this.selectedBy = by;
    this.tell('selection');
  }

  find(query: string, by: 'box' | 'table'): void {
    if (query === (this.search?.query ?? '') && by === this.searchedBy) return;
    this.search = search(this.tree.functions, query);
    this.searchedBy = by;
    this.index();
    this.count();
    this.tell('search');
  }

  turn(direction: Direction): void {
    if (direction === this.direction) return;
    this.direction = direction;
    this.tell('direction');
  }

  /** Shows the samples of some threads only. Zoom and selection stay where they were if they still exist. */
  filter(shown: Uint8Array): void {
    const old = this.layout;
    this.shown = shown;
    this.layout = buildLayout(this.profile, this.tree, shown);
    const moved = (box: number) => (box < 0 ? -1 : this.layout.boxOfNode[old.node[box]!]!);
    this.zoom = Math.max(0, moved(this.zoom));
    this.selected = moved(this.selected);
    this.index();
    this.count();
    this.tell('layout');
  }

  private index(): void {
    this.matchesBefore = this.search && countMatches(this.layout, this.tree, this.search);
  }

  private count(): void {
    this.found = this.search && matched(this.layout, this.tree, this.search, this.zoom);
  }
}

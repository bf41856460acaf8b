// SPDX-License-Identifier: Apache-2.0 OR MIT
// The top table: functions by self and total time.

import { kinds } from './data.js';
import type { Layout } from './layout.js';
import type { CallTree } from './tree.js';
import { nanoseconds, sampleCount, type Nanoseconds, type SampleCount } from './units.js';

/** One function. Recursion counts once in the total. */
export interface TopRow {
  /** Index into `CallTree.functions`. */
  code: number;
  self: Nanoseconds;
  selfSamples: SampleCount;
  total: Nanoseconds;
  totalSamples: SampleCount;
}

export type TopOrder = 'self' | 'total' | 'name';

/** Functions in the subtree of `within`, in no particular order. */
export function topRows(layout: Layout, tree: CallTree, within: number): TopRow[] {
  const functions = tree.functions.name.length;
  const sums = [0, 1, 2, 3].map(() => new Float64Array(functions));
  const [self, selfCount, total, totalCount] = sums as [Float64Array, Float64Array, Float64Array, Float64Array];
  // While walking depth first: the first box after the outermost open box of each function. A box before that lies
  // inside a box of the same function and must not add to its total again.
  const openUntil = new Int32Array(functions);
  for (let box = within; box < layout.end[within]!; box++) {
    const code = tree.nodeFunction[layout.node[box]!]!;
    if (code < 0) continue;
    self[code]! += layout.self[box]!;
    selfCount[code]! += layout.selfCount[box]!;
    if (box >= openUntil[code]!) {
      openUntil[code] = layout.end[box]!;
      total[code]! += layout.total[box]!;
      totalCount[code]! += layout.totalCount[box]!;
    }
  }
  const rows: TopRow[] = [];
  for (let code = 0; code < tree.functions.firstGroup; code++) {
    if (total[code]! > 0) {
      rows.push({
        code,
        self: nanoseconds(self[code]!),
        selfSamples: sampleCount(selfCount[code]!),
        total: nanoseconds(total[code]!),
        totalSamples: sampleCount(totalCount[code]!),
      });
    }
  }
  return rows;
}

/** Sorts in place; heaviest first, names from A to Z, `reverse` the other way round. Ties go by the other columns. */
export function sortRows(rows: TopRow[], tree: CallTree, order: TopOrder, reverse: boolean): TopRow[] {
  const names = tree.functions.name;
  const byName = (a: TopRow, b: TopRow) => (names[a.code]! < names[b.code]! ? -1 : names[a.code]! > names[b.code]! ? 1 : 0);
  const orders: Record<TopOrder, (a: TopRow, b: TopRow) => number> = {
    self: (a, b) => b.self - a.self || b.total - a.total || byName(a, b),
    total: (a, b) => b.total - a.total || b.self - a.self || byName(a, b),
    name: (a, b) => byName(a, b) || b.self - a.self,
  };
  const compare = orders[order];
  return rows.sort(reverse ? (a, b) => compare(b, a) : compare);
}

/** Self time by kind of code in the subtree of `within`; the position is the kind. */
export function timeByKind(layout: Layout, tree: CallTree, within: number): Nanoseconds[] {
  const sums: number[] = kinds.map(() => 0);
  for (let box = within; box < layout.end[within]!; box++) {
    const code = tree.nodeFunction[layout.node[box]!]!;
    if (code >= 0) sums[tree.functions.kind[code]!]! += layout.self[box]!;
  }
  return sums.map(nanoseconds);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
// The call tree with weights, in the order in which it is drawn: depth first, heaviest child first.

import type { Profile } from './data.js';
import type { CallTree } from './tree.js';
import { nanoseconds, sampleCount, type Nanoseconds, type SampleCount } from './units.js';

/**
 * One entry ("box") per node that has weight. Box 0 is the root. The subtree of box `b` is the range `b` to `end[b]`
 * (exclusive): skipping a subtree is one assignment, and everything inside a zoomed box is one slice.
 */
export interface Layout {
  size: number;
  /** Call tree node of the box. */
  node: Int32Array;
  /** Box of the caller; -1 for the root. */
  parent: Int32Array;
  /** 0 for the root. */
  depth: Int32Array;
  /** First box after the subtree. */
  end: Int32Array;
  /** Left edge and width, in ns of CPU time. */
  start: Float64Array;
  total: Float64Array;
  self: Float64Array;
  /** The same in samples. */
  totalCount: Float64Array;
  selfCount: Float64Array;
  /** Depth of the deepest box. */
  maxDepth: number;
  /** Box of each node, -1 if the filter leaves it without weight. */
  boxOfNode: Int32Array;
}

export const totalTime = (layout: Layout, box: number): Nanoseconds => nanoseconds(layout.total[box]!);
export const selfTime = (layout: Layout, box: number): Nanoseconds => nanoseconds(layout.self[box]!);
export const totalSamples = (layout: Layout, box: number): SampleCount => sampleCount(layout.totalCount[box]!);
export const selfSamples = (layout: Layout, box: number): SampleCount => sampleCount(layout.selfCount[box]!);

/** @param shown 1 for each thread whose samples count; all threads if absent. */
export function buildLayout(profile: Profile, tree: CallTree, shown?: Uint8Array): Layout {
  const nodes = tree.nodeParent.length;
  const self = new Float64Array(nodes);
  const selfCount = new Float64Array(nodes);
  const { thread, weight, count } = profile.samples;
  for (let at = 0; at < thread.length; at++) {
    if (shown && !shown[thread[at]!]) continue;
    const node = tree.sampleNode[at]!;
    self[node]! += weight[at]!;
    selfCount[node]! += count[at]!;
  }
  const total = self.slice();
  const totalCount = selfCount.slice();
  for (let node = nodes - 1; node > 0; node--) {
    const up = tree.nodeParent[node]!;
    total[up]! += total[node]!;
    totalCount[up]! += totalCount[node]!;
  }
  const { first, children } = sortedChildren(tree.nodeParent, total);

  const layout: Layout = {
    size: children.length + 1,
    node: new Int32Array(children.length + 1),
    parent: new Int32Array(children.length + 1).fill(-1),
    depth: new Int32Array(children.length + 1),
    end: new Int32Array(children.length + 1),
    start: new Float64Array(children.length + 1),
    total: new Float64Array(children.length + 1),
    self: new Float64Array(children.length + 1),
    totalCount: new Float64Array(children.length + 1),
    selfCount: new Float64Array(children.length + 1),
    maxDepth: 0,
    boxOfNode: new Int32Array(nodes).fill(-1),
  };
  // Depth first without recursion: stacks may be thousands of frames deep.
  const next = first.slice();
  let boxes = 0;
  const open = (node: number, parent: number, start: number): number => {
    const box = boxes++;
    layout.node[box] = node;
    layout.parent[box] = parent;
    layout.start[box] = start;
    layout.total[box] = total[node]!;
    layout.self[box] = self[node]!;
    layout.totalCount[box] = totalCount[node]!;
    layout.selfCount[box] = selfCount[node]!;
    layout.boxOfNode[node] = box;
    if (parent >= 0) layout.depth[box] = layout.depth[parent]! + 1;
    if (layout.depth[box]! > layout.maxDepth) layout.maxDepth = layout.depth[box]!;
    return box;
  };
  let box = open(0, -1, 0);
  let used = 0; // left edge of the next child of `box`
  while (box >= 0) {
    const node = layout.node[box]!;
    if (next[node]! < first[node + 1]!) {
      box = open(children[next[node]!++]!, box, used);
    } else {
      layout.end[box] = boxes;
      used = layout.start[box]! + layout.total[box]!;
      box = layout.parent[box]!;
    }
  }
  return layout;
}

/** Children with weight, grouped by parent (`first[p]` to `first[p + 1]`), heaviest first. */
function sortedChildren(nodeParent: Int32Array, total: Float64Array) {
  const nodes = nodeParent.length;
  const first = new Int32Array(nodes + 1);
  for (let node = 1; node < nodes; node++) {
    if (total[node]! > 0) first[nodeParent[node]! + 1]! += 1;
  }
  for (let node = 0; node < nodes; node++) first[node + 1]! += first[node]!;
  const children = new Int32Array(first[nodes]!);
  const fill = first.slice();
  for (let node = 1; node < nodes; node++) {
    if (total[node]! > 0) children[fill[nodeParent[node]!]!++] = node;
  }
  const heavier = (a: number, b: number) => total[b]! - total[a]! || a - b;
  for (let node = 0; node < nodes; node++) {
    if (first[node + 1]! - first[node]! > 1) children.subarray(first[node], first[node + 1]).sort(heavier);
  }
  return { first, children };
}

/** The boxes from the root down to `box`, both included. */
export function pathTo(layout: Layout, box: number): number[] {
  const path: number[] = [];
  for (let at = box; at >= 0; at = layout.parent[at]!) path.push(at);
  return path.reverse();
}

/** Heaviest child, -1 for a leaf. */
export function firstChild(layout: Layout, box: number): number {
  return box + 1 < layout.end[box]! ? box + 1 : -1;
}

/** All children, heaviest first. */
export function childrenOf(layout: Layout, box: number): number[] {
  const result: number[] = [];
  for (let at = box + 1; at < layout.end[box]!; at = layout.end[at]!) result.push(at);
  return result;
}

/**
 * The nearest box of the same depth to the left (-1) or right (1) inside `within`, -1 if there is none. Siblings come
 * first because they lie nearest; at their end it is a cousin.
 */
export function neighbour(layout: Layout, box: number, direction: -1 | 1, within: number): number {
  const depth = layout.depth[box]!;
  if (direction > 0) {
    for (let at = layout.end[box]!; at < layout.end[within]!; at++) if (layout.depth[at] === depth) return at;
  } else {
    for (let at = box - 1; at > within; at--) if (layout.depth[at] === depth) return at;
  }
  return -1;
}

/** The box that covers `time` (ns from the left edge of the root) at `depth`, -1 if there is none. */
export function boxAt(layout: Layout, time: number, depth: number): number {
  if (time < 0 || time >= layout.total[0]!) return -1;
  let box = 0;
  for (let level = 0; level < depth; level++) {
    let child = box + 1;
    while (child < layout.end[box]! && time >= layout.start[child]! + layout.total[child]!) child = layout.end[child]!;
    if (child >= layout.end[box]! || time < layout.start[child]!) return -1;
    box = child;
  }
  return box;
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
// The call tree: stacks merged from the root by function. Weights come later (layout.ts), because a filter changes
// them and leaves the tree as it is.

import { unknownKind, type Kind, type Profile } from './data.js';
import { listProcesses } from './threads.js';

/** Distinct (name, object, kind), one entry each: what a person calls a function. After them the groups. */
export interface Functions {
  /** Texts, not indices. */
  name: string[];
  object: string[];
  kind: Kind[];
  /** Entries from here on are processes or threads, not functions. */
  firstGroup: number;
}

/** One node per distinct path of functions. Node 0 is the root ("all"); parents come before their children. */
export interface CallTree {
  functions: Functions;
  /** Index into `functions`; -1 for the root. */
  nodeFunction: Int32Array;
  /** -1 for the root. */
  nodeParent: Int32Array;
  /** The frame that was merged into the node and is the heaviest of them in the whole profile, -1 if there is none. */
  nodeFrame: Int32Array;
  /** How many distinct frames (lines of one function) were merged. */
  nodeLines: Int32Array;
  /** The node of each sample. */
  sampleNode: Int32Array;
}

/** What stands between the root and the stacks: nothing, or one box per process or thread. */
export type Grouping = 'none' | 'process' | 'thread';

/** Where samples without a single known frame go: they stay visible. */
export const noFramesName = '[no frames]';

export function buildTree(profile: Profile, grouping: Grouping = 'none'): CallTree {
  const { functions, ofFrame } = nameFunctions(profile);
  const { parent, frame } = profile.stacks;
  const { stack } = profile.samples;
  const groups = groupSamples(profile, grouping);
  const rowWeight = weighRows(profile);
  const nodes = new NodeTable(countRows(profile, groups) + 2 * groups.length + 1);
  const sampleNode = new Int32Array(stack.length);
  let noFrames = -1;
  if (stack.includes(-1)) {
    noFrames = functions.name.push(noFramesName) - 1;
    functions.object.push('');
    functions.kind.push(unknownKind);
  }
  functions.firstGroup = functions.name.length;

  // A row gets one node per group: the stamp says whether `rowNode` is of the present one.
  const rowNode = new Int32Array(parent.length);
  const rowStamp = new Int32Array(parent.length).fill(-1);
  const path: number[] = [];
  groups.forEach(({ name, samples }, group) => {
    let top = 0;
    if (grouping !== 'none') {
      top = nodes.child(0, functions.name.push(name) - 1);
      functions.object.push('');
      functions.kind.push(unknownKind);
    }
    for (const sample of samples) {
      let row = stack[sample]!;
      if (row < 0) {
        sampleNode[sample] = nodes.child(top, noFrames);
        continue;
      }
      for (; row >= 0 && rowStamp[row] !== group; row = parent[row]!) path.push(row);
      let node = row < 0 ? top : rowNode[row]!;
      while (path.length > 0) {
        row = path.pop()!;
        node = nodes.child(node, ofFrame[frame[row]!]!);
        nodes.addLine(node, frame[row]!, rowWeight[row]!);
        rowNode[row] = node;
        rowStamp[row] = group;
      }
      sampleNode[sample] = node;
    }
  });
  return { functions, ...nodes.columns(), sampleNode };
}

/** (parent node, function) -> node, by open addressing: ten times faster than a Map at a million rows. */
class NodeTable {
  private size = 1;
  private readonly mask: number;
  private readonly slots: Int32Array;
  private readonly parent: Int32Array;
  private readonly code: Int32Array;
  private readonly frame: Int32Array;
  private readonly lines: Int32Array;
  private readonly best: Float64Array;

  constructor(capacity: number) {
    let bits = 4;
    while (1 << bits < capacity * 2) bits += 1;
    this.mask = (1 << bits) - 1;
    this.slots = new Int32Array(this.mask + 1);
    this.parent = new Int32Array(capacity).fill(-1);
    this.code = new Int32Array(capacity).fill(-1);
    this.frame = new Int32Array(capacity).fill(-1);
    this.lines = new Int32Array(capacity);
    this.best = new Float64Array(capacity).fill(-1);
  }

  /** The callee `code` of `parent`; adds it if it is new. */
  child(parent: number, code: number): number {
    let slot = (Math.imul(parent, 0x9e3779b1) ^ Math.imul(code + 1, 0x85ebca6b)) & this.mask;
    for (;;) {
      const node = this.slots[slot]!;
      if (node === 0) {
        this.slots[slot] = this.size;
        this.parent[this.size] = parent;
        this.code[this.size] = code;
        return this.size++;
      }
      if (this.parent[node] === parent && this.code[node] === code) return node;
      slot = (slot + 1) & this.mask;
    }
  }

  addLine(node: number, frame: number, weight: number): void {
    this.lines[node]! += 1;
    if (weight > this.best[node]!) {
      this.best[node] = weight;
      this.frame[node] = frame;
    }
  }

  columns() {
    return {
      nodeParent: this.parent.slice(0, this.size),
      nodeFunction: this.code.slice(0, this.size),
      nodeFrame: this.frame.slice(0, this.size),
      nodeLines: this.lines.slice(0, this.size),
    };
  }
}

interface Group {
  name: string;
  /** Indices of its samples. */
  samples: number[];
}

function groupSamples(profile: Profile, grouping: Grouping): Group[] {
  const groupOfThread = new Int32Array(profile.threads.length);
  const groups: Group[] = [];
  if (grouping === 'none') groups.push({ name: '', samples: [] });
  else {
    for (const process of listProcesses(profile)) {
      if (grouping === 'process') groups.push({ name: `${process.comm} (${process.pid})`, samples: [] });
      for (const { thread, comm, tid } of process.threads) {
        if (grouping === 'thread') groups.push({ name: `${comm} (tid ${tid})`, samples: [] });
        groupOfThread[thread] = groups.length - 1;
      }
    }
  }
  profile.samples.thread.forEach((thread, sample) => groups[groupOfThread[thread]!]!.samples.push(sample));
  return groups;
}

/** How many nodes there can be at most: rows, once for each group that has them. */
function countRows(profile: Profile, groups: Group[]): number {
  const { parent } = profile.stacks;
  const stamp = new Int32Array(parent.length).fill(-1);
  let count = 0;
  groups.forEach(({ samples }, group) => {
    for (const sample of samples) {
      for (let row = profile.samples.stack[sample]!; row >= 0 && stamp[row] !== group; row = parent[row]!) {
        stamp[row] = group;
        count += 1;
      }
    }
  });
  return count;
}

function nameFunctions(profile: Profile): { functions: Functions; ofFrame: Int32Array } {
  const { strings, frames } = profile;
  const functions: Functions = { name: [], object: [], kind: [], firstGroup: 0 };
  const known = new Map<number, number>();
  const ofFrame = new Int32Array(frames.name.length);
  for (let frame = 0; frame < ofFrame.length; frame++) {
    const name = frames.name[frame]!;
    const object = frames.object[frame]!;
    const kind = frames.kind[frame]! as Kind;
    const key = (name * strings.length + object) * 8 + kind;
    let code = known.get(key);
    if (code === undefined) {
      code = functions.name.push(strings[name]!) - 1;
      functions.object.push(strings[object]!);
      functions.kind.push(kind);
      known.set(key, code);
    }
    ofFrame[frame] = code;
  }
  return { functions, ofFrame };
}

/** Weight of each row with all that it called, in ns, in the whole profile. */
function weighRows(profile: Profile): Float64Array {
  const { parent } = profile.stacks;
  const { stack, weight } = profile.samples;
  const total = new Float64Array(parent.length);
  for (let at = 0; at < stack.length; at++) if (stack[at]! >= 0) total[stack[at]!]! += weight[at]!;
  for (let row = parent.length - 1; row >= 0; row--) if (parent[row]! >= 0) total[parent[row]!]! += total[row]!;
  return total;
}

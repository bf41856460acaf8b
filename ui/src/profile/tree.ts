// SPDX-License-Identifier: Apache-2.0 OR MIT
// The call tree: stacks merged from the root by function. Weights come later (layout.ts), because a filter changes
// them and leaves the tree as it is.

import { unknownKind, type Kind, type Profile } from './data.js';

/** Distinct (name, object, kind), one entry each: what a person calls a function. */
export interface Functions {
  /** Texts, not indices. */
  name: string[];
  object: string[];
  kind: Kind[];
}

/** One node per distinct path of functions. Node 0 is the root ("all"); parents come before their children. */
export interface CallTree {
  functions: Functions;
  /** Index into `functions`; -1 for the root. */
  nodeFunction: Int32Array;
  /** -1 for the root. */
  nodeParent: Int32Array;
  /** The heaviest of the frames that were merged into the node, -1 if there is none: its file and line. */
  nodeFrame: Int32Array;
  /** How many distinct frames (lines of one function) were merged. */
  nodeLines: Int32Array;
  /** The node of each sample. */
  sampleNode: Int32Array;
}

/** Where samples without a single known frame go: they stay visible. */
export const noFramesName = '[no frames]';

export function buildTree(profile: Profile): CallTree {
  const { functions, ofFrame } = nameFunctions(profile);
  const { parent, frame } = profile.stacks;
  const rows = parent.length;

  // (parent node, function) -> node, by open addressing: ten times faster than a Map at a million rows.
  let bits = 4;
  while (1 << bits < rows * 2) bits += 1;
  const mask = (1 << bits) - 1;
  const slots = new Int32Array(mask + 1);
  const nodeParent = new Int32Array(rows + 2).fill(-1);
  const nodeFunction = new Int32Array(rows + 2).fill(-1);
  const rowNode = new Int32Array(rows);
  let nodes = 1;
  for (let row = 0; row < rows; row++) {
    const up = parent[row]! < 0 ? 0 : rowNode[parent[row]!]!;
    const code = ofFrame[frame[row]!]!;
    let slot = (Math.imul(up, 0x9e3779b1) ^ Math.imul(code + 1, 0x85ebca6b)) & mask;
    for (;;) {
      const node = slots[slot]!;
      if (node === 0) {
        slots[slot] = nodes;
        nodeParent[nodes] = up;
        nodeFunction[nodes] = code;
        rowNode[row] = nodes++;
        break;
      }
      if (nodeParent[node] === up && nodeFunction[node] === code) {
        rowNode[row] = node;
        break;
      }
      slot = (slot + 1) & mask;
    }
  }

  const { stack } = profile.samples;
  const sampleNode = new Int32Array(stack.length);
  let noFrames = -1;
  for (let at = 0; at < stack.length; at++) {
    if (stack[at]! >= 0) {
      sampleNode[at] = rowNode[stack[at]!]!;
      continue;
    }
    if (noFrames < 0) {
      noFrames = nodes++;
      nodeParent[noFrames] = 0;
      nodeFunction[noFrames] = functions.name.push(noFramesName) - 1;
      functions.object.push('');
      functions.kind.push(unknownKind);
    }
    sampleNode[at] = noFrames;
  }
  return {
    functions,
    nodeParent: nodeParent.slice(0, nodes),
    nodeFunction: nodeFunction.slice(0, nodes),
    ...heaviestFrames(profile, rowNode, nodes),
    sampleNode,
  };
}

function nameFunctions(profile: Profile): { functions: Functions; ofFrame: Int32Array } {
  const { strings, frames } = profile;
  const functions: Functions = { name: [], object: [], kind: [] };
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

/** For each node the frame of its heaviest row, and how many rows it has. */
function heaviestFrames(profile: Profile, rowNode: Int32Array, nodes: number) {
  const { parent, frame } = profile.stacks;
  const { stack, weight } = profile.samples;
  const rowWeight = new Float64Array(parent.length);
  for (let at = 0; at < stack.length; at++) {
    if (stack[at]! >= 0) rowWeight[stack[at]!]! += weight[at]!;
  }
  const nodeFrame = new Int32Array(nodes).fill(-1);
  const nodeLines = new Int32Array(nodes);
  const best = new Float64Array(nodes).fill(-1);
  for (let row = parent.length - 1; row >= 0; row--) {
    if (parent[row]! >= 0) rowWeight[parent[row]!]! += rowWeight[row]!;
    const node = rowNode[row]!;
    nodeLines[node]! += 1;
    if (rowWeight[row]! >= best[node]!) {
      best[node] = rowWeight[row]!;
      nodeFrame[node] = frame[row]!;
    }
  }
  return { nodeFrame, nodeLines };
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
// Search over functions: a regular expression, or plain text where it is not a valid one.

import type { Layout } from './layout.js';
import type { CallTree, Functions } from './tree.js';
import { nanoseconds, sampleCount, type Nanoseconds, type SampleCount } from './units.js';

export interface Search {
  query: string;
  /** Why the query is taken as plain text, undefined if it is a valid regular expression. */
  invalid?: string;
  /** 1 for each function whose name or object matches. */
  matches: Uint8Array;
  /** How many names match: functions, and processes or threads where stacks are grouped by them. */
  functions: number;
}

/**
 * Matches names and objects, ignoring case unless the query has an upper-case letter; undefined for an empty query.
 */
export function search(functions: Functions, query: string): Search | undefined {
  if (query === '') return undefined;
  const flags = /\p{Lu}/u.test(query.replace(/\\./g, '')) ? '' : 'i';
  let pattern: RegExp;
  let invalid: string | undefined;
  try {
    pattern = new RegExp(query, flags);
  } catch (error) {
    invalid = (error as Error).message.replace(/^.*:\s*/, '').toLowerCase();
    pattern = new RegExp(literal(query), flags);
  }
  const matches = new Uint8Array(functions.name.length);
  let found = 0;
  // Objects are few and functions are many: each distinct object is tried once.
  const objects = new Map<string, boolean>();
  for (let code = 0; code < matches.length; code++) {
    const object = functions.object[code]!;
    let hit = pattern.test(functions.name[code]!);
    if (!hit) {
      const known = objects.get(object);
      hit = known ?? pattern.test(object);
      if (known === undefined) objects.set(object, hit);
    }
    if (hit) {
      matches[code] = 1;
      found += 1;
    }
  }
  return { query, matches, functions: found, ...(invalid === undefined ? {} : { invalid }) };
}

/** The query that finds exactly this name (or, of a very long one, all names that start like it). */
export function exactly(name: string): string {
  const longest = 160;
  return name.length <= longest ? `^${literal(name)}$` : `^${literal(name.slice(0, longest))}`;
}

function literal(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
}

/** For each box how many boxes before it match: whether a range of boxes has a match is then one subtraction. */
export function countMatches(layout: Layout, tree: CallTree, found: Search): Int32Array {
  const before = new Int32Array(layout.size + 1);
  for (let box = 0; box < layout.size; box++) {
    const code = tree.nodeFunction[layout.node[box]!]!;
    before[box + 1] = before[box]! + (code >= 0 ? found.matches[code]! : 0);
  }
  return before;
}

/**
 * Time and samples of the boxes in the subtree of `within` that match. A match inside a match is counted once: the
 * outermost box stands for all of it.
 */
export function matched(
  layout: Layout,
  tree: CallTree,
  found: Search,
  within: number,
): { time: Nanoseconds; samples: SampleCount } {
  let time = 0;
  let samples = 0;
  // Below a zoomed box that matches, or one of whose callers does, everything is matched.
  for (let box = within; box >= 0; box = layout.parent[box]!) {
    const code = tree.nodeFunction[layout.node[box]!]!;
    if (code >= 0 && found.matches[code]) {
      return { time: nanoseconds(layout.total[within]!), samples: sampleCount(layout.totalCount[within]!) };
    }
  }
  let box = within;
  while (box < layout.end[within]!) {
    const code = tree.nodeFunction[layout.node[box]!]!;
    if (code >= 0 && found.matches[code]) {
      time += layout.total[box]!;
      samples += layout.totalCount[box]!;
      box = layout.end[box]!;
    } else {
      box += 1;
    }
  }
  return { time: nanoseconds(time), samples: sampleCount(samples) };
}

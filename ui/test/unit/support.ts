// SPDX-License-Identifier: Apache-2.0 OR MIT
import { readProfile, type Profile } from '../../src/profile/data.js';
import { buildLayout, type Layout } from '../../src/profile/layout.js';
import { buildTree, type CallTree, type Grouping } from '../../src/profile/tree.js';

export interface Opened {
  profile: Profile;
  tree: CallTree;
  layout: Layout;
}

export function opened(page: unknown, shown?: Uint8Array, grouping?: Grouping): Opened {
  const profile = readProfile(JSON.stringify(page));
  const tree = buildTree(profile, grouping);
  return { profile, tree, layout: buildLayout(profile, tree, shown) };
}

export function nameOf({ tree, layout }: Opened, box: number): string {
  const code = tree.nodeFunction[layout.node[box]!]!;
  return code < 0 ? 'all' : tree.functions.name[code]!;
}

/** The box at the end of a path of names below the root. */
export function find(page: Opened, ...path: string[]): number {
  let box = 0;
  for (const name of path) {
    let child = box + 1;
    while (child < page.layout.end[box]! && nameOf(page, child) !== name) child = page.layout.end[child]!;
    if (child >= page.layout.end[box]!) throw new Error(`no ${name} in ${nameOf(page, box)}`);
    box = child;
  }
  return box;
}

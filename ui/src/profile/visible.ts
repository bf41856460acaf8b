// SPDX-License-Identifier: Apache-2.0 OR MIT
// Which boxes a picture of so many pixels can show. Work is proportional to what is drawn, not to the profile.

import type { Layout } from './layout.js';

/** A window on the layout: times at its left and right edge, rows at its top and (exclusive) bottom, width in pixels. */
export interface Viewport {
  left: number;
  right: number;
  firstRow: number;
  lastRow: number;
  pixels: number;
}

/** Reused between pictures: at 60 pictures per second, allocating would be the most expensive part. */
export class VisibleBoxes {
  size = 0;
  box = new Int32Array(4096);
  /** Pixels, clipped to the window. */
  x = new Float32Array(4096);
  width = new Float32Array(4096);
  /** 1 if the entry stands for `box` and all its lighter siblings, which are too narrow one by one. */
  merged = new Uint8Array(4096);

  push(box: number, x: number, width: number, merged: 0 | 1): void {
    if (this.size === this.box.length) this.grow();
    this.box[this.size] = box;
    this.x[this.size] = x;
    this.width[this.size] = width;
    this.merged[this.size++] = merged;
  }

  private grow(): void {
    const larger = <T extends Int32Array | Float32Array | Uint8Array>(old: T, fresh: T): T => {
      fresh.set(old);
      return fresh;
    };
    const length = this.box.length * 2;
    this.box = larger(this.box, new Int32Array(length));
    this.x = larger(this.x, new Float32Array(length));
    this.width = larger(this.width, new Float32Array(length));
    this.merged = larger(this.merged, new Uint8Array(length));
  }
}

/** Narrower than this, in pixels, a box is not drawn by itself. */
export const narrowest = 0.5;

/** Collects into `into` what the window shows, caller before callee, left to right. */
export function collectVisible(layout: Layout, view: Viewport, into: VisibleBoxes): void {
  into.size = 0;
  const { start, total, end, depth, parent, size } = layout;
  const scale = view.pixels / (view.right - view.left);
  if (!(scale > 0) || !Number.isFinite(scale)) return;
  // Right edge of what is painted already, per row: two boxes of half a pixel share one pixel, and one is enough.
  const painted = new Float32Array(layout.maxDepth + 2).fill(-1);
  let box = 0;
  while (box < size) {
    const level = depth[box]!;
    const from = start[box]!;
    const to = from + total[box]!;
    if (level >= view.lastRow || to <= view.left) {
      box = end[box]!;
      continue;
    }
    if (from >= view.right) {
      // Everything after it among its siblings lies even further right.
      box = parent[box]! < 0 ? size : end[parent[box]!]!;
      continue;
    }
    const x0 = Math.max(0, (from - view.left) * scale);
    const x1 = Math.min(view.pixels, (to - view.left) * scale);
    if (total[box]! * scale < narrowest) {
      // Siblings are sorted: all that follow are narrower still. Their sum may be wide enough to be seen.
      const up = parent[box]!;
      const all = up < 0 ? to : start[up]! + total[up]! - layout.self[up]!;
      const right = Math.min(view.pixels, (all - view.left) * scale);
      if (level >= view.firstRow && right - x0 >= narrowest) into.push(box, x0, right - x0, 1);
      box = up < 0 ? size : end[up]!;
      continue;
    }
    if (x1 - x0 < 1 && x1 <= painted[level]!) {
      box = end[box]!;
      continue;
    }
    if (level >= view.firstRow) into.push(box, x0, x1 - x0, 0);
    painted[level] = Math.ceil(x1);
    box += 1;
  }
}

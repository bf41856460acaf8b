// SPDX-License-Identifier: Apache-2.0 OR MIT
// Paints the visible part of the layout onto a canvas.

import { collectVisible, VisibleBoxes } from '../profile/visible.js';
import { fillOf, type Palette } from './palette.js';
import type { State } from './state.js';
import type { Labels } from './text.js';

export const rowHeight = 20;
export const rowGap = 1;
const textRoom = 26; // no label in anything narrower, in pixels

export interface Picture {
  /** Times at the left and right edge. */
  left: number;
  right: number;
  /** CSS pixels. */
  width: number;
  height: number;
  scroll: number;
  hover: number;
  focused: boolean;
}

export class Painter {
  private readonly visible = new VisibleBoxes();
  private fillOfCode: Uint8Array;
  private byFill: number[][] = [];

  constructor(private readonly state: State) {
    this.fillOfCode = fills(state);
    state.on((change) => {
      if (change === 'layout' && this.fillOfCode.length !== state.tree.functions.name.length) this.fillOfCode = fills(state);
    });
  }

  /** Top of a row in CSS pixels, given what is scrolled away. */
  top(depth: number, picture: Picture): number {
    const { layout, direction } = this.state;
    const rows = layout.maxDepth + 1;
    // Flames stand on the ground: a low one does not hang at the top of a high window.
    const ground = Math.max(picture.height + picture.scroll, rows * rowHeight);
    const fromTop = direction === 'icicle' ? depth * rowHeight : ground - (depth + 1) * rowHeight;
    return fromTop - picture.scroll;
  }

  /** The depth at a height, which may lie outside the layout. */
  depthAt(y: number, picture: Picture): number {
    if (this.state.direction === 'icicle') return Math.floor((y + picture.scroll) / rowHeight);
    return Math.floor((this.top(0, picture) + rowHeight - y) / rowHeight);
  }

  paint(context: CanvasRenderingContext2D, picture: Picture, colours: Palette, labels: Labels): number {
    const { state, visible } = this;
    const { layout } = state;
    const depths = [this.depthAt(0, picture), this.depthAt(picture.height, picture)];
    collectVisible(
      layout,
      {
        left: picture.left,
        right: picture.right,
        firstRow: Math.max(0, Math.min(...depths)),
        lastRow: Math.max(...depths) + 1,
        pixels: picture.width,
      },
      visible,
    );
    context.fillStyle = colours.background;
    context.fillRect(0, 0, picture.width, picture.height);
    this.sortByFill(colours);
    const zoomDepth = layout.depth[state.zoom]!;
    const height = rowHeight - rowGap;
    const searching = state.search !== undefined;
    for (let fill = 0; fill < this.byFill.length; fill++) {
      const entries = this.byFill[fill]!;
      if (entries.length === 0) continue;
      context.fillStyle = this.colour(fill, colours);
      for (const at of entries) {
        const box = visible.box[at]!;
        const dim = layout.depth[box]! < zoomDepth || (searching && fill < colours.fills.length + 1);
        if (dim) context.globalAlpha = 0.5;
        const width = visible.width[at]!;
        // A gap between neighbours, which gives way where boxes get too narrow for it.
        const gap = width > 3 ? 1 : width > 1.5 ? 0.5 : 0;
        context.fillRect(visible.x[at]!, this.top(layout.depth[box]!, picture), Math.max(0.5, width - gap), height);
        if (dim) context.globalAlpha = 1;
      }
    }
    this.writeLabels(context, picture, colours, labels, zoomDepth);
    this.outline(context, picture, colours);
    return visible.size;
  }

  /** Groups entries by colour: changing the fill is dearer than filling. After the kinds: root, merged, merged with a match, matched. */
  private sortByFill(colours: Palette): void {
    const { visible, state } = this;
    const groups = colours.fills.length + 4;
    if (this.byFill.length !== groups) this.byFill = Array.from({ length: groups }, () => []);
    for (const group of this.byFill) group.length = 0;
    for (let at = 0; at < visible.size; at++) {
      const code = state.codeOf(visible.box[at]!);
      let fill: number;
      if (visible.merged[at]) fill = this.mergedMatch(visible.box[at]!) ? groups - 2 : groups - 3;
      else if (code >= 0 && state.search?.matches[code]) fill = groups - 1;
      else if (code < 0 || code >= state.tree.functions.firstGroup) fill = groups - 4;
      else fill = this.fillOfCode[code]!;
      this.byFill[fill]!.push(at);
    }
  }

  /** Whether there is a match among the merged siblings from `box` on, or below them. */
  private mergedMatch(box: number): boolean {
    const { matchesBefore, layout } = this.state;
    return matchesBefore !== undefined && matchesBefore[layout.end[layout.parent[box]!]!]! > matchesBefore[box]!;
  }

  private colour(fill: number, colours: Palette): string {
    return colours.fills[fill] ?? [colours.root, colours.merged, colours.mergedMatch, colours.match][fill - colours.fills.length]!;
  }

  private writeLabels(
    context: CanvasRenderingContext2D,
    picture: Picture,
    colours: Palette,
    labels: Labels,
    zoomDepth: number,
  ): void {
    const { visible, state } = this;
    context.font = labels.font;
    context.textBaseline = 'middle';
    context.direction = 'ltr';
    for (let at = 0; at < visible.size; at++) {
      const width = visible.width[at]!;
      if (width < textRoom) continue;
      const box = visible.box[at]!;
      if (visible.merged[at]) {
        const text = labels.fit('[frames too narrow to draw]', width - 9);
        context.fillStyle = colours.mergedText;
        context.fillText(text, visible.x[at]! + 4, this.top(state.layout.depth[box]!, picture) + (rowHeight - rowGap) / 2 + 0.5);
        continue;
      }
      const code = state.codeOf(box);
      const text = labels.fit(code < 0 ? rootLabel(state) : state.nameOf(box), width - 9);
      if (text === '') continue;
      const isMatch = code >= 0 && state.search?.matches[code];
      context.fillStyle = isMatch ? colours.matchText : colours.text;
      const dim = state.layout.depth[box]! < zoomDepth || (state.search !== undefined && !isMatch);
      if (dim) context.globalAlpha = 0.75;
      context.fillText(text, visible.x[at]! + 4, this.top(state.layout.depth[box]!, picture) + (rowHeight - rowGap) / 2 + 0.5);
      if (dim) context.globalAlpha = 1;
    }
  }

  private outline(context: CanvasRenderingContext2D, picture: Picture, colours: Palette): void {
    const frame = (box: number, thickness: number) => {
      if (box < 0) return;
      const { layout } = this.state;
      const scale = picture.width / (picture.right - picture.left);
      const x0 = Math.max(0, (layout.start[box]! - picture.left) * scale);
      const x1 = Math.min(picture.width, (layout.start[box]! + layout.total[box]! - picture.left) * scale);
      if (x1 < x0) return;
      context.strokeStyle = colours.outline;
      context.lineWidth = thickness;
      const y = this.top(layout.depth[box]!, picture);
      const inset = thickness / 2;
      context.strokeRect(x0 + inset, y + inset, Math.max(1, x1 - x0 - thickness - 1), rowHeight - rowGap - thickness);
    };
    frame(picture.hover, 1);
    if (picture.focused || this.state.selectedBy === 'key') frame(this.state.selected, 2);
  }
}

/** The fill of each function. */
function fills({ tree }: State): Uint8Array {
  return Uint8Array.from(tree.functions.name, (name, code) => fillOf(tree.functions.kind[code]!, name));
}

function rootLabel(state: State): string {
  return state.filtered ? `all · ${state.shownInWords()}` : 'all';
}

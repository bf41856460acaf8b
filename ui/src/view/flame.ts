// SPDX-License-Identifier: Apache-2.0 OR MIT
// The flame graph: a canvas in a box that scrolls, with pointer and keys.

import { Camera } from '../profile/camera.js';
import { boxAt, firstChild, neighbour } from '../profile/layout.js';
import { narrowest } from '../profile/visible.js';
import { h, oncePerFrame } from './dom.js';
import { Painter, rowHeight, type Picture } from './paint.js';
import { palette, type Palette } from './palette.js';
import type { State } from './state.js';
import { Labels } from './text.js';
import { isDark } from './theme.js';
import type { Tooltip } from './tooltip.js';

const font = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif';
const calm = window.matchMedia('(prefers-reduced-motion: reduce)');

export class FlameView {
  readonly element: HTMLElement;
  private readonly canvas: HTMLCanvasElement;
  private readonly spacer: HTMLElement;
  private readonly context: CanvasRenderingContext2D;
  private readonly painter: Painter;
  private readonly camera: Camera;
  private readonly draw: () => void;
  private colours: Palette;
  private labels: Labels;
  private hover = -1;
  private width = 0;
  private height = 0;

  constructor(
    private readonly state: State,
    private readonly tooltip: Tooltip,
  ) {
    this.canvas = h('canvas', {
      tabindex: 0,
      role: 'application',
      id: 'flame',
      'aria-label': 'Flame graph. Arrow keys move between frames, Enter zooms, Escape zooms out. The call tree beside it has the same content.',
      'aria-roledescription': 'flame graph',
    });
    this.spacer = h('div', { class: 'spacer' });
    this.element = h('div', { class: 'flame' }, this.canvas, this.spacer);
    this.context = this.canvas.getContext('2d', { alpha: false })!;
    this.painter = new Painter(state);
    this.colours = palette(isDark());
    this.labels = new Labels(this.context, font);
    this.camera = new Camera(this.viewOf(0));
    this.draw = oncePerFrame((now) => this.paint(now));
    this.listen();
    state.on((change) => {
      if (change === 'layout') {
        this.hover = -1;
        this.camera.jump(this.viewOf(state.zoom));
        this.resize();
      } else if (change === 'zoom') {
        this.aim();
      } else if (change === 'theme') {
        this.colours = palette(isDark());
      } else if (change === 'direction') {
        this.resize();
        this.element.scrollTop = state.direction === 'flame' ? this.element.scrollHeight : 0;
      } else if (change === 'selection' && state.selectedBy === 'key') {
        this.reveal(state.selected);
        this.showSelected();
      }
      this.draw();
    });
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  focus(): void {
    this.canvas.focus();
  }

  /** Draws at once; used for the first picture and for printing. */
  drawNow(): void {
    this.resize();
    this.paint(performance.now());
  }

  private viewOf(box: number) {
    const { start, total } = this.state.layout;
    return { left: start[box]!, right: start[box]! + Math.max(total[box]!, 1) };
  }

  private aim(): void {
    const view = this.viewOf(this.state.zoom);
    if (calm.matches) this.camera.jump(view);
    else this.camera.aim(view, performance.now());
    this.reveal(this.state.zoom);
    this.tooltip.hide();
    this.hover = -1;
  }

  private resize(): void {
    // The window's device pixel ratio changes when it moves to another screen or the page is zoomed.
    const ratio = window.devicePixelRatio || 1;
    this.width = this.element.clientWidth;
    this.height = this.element.clientHeight;
    const rows = this.state.layout.maxDepth + 1;
    this.spacer.style.height = `${Math.max(rows * rowHeight, this.height)}px`;
    const [width, height] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.canvas.style.width = `${this.width}px`;
      this.canvas.style.height = `${this.height}px`;
      this.canvas.style.marginBottom = `${-this.height}px`;
    }
    this.draw();
  }

  private picture(now: number): Picture {
    const { left, right } = this.camera.at(now);
    return {
      left,
      right,
      width: this.width,
      height: this.height,
      scroll: this.element.scrollTop,
      hover: this.hover,
      focused: document.activeElement === this.canvas,
    };
  }

  private paint(now: number): void {
    if (this.width === 0 || this.height === 0) return;
    const ratio = this.canvas.width / this.width;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.painter.paint(this.context, this.picture(now), this.colours, this.labels);
    if (this.camera.moving(now)) this.draw();
  }

  /** Scrolls until the row of `box` can be seen, with a little of what is above and below it. */
  private reveal(box: number): void {
    if (box < 0) return;
    const picture = this.picture(performance.now());
    const top = this.painter.top(this.state.layout.depth[box]!, picture);
    const margin = Math.min(rowHeight * 3, this.height / 3);
    if (top < margin) this.element.scrollTop += top - margin;
    else if (top + rowHeight > this.height - margin) this.element.scrollTop += top + rowHeight - this.height + margin;
  }

  private boxUnder(event: MouseEvent): number {
    const bounds = this.canvas.getBoundingClientRect();
    const picture = this.picture(performance.now());
    const x = (event.clientX - bounds.left) / this.width;
    const depth = this.painter.depthAt(event.clientY - bounds.top, picture);
    if (depth < 0 || x < 0 || x >= 1) return -1;
    const { layout } = this.state;
    const box = boxAt(layout, picture.left + x * (picture.right - picture.left), depth);
    // Below frames that are too narrow to draw nothing is drawn, so nothing is there to point at.
    return box > 0 && this.tooNarrow(layout.parent[box]!) ? -1 : box;
  }

  private tooNarrow(box: number): boolean {
    const { left, right } = this.camera.target;
    return (this.state.layout.total[box]! / (right - left)) * this.width < narrowest;
  }

  private listen(): void {
    const { canvas, state } = this;
    canvas.addEventListener('mousemove', (event) => {
      const box = this.boxUnder(event);
      if (box !== this.hover) {
        this.hover = box;
        this.draw();
      }
      canvas.style.cursor = box >= 0 ? 'pointer' : 'default';
      if (box >= 0) this.tooltip.show(box, event.clientX, event.clientY, this.tooNarrow(box));
      else this.tooltip.hide();
    });
    canvas.addEventListener('mouseleave', () => {
      this.hover = -1;
      this.tooltip.hide();
      this.draw();
    });
    canvas.addEventListener('click', (event) => {
      const box = this.boxUnder(event);
      if (box < 0) return;
      state.select(box, 'pointer');
      state.zoomTo(box);
    });
    canvas.addEventListener('keydown', (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.altKey && this.key(event.key)) event.preventDefault();
    });
    canvas.addEventListener('focus', this.draw);
    canvas.addEventListener('blur', () => {
      this.tooltip.hide();
      this.draw();
    });
    this.element.addEventListener('scroll', () => {
      this.tooltip.hide();
      this.draw();
    });
  }

  /** Whether the key meant something. */
  private key(key: string): boolean {
    const { state } = this;
    const { layout } = state;
    const inward = state.direction === 'icicle' ? 'ArrowDown' : 'ArrowUp';
    const outward = state.direction === 'icicle' ? 'ArrowUp' : 'ArrowDown';
    const at = state.selected;
    const go = (box: number) => {
      if (box >= 0) state.select(box, 'key');
      return true;
    };
    if (key.startsWith('Arrow') && at < 0) return go(state.zoom);
    switch (key) {
      case inward:
        // From a caller above the zoomed box there is only one way in that can be seen.
        return go(at < state.zoom && layout.end[at]! > state.zoom ? this.towardsZoom(at) : firstChild(layout, at));
      case outward:
        return go(layout.parent[at]!);
      case 'ArrowRight':
        return go(neighbour(layout, at, 1, state.zoom));
      case 'ArrowLeft':
        return go(neighbour(layout, at, -1, state.zoom));
      case 'Home':
        return go(state.zoom);
      case 'Enter':
      case ' ':
        if (at >= 0) state.zoomTo(at);
        return true;
      case 'Backspace':
        state.zoomTo(Math.max(0, layout.parent[state.zoom]!));
        return true;
      default:
        return false;
    }
  }

  private towardsZoom(box: number): number {
    let at = this.state.zoom;
    while (this.state.layout.parent[at] !== box) at = this.state.layout.parent[at]!;
    return at;
  }

  private showSelected(): void {
    const { layout, selected } = this.state;
    if (selected < 0) return;
    const { left, right } = this.camera.target;
    const bounds = this.canvas.getBoundingClientRect();
    const scale = this.width / (right - left);
    const x = Math.min(Math.max((layout.start[selected]! - left) * scale, 0), this.width - 20);
    const y = this.painter.top(layout.depth[selected]!, this.picture(performance.now()));
    this.tooltip.show(selected, bounds.left + x + 8, bounds.top + y + rowHeight - 6);
  }
}

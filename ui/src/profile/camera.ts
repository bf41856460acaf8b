// SPDX-License-Identifier: Apache-2.0 OR MIT
// The way from one view of the layout to another. Knows no clock: the time comes in.

export interface View {
  left: number;
  right: number;
}

export class Camera {
  private from: View;
  private to: View;
  private since = 0;

  constructor(
    view: View,
    /** Length of a move, in ms. */
    readonly moveMs = 260,
  ) {
    this.from = this.to = { ...view };
  }

  /** Where the camera ends up. */
  get target(): View {
    return this.to;
  }

  jump(view: View): void {
    this.from = this.to = { ...view };
  }

  /** Starts a move at `now`, from wherever the camera is. */
  aim(view: View, now: number): void {
    this.from = this.at(now);
    this.to = { ...view };
    this.since = now;
  }

  moving(now: number): boolean {
    return this.from !== this.to && now < this.since + this.moveMs;
  }

  /**
   * The view at `now`. The width changes by equal factors in equal times: zooming a thousandfold in equal steps of
   * pixels would stand still and then leap. The edges follow the width on straight lines.
   */
  at(now: number): View {
    if (!this.moving(now)) return this.to;
    const x = Math.max(0, (now - this.since) / this.moveMs);
    const eased = x < 0.5 ? 4 * x * x * x : 1 - (2 - 2 * x) ** 3 / 2;
    const w0 = this.from.right - this.from.left;
    const w1 = this.to.right - this.to.left;
    const ratio = w1 / w0;
    const part = !(Math.abs(Math.log(ratio)) > 1e-6) ? eased : (1 - ratio ** eased) / (1 - ratio);
    return {
      left: this.from.left + (this.to.left - this.from.left) * part,
      right: this.from.right + (this.to.right - this.from.right) * part,
    };
  }
}

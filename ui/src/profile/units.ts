// SPDX-License-Identifier: Apache-2.0 OR MIT
// Units as types: a time and a number of samples are both numbers, but one cannot be passed for the other.

declare const unit: unique symbol;
type In<U extends string> = number & { readonly [unit]: U };

/** CPU time (or, where the name says so, wall time) in nanoseconds. */
export type Nanoseconds = In<'ns'>;
/** A number of samples. */
export type SampleCount = In<'samples'>;
/** Memory in bytes. */
export type Bytes = In<'bytes'>;
/** A part of a whole, 0 to 1. */
export type Share = In<'share'>;

export const nanoseconds = (n: number): Nanoseconds => n as Nanoseconds;
export const sampleCount = (n: number): SampleCount => n as SampleCount;
export const bytes = (n: number): Bytes => n as Bytes;

/** `part / whole`; 0 of an empty whole. Both must have the same unit. */
export function share<U extends Nanoseconds | SampleCount>(part: U, whole: NoInfer<U>): Share {
  return (whole > 0 ? part / whole : 0) as Share;
}

const steps: readonly (readonly [number, string])[] = [
  [1e9, 's'],
  [1e6, 'ms'],
  [1e3, 'µs'],
];

/** Three significant digits with the unit that fits: `412 ns`, `3.41 µs`, `9.90 s`, `1,234 s`; `0` is only nothing. */
export function formatTime(time: Nanoseconds): string {
  if (time === 0) return '0';
  for (const [size, name] of steps) {
    // 999.95 µs would print as `1000 µs`: the next unit starts a little below its size.
    if (time >= size * 0.9995) return `${digits(time / size)} ${name}`;
  }
  return `${time >= 99.5 || Number.isInteger(time) ? Math.round(time) : digits(time)} ns`;
}

/** `1,234,567`: whole numbers in full, so that sums can be checked by eye. */
export function formatCount(count: SampleCount): string {
  return grouped(Math.round(count));
}

/** `41.5 %`; below 1 % two digits that say something (`0.013 %`); `0 %` is only nothing. */
export function formatShare(part: Share): string {
  return formatPercent(part * 100);
}

/** As {@link formatShare}, of a number that already is in percent. */
export function formatPercent(percent: number): string {
  if (percent === 0) return '0 %';
  if (percent >= 99.95) return `${grouped(Math.round(percent))} %`;
  if (percent >= 0.995) return `${percent.toFixed(1)} %`;
  if (percent >= 0.0005) return `${percent.toPrecision(2)} %`;
  return '< 0.001 %';
}

/** `512 B`, `4.00 KiB`, `23.4 MiB`. */
export function formatBytes(memory: Bytes): string {
  if (memory < 1024) return `${memory} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let size = memory / 1024;
  let at = 0;
  while (size >= 999.5 && at < units.length - 1) {
    size /= 1024;
    at += 1;
  }
  return `${digits(size)} ${units[at]}`;
}

/**
 * The interval that holds the true share with 95 % probability, if `hits` of `all` samples were seen.
 * Wilson's formula: it stays inside 0 to 1 and works for few samples.
 */
export function interval(hits: SampleCount, all: SampleCount): readonly [Share, Share] {
  if (all <= 0) return [0 as Share, 1 as Share];
  const z = 1.96;
  const p = Math.min(1, hits / all);
  const middle = p + (z * z) / (2 * all);
  const spread = z * Math.sqrt((p * (1 - p)) / all + (z * z) / (4 * all * all));
  const scale = 1 + (z * z) / all;
  return [Math.max(0, (middle - spread) / scale) as Share, Math.min(1, (middle + spread) / scale) as Share];
}

function digits(n: number): string {
  if (n >= 999.5) return grouped(Math.round(n));
  return n.toPrecision(3);
}

function grouped(n: number): string {
  return String(n).replace(/\B(?=(\d{3})+$)/g, ',');
}

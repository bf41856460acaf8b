// SPDX-License-Identifier: Apache-2.0 OR MIT
// The ledger in rows: what became of each firing, and what the run cost. Words and numbers only.

import { complete, type Profile } from './data.js';
import { baseName } from './names.js';
import { bytes, formatCount, formatTime, nanoseconds, sampleCount, type Bytes, type Nanoseconds, type SampleCount } from './units.js';

export interface AccountRow {
  name: string;
  count: SampleCount;
  meaning: string;
}

export interface Accounts {
  fired: SampleCount;
  /** The five outcomes, in the order of the identity. */
  parts: AccountRow[];
  reasons: AccountRow[];
  /** How recorded stacks ended, only what occurred. */
  endings: AccountRow[];
  /** Whether each firing is accounted for exactly once. */
  balanced: boolean;
}

export function accounts(profile: Profile): Accounts {
  const a = profile.accounting;
  const row = (name: string, count: number, meaning: string) => ({ name, count: sampleCount(count || 0), meaning });
  const parts = [
    row('recorded', a.recorded, 'in this profile'),
    row('filtered', a.filtered, 'not asked for: another process, an idle CPU'),
    row('throttled', a.throttled, 'held back to keep the budget'),
    row('lost', a.lost, 'no room in a buffer'),
    row('failed', a.failed, 'no sample could be taken'),
  ];
  const reasons = Object.entries(a.reasons ?? {}).map(([name, count]) => row(words(name), count, ''));
  const ended = profile.outcomes.map(() => 0);
  profile.samples.outcome.forEach((outcome, at) => (ended[outcome]! += profile.samples.count[at]!));
  const sum = (rows: AccountRow[]) => rows.reduce((all, { count }) => all + count, 0);
  return {
    fired: sampleCount(a.fired),
    parts,
    reasons,
    endings: profile.outcomes.map((o, at) => row(words(o.name), ended[at]!, o.sentence)).filter((r) => r.count > 0),
    balanced: a.fired === sum(parts) && a.failed === sum(reasons),
  };
}

const words = (name: string) => name.replaceAll('_', ' ');

/** Stacks that did not reach their root: one object, one reason. */
export interface DebtRow {
  /** The object's file name, or what stands for it. */
  object: string;
  /** Its path; empty if not known. */
  path: string;
  count: SampleCount;
  why: string;
  detail: string;
  remedy: string;
}

/** Most samples first; samples that the profile's debt leaves out make a row without an object, so that every one is there. */
export function debts(profile: Profile): DebtRow[] {
  const missing = new Map<string, number>();
  profile.samples.outcome.forEach((outcome, at) => {
    if (outcome === complete) return;
    const { name } = profile.outcomes[outcome]!;
    missing.set(name, (missing.get(name) ?? 0) + profile.samples.count[at]!);
  });
  const why = new Map(profile.outcomes.map(({ name, sentence }) => [name, sentence]));
  const rows = profile.debt.map((debt) => {
    const count = Math.min(debt.count, missing.get(debt.outcome) ?? 0);
    missing.set(debt.outcome, (missing.get(debt.outcome) ?? 0) - count);
    return {
      object: baseName(debt.object) || '[unknown]',
      path: debt.object,
      count: sampleCount(count),
      why: why.get(debt.outcome) ?? words(debt.outcome),
      detail: debt.detail,
      remedy: debt.remedy,
    };
  });
  for (const [name, count] of missing) {
    rows.push({ object: '[unknown]', path: '', count: sampleCount(count), why: why.get(name)!, detail: '', remedy: '' });
  }
  return rows.filter((row) => row.count > 0).sort((a, b) => b.count - a.count);
}

export interface CostRow {
  name: string;
  /** Undefined: unknown, which is not zero. */
  time?: Nanoseconds;
  perSample?: Nanoseconds;
  /** Percent of one CPU over the run. */
  percent?: number;
  origin: string;
  /** 0 for a part of the sum, 1 for a part of a part. */
  level: 0 | 1;
}

export interface Price {
  parts: CostRow[];
  total: CostRow;
  /** The part that falls in the run itself, in percent of one CPU. */
  whileRunning: number;
  duration: Nanoseconds;
  /** Wall time from launch to the first sample, and the CPU time that it took; undefined without samples. */
  start?: { wall: Nanoseconds; cpu: Nanoseconds };
  memory: { size: Bytes; origin: string }[];
}

const phaseMeaning: Record<string, string> = {
  start: 'load and attach',
  calibrate: 'measure the price of an interrupt',
  collect: 'read samples while running',
  symbolize: 'find names',
  write: 'write the result',
};

export function price(profile: Profile): Price {
  const { cost, meta, accounting } = profile;
  const row = (name: string, ns: number, origin: string, level: 0 | 1 = 0): CostRow => ({
    name,
    time: nanoseconds(ns),
    ...(accounting.recorded > 0 ? { perSample: nanoseconds(ns / accounting.recorded) } : {}),
    ...(meta.duration_ns > 0 ? { percent: (ns / meta.duration_ns) * 100 } : {}),
    origin,
    level,
  });
  const interrupts: CostRow = cost.interrupt_calibrated
    ? row('interrupts', cost.interrupt_ns, `${formatCount(sampleCount(cost.interrupts))} × ${formatTime(nanoseconds(cost.interrupt_each_ns))}, calibrated in this run`)
    : { name: 'interrupts', origin: 'unknown: not calibrated, counts as 0 in the sum', level: 0 };
  return {
    parts: [
      interrupts,
      row('BPF programs', cost.bpf_ns, "run time, as the kernel's statistics or own clock reads give it"),
      row('user space', cost.user_ns, "CPU time of lightfoot's own process"),
      ...(cost.phases ?? []).map((p) => row(p.phase, p.cpu_ns, phaseMeaning[p.phase] ?? '', 1)),
    ],
    total: { ...row('total', cost.total_ns, ''), percent: cost.percent_of_one_cpu },
    whileRunning: cost.running_percent_of_one_cpu,
    duration: nanoseconds(meta.duration_ns),
    ...(cost.first_sample_wall_ns > 0
      ? { start: { wall: nanoseconds(cost.first_sample_wall_ns), cpu: nanoseconds(cost.first_sample_cpu_ns) } }
      : {}),
    memory: [
      { size: bytes(cost.peak_rss_bytes), origin: 'resident at the peak' },
      { size: bytes(cost.bpf_map_bytes), origin: 'in BPF maps and buffers' },
    ],
  };
}

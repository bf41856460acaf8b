// SPDX-License-Identifier: Apache-2.0 OR MIT
// The profile as it lies in the page, schema `lightfoot.page/1`, checked once so that nobody after has to.

export const schema = 'lightfoot.page/1';

export const kinds = ['native', 'kernel', 'inlined', 'jit', 'unknown', 'python', 'ruby'] as const;
/** Index into {@link kinds}. */
export type Kind = 0 | 1 | 2 | 3 | 4 | 5 | 6;
export const unknownKind: Kind = 4;

/** A way in which recorded stacks end; `name` as in every format, for example `no_rows_yet`. */
export interface Outcome {
  name: string;
  sentence: string;
}
/** Number of the outcome of whole stacks. */
export const complete = 0;

/** Stacks that did not reach their root, by where they ended and why. */
export interface Debt {
  /** Path of the object of the last frame that was found, `[jit]`, `[vdso]`, or empty. */
  object: string;
  /** An {@link Outcome}'s name. */
  outcome: string;
  count: number;
  weight_ns: number;
  detail: string;
  /** What would help. */
  remedy: string;
}

/** The run. Times in ns; `started_unix_ns` has lost its last digits (it exceeds 2^53). */
export interface Meta {
  version: string;
  target: string;
  command_line: string;
  started_unix_ns: number;
  duration_ns: number;
  rate_hz: number;
  period_ns: number;
  clock: string;
  cpus: number;
  kernel: string;
  machine: string;
  kernel_frames: boolean;
  notes: string[];
}

/** `fired = recorded + filtered + throttled + lost + failed`, in samples; `reasons` add up to `failed`. */
export interface Accounting {
  fired: number;
  recorded: number;
  filtered: number;
  throttled: number;
  lost: number;
  failed: number;
  reasons: Record<string, number>;
}

/** The price of the run; `total_ns = interrupt_ns + bpf_ns + user_ns`, all CPU time. */
export interface Cost {
  interrupt_ns: number;
  bpf_ns: number;
  user_ns: number;
  total_ns: number;
  percent_of_one_cpu: number;
  ns_per_sample: number;
  peak_rss_bytes: number;
  bpf_map_bytes: number;
  interrupt_each_ns: number;
  interrupts: number;
  interrupt_calibrated: boolean;
  /** From launch to the first sample, wall time; 0 without samples. */
  first_sample_wall_ns: number;
  /** CPU time of lightfoot until sampling started. */
  first_sample_cpu_ns: number;
  phases: { phase: string; cpu_ns: number }[];
  running_percent_of_one_cpu: number;
}

export interface Thread {
  pid: number;
  tid: number;
  comm: string;
  start_ns: number;
}

/** One entry per distinct frame; texts are indices into {@link Profile.strings}. */
export interface Frames {
  name: Int32Array;
  file: Int32Array;
  /** From 1; 0 if not known. */
  line: Int32Array;
  object: Int32Array;
  kind: Uint8Array;
  note: Int32Array;
}

/** A checked profile: every index points at something. */
export interface Profile {
  meta: Meta;
  strings: string[];
  frames: Frames;
  /** One row is (parent row or -1, frame); parents come before their children. */
  stacks: { parent: Int32Array; frame: Int32Array };
  threads: Thread[];
  /** Equal stacks of one thread, counted. `stack` is a row or -1 (not one frame known). */
  samples: {
    stack: Int32Array;
    thread: Int32Array;
    count: Float64Array;
    weight: Float64Array;
    outcome: Uint8Array;
  };
  /** The position is the number in `samples`. */
  outcomes: Outcome[];
  /** Most samples first. */
  debt: Debt[];
  accounting: Accounting;
  cost: Cost;
}

/** The text is not a profile of this schema; the message says where. */
export class DataError extends Error {}

/** Reads the JSON of the page. @throws DataError */
export function readProfile(text: string): Profile {
  let raw: any;
  try {
    raw = JSON.parse(text);
  } catch (error) {
    throw new DataError(`not JSON: ${(error as Error).message}`);
  }
  if (raw?.schema !== schema) {
    throw new DataError(`made for ${schema}, but the data says ${JSON.stringify(raw?.schema) ?? 'nothing'}`);
  }
  const strings = list(raw.strings, 'strings');
  const frames = columns(raw.frames, 'frames', ['name', 'file', 'line', 'object', 'kind', 'note']);
  const stacks = columns(raw.stacks, 'stacks', ['parent', 'frame']);
  const samples = columns(raw.samples, 'samples', ['stack', 'thread', 'count', 'weight_ns', 'outcome']);
  const threads = list(raw.threads, 'threads') as unknown as Thread[];
  const outcomes = list(raw.outcomes, 'outcomes') as unknown as Outcome[];
  const text_ = (column: string) => indices(frames[column]!, 0, strings.length, `frames.${column}`);
  const parent = indices(stacks.parent!, -1, stacks.parent!.length, 'stacks.parent');
  parent.forEach((row, at) => {
    if (row >= at) throw new DataError(`stacks.parent[${at}] does not come before its child`);
  });
  return {
    meta: { ...(object(raw.meta, 'meta') as unknown as Meta), notes: list(raw.meta.notes ?? [], 'meta.notes') },
    strings,
    frames: {
      name: text_('name'),
      file: text_('file'),
      line: Int32Array.from(frames.line!),
      object: text_('object'),
      kind: Uint8Array.from(indices(frames.kind!, 0, kinds.length, 'frames.kind')),
      note: text_('note'),
    },
    stacks: { parent, frame: indices(stacks.frame!, 0, frames.name!.length, 'stacks.frame') },
    threads,
    samples: {
      stack: indices(samples.stack!, -1, parent.length, 'samples.stack'),
      thread: indices(samples.thread!, 0, threads.length, 'samples.thread'),
      count: amounts(samples.count!, 'samples.count'),
      weight: amounts(samples.weight_ns!, 'samples.weight_ns'),
      outcome: Uint8Array.from(indices(samples.outcome!, 0, outcomes.length, 'samples.outcome')),
    },
    outcomes,
    debt: list(raw.debt, 'debt') as unknown as Debt[],
    accounting: object(raw.accounting, 'accounting') as unknown as Accounting,
    cost: object(raw.cost, 'cost') as unknown as Cost,
  };
}

function object(value: unknown, where: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new DataError(`${where} is missing`);
  return value as Record<string, unknown>;
}

function list(value: unknown, where: string): string[] {
  if (!Array.isArray(value)) throw new DataError(`${where} is not a list`);
  return value;
}

/** A table stored by column: all columns are there and equally long. */
function columns(value: unknown, where: string, names: string[]): Record<string, number[]> {
  const table = object(value, where) as Record<string, number[]>;
  for (const name of names) {
    list(table[name], `${where}.${name}`);
    if (table[name]!.length !== table[names[0]!]!.length) throw new DataError(`${where}.${name} has another length`);
  }
  return table;
}

/** Whole numbers with `low <= n < high`. */
function indices(numbers: number[], low: number, high: number, where: string): Int32Array {
  const result = new Int32Array(numbers.length);
  for (let at = 0; at < numbers.length; at++) {
    const n = numbers[at]!;
    if (!(n >= low && n < high && Number.isInteger(n))) throw new DataError(`${where}[${at}] is ${n}`);
    result[at] = n;
  }
  return result;
}

function amounts(numbers: number[], where: string): Float64Array {
  const result = Float64Array.from(numbers);
  result.forEach((n, at) => {
    if (!(n >= 0 && n < Infinity)) throw new DataError(`${where}[${at}] is ${n}`);
  });
  return result;
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
// Profiles made up for tests, the same on every run: `small` with known shares, `hostile` with dangerous names, `large`
// with as many distinct stacks as asked for, `empty`.

const kindNumbers = { native: 0, kernel: 1, inlined: 2, jit: 3, unknown: 4, python: 5, ruby: 6 };
// Names as the exporter writes them; what they mean comes with the page.
const outcomes = [
  'complete', 'truncated', 'frame_pointer_broken', 'unreadable', 'not_mapped', 'no_rows_yet', 'no_rows', 'unsupported_rule',
  'not_growing', 'register_unknown', 'no_mapping_found',
].map((name) => ({ name, sentence: `meaning of ${name}` }));
const period = 10_000_000; // ns of CPU time per sample

/** Collects stacks into the tables of the schema. */
export class Builder {
  constructor() {
    this.strings = [''];
    this.stringIndex = new Map([['', 0]]);
    this.frames = { name: [], file: [], line: [], object: [], kind: [], note: [] };
    this.frameIndex = new Map();
    this.stacks = { parent: [], frame: [] };
    this.stackIndex = new Map();
    this.threads = [];
    this.samples = { stack: [], thread: [], count: [], weight_ns: [], outcome: [] };
  }

  string(text) {
    let at = this.stringIndex.get(text);
    if (at === undefined) {
      at = this.strings.push(text) - 1;
      this.stringIndex.set(text, at);
    }
    return at;
  }

  /** @param f `name` or { name, file, line, object, kind, note } */
  frame(f) {
    const { name, file = '', line = 0, object = '/usr/bin/demo', kind = 'native', note = '' } = typeof f === 'string' ? { name: f } : f;
    const key = `${name}\0${file}\0${line}\0${object}\0${kind}\0${note}`;
    let at = this.frameIndex.get(key);
    if (at === undefined) {
      at = this.frames.name.push(this.string(name)) - 1;
      this.frames.file.push(this.string(file));
      this.frames.line.push(line);
      this.frames.object.push(this.string(object));
      this.frames.kind.push(kindNumbers[kind]);
      this.frames.note.push(this.string(note));
      this.frameIndex.set(key, at);
    }
    return at;
  }

  row(parent, frame) {
    const key = (parent + 1) * 4194304 + frame;
    let at = this.stackIndex.get(key);
    if (at === undefined) {
      at = this.stacks.parent.push(parent) - 1;
      this.stacks.frame.push(frame);
      this.stackIndex.set(key, at);
    }
    return at;
  }

  thread(pid, tid, comm) {
    return this.threads.push({ pid, tid, comm, start_ns: 1_000_000_000 + tid }) - 1;
  }

  /** @param frames root first; none at all is a sample without a known frame */
  sample(thread, count, frames, outcome = 0) {
    const stack = frames.reduce((parent, f) => this.row(parent, this.frame(f)), -1);
    this.samples.stack.push(stack);
    this.samples.thread.push(thread);
    this.samples.count.push(count);
    this.samples.weight_ns.push(count * period);
    this.samples.outcome.push(outcome);
  }

  page({ target = 'process 4102 (demo)', notes = [], duration_ns = 10_000_000_000, lost = 0, debt = [] } = {}) {
    const recorded = this.samples.count.reduce((a, b) => a + b, 0);
    const cost = {
      interrupt_ns: recorded * 14_200,
      bpf_ns: recorded * 2_310,
      user_ns: 182_400_000,
      interrupt_each_ns: 14_200,
      interrupts: recorded,
      interrupt_calibrated: true,
      first_sample_wall_ns: recorded > 0 ? 90_400_000 : 0,
      first_sample_cpu_ns: recorded > 0 ? 38_400_000 : 0,
      peak_rss_bytes: 24_117_248,
      bpf_map_bytes: 5_308_416,
      phases: [
        { phase: 'start', cpu_ns: 41_200_000 },
        { phase: 'calibrate', cpu_ns: 8_700_000 },
        { phase: 'collect', cpu_ns: 6_300_000 },
        { phase: 'symbolize', cpu_ns: 118_900_000 },
        { phase: 'write', cpu_ns: 7_300_000 },
      ],
    };
    cost.total_ns = cost.interrupt_ns + cost.bpf_ns + cost.user_ns;
    cost.percent_of_one_cpu = (cost.total_ns / duration_ns) * 100;
    cost.running_percent_of_one_cpu = ((cost.interrupt_ns + cost.bpf_ns + 6_300_000) / duration_ns) * 100;
    cost.ns_per_sample = recorded > 0 ? cost.total_ns / recorded : 0;
    const filtered = recorded > 0 ? 412 : 0;
    const failed = recorded > 0 ? 3 : 0;
    return {
      schema: 'lightfoot.page/1',
      meta: {
        version: '0.1.0',
        target,
        command_line: 'lightfoot profile -d 10s -o flame.html -p 4102',
        started_unix_ns: 1_760_000_000_123_456_789,
        duration_ns,
        rate_hz: 99,
        period_ns: period,
        clock: 'cpu-clock',
        cpus: 4,
        kernel: '6.12.48+deb13-amd64',
        machine: 'x86_64',
        kernel_frames: true,
        notes,
      },
      strings: this.strings,
      frames: this.frames,
      stacks: this.stacks,
      threads: this.threads,
      samples: this.samples,
      outcomes,
      debt: debt.map((d) => ({ detail: '', remedy: '', weight_ns: d.count * period, ...d })),
      accounting: {
        fired: recorded + filtered + lost + failed,
        recorded,
        filtered,
        throttled: 0,
        lost,
        failed,
        reasons: failed > 0 ? { no_frames: 2, no_scratch: 1 } : {},
      },
      cost,
    };
  }
}

/** Native code called by an interpreter that native code called, in both languages, with ends of every kind. */
export function languages() {
  const b = new Builder();
  const app = b.thread(51, 51, 'python3');
  const web = b.thread(60, 60, 'puma');
  const py = (name, line) => ({ name, file: '/srv/app/handlers.py', line, object: '/srv/app/handlers.py', kind: 'python' });
  const rb = (name, line) => ({ name, file: '/srv/web/report.rb', line, object: '/srv/web/report.rb', kind: 'ruby' });
  const native = (name, object) => ({ name, object });
  const python = [native('_start', '/usr/bin/python3.11'), native('Py_BytesMain', '/usr/bin/python3.11'), native('_PyEval_EvalFrameDefault', '/usr/bin/python3.11')];
  const json = '/usr/lib/python3.11/lib-dynload/_json.cpython-311-x86_64-linux-gnu.so';
  b.sample(app, 240, [...python, py('<module>', 80), py('serve', 61), py('Handler.handle', 33), native('scanstring_unicode', json)]);
  b.sample(app, 110, [...python, py('<module>', 80), py('serve', 61), py('Handler.handle', 35)]);
  b.sample(app, 60, [...python, py('<module>', 80), py('serve', 64), { name: 'vfs_read', object: '[kernel]', kind: 'kernel' }]);
  const ruby = [native('_start', '/usr/bin/ruby3.1'), native('ruby_run_node', '/usr/lib/libruby-3.1.so.3.1'), native('vm_exec_core', '/usr/lib/libruby-3.1.so.3.1')];
  b.sample(web, 200, [...ruby, rb('<main>', 12), rb('Report#rows', 8), rb('Array#each', 8), rb('block in Report#rows', 9)]);
  b.sample(web, 150, [...ruby, rb('<main>', 12), rb('Report#rows', 8), { name: 'rb_str_concat', object: '/usr/lib/libruby-3.1.so.3.1', kind: 'inlined' }]);
  const nowhere = [{ name: '[libplugin.so+0x1f0]', object: '/opt/vendor/lib/libplugin.so', kind: 'unknown', note: 'no symbol table' }];
  [[6, 130], [2, 40], [5, 25], [1, 15], [3, 10], [4, 8], [7, 6], [8, 3], [9, 2], [10, 1]].forEach(([outcome, count]) => b.sample(web, count, nowhere, outcome));
  const build = 'build it with -fasynchronous-unwind-tables or -fno-omit-frame-pointer';
  return b.page({
    target: 'whole machine',
    debt: [
      { object: '/opt/vendor/lib/libplugin.so', outcome: 'no_rows', count: 100, detail: 'no .eh_frame, no .debug_frame', remedy: build },
      { object: '/opt/vendor/lib/libother.so', outcome: 'no_rows', count: 30, remedy: build },
      { object: '[jit]', outcome: 'frame_pointer_broken', count: 40, remedy: 'Java: -XX:+PreserveFramePointer; elsewhere report it with a file of --save-failed' },
      { object: '/usr/bin/node', outcome: 'no_rows_yet', count: 25, remedy: 'nothing: only the first stacks through a new file are affected' },
      { object: '/opt/<b>evil</b>\u202e.so', outcome: 'truncated', count: 15, detail: '<i>x</i>', remedy: '' },
    ],
  });
}

/** 1,000 samples: `compute` 70 %, `parse` 20 %, `write_out` 10 %; each part ends in code of another kind. */
export function small() {
  const b = new Builder();
  const main = b.thread(4102, 4102, 'demo');
  const worker = b.thread(4102, 4103, 'worker');
  const other = b.thread(4200, 4200, 'helper');
  const start = [{ name: '_start' }, { name: 'main', file: 'src/main.c', line: 40 }];
  const compute = { name: 'compute', file: 'src/compute.c', line: 12 };
  const square = { name: 'square', file: 'src/compute.h', line: 7, kind: 'inlined' };
  b.sample(main, 300, [...start, compute]);
  b.sample(main, 100, [...start, { ...compute, line: 14 }]);
  b.sample(worker, 200, [...start, compute, square]);
  // Recursion: `compute` twice in one stack counts once in its total.
  b.sample(worker, 100, [...start, compute, compute, square]);
  b.sample(main, 120, [...start, { name: 'parse', file: 'src/parse.c', line: 3 }]);
  b.sample(main, 80, [...start, 'parse', { name: 'jit:loop', object: '/tmp/perf-4102.map', kind: 'jit' }], 1);
  b.sample(other, 60, [...start, 'write_out', { name: 'ksys_write', object: '[kernel]', kind: 'kernel' }]);
  b.sample(other, 40, [...start, 'write_out', { name: '[libc.so.6+0x29d90]', object: '/usr/lib/libc.so.6', kind: 'unknown', note: 'no symbol table' }], 2);
  return b.page({ notes: ['Hardware cycles are not available here: the CPU clock was used instead.'], lost: 5 });
}

/** Names that try to be markup, to turn text around, to be endless; every one with 10 samples. */
export const hostileNames = [
  '</script><script>window.hacked=1</script>',
  '<img src=x onerror="window.hacked=1">',
  '<!--<script>',
  '"><svg/onload=window.hacked=1>',
  'javascript:window.hacked=1',
  '${window.hacked=1}{{constructor.constructor("window.hacked=1")()}}',
  'مرحبا_بالعالم::دالة',
  'evil\u202egnp.exe\u202c::run',
  'שלום::עולם',
  '🦀::🔥::日本語の関数',
  'new\nline\ttab\u0000nul\u2028sep',
  '',
  '   ',
  '__proto__',
  'constructor',
  `std::vector<${'std::pair<int, std::basic_string<char>>, '.repeat(130)}>::emplace_back(std::string const&)`,
  'x'.repeat(5000),
  '👩‍👩‍👧‍👦'.repeat(60),
  'a(b[c{d\\',
  '$& $1 $$ /*LIGHTFOOT_PROFILE*/ <!--LIGHTFOOT_TITLE-->',
  '\ud800 lone surrogate',
];

export function hostile() {
  const b = new Builder();
  const thread = b.thread(7, 7, '<b>comm</b>');
  const second = b.thread(7, 8, '\u202ereverse');
  for (const name of hostileNames) {
    b.sample(thread, 10, ['main', { name, file: `/src/${name.slice(0, 300)}.c`, line: 1, object: `/lib/${name.slice(0, 300)}.so`, note: name.slice(0, 50) }]);
  }
  // One deep stack, so that depth is hostile too.
  b.sample(second, 3, ['main', ...Array.from({ length: 4000 }, (_, at) => `deep_${at % 7}`)], 1);
  b.sample(second, 2, [], 3);
  return b.page({ target: '</title><script>window.hacked=1</script> <img src=x onerror=window.hacked=1>', notes: ['<script>window.hacked=1</script> & <b>bold</b>'] });
}

export function empty() {
  const b = new Builder();
  b.thread(9, 9, 'idle');
  return b.page({ target: 'process 9 (idle)' });
}

/** The worst case of {@link large}. */
export const unshared = () => large(100_000, 60);

/** A small generator of numbers in [0, 1), the same everywhere (mulberry32). */
export function numbers(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/**
 * `stacks` distinct stacks of up to 60 frames over 20,000 functions, 64 threads in 8 processes.
 * @param tail how many frames a stack has at most after it left the ones before it: 8 is like a real program, 60 is the
 * worst case, stacks that share next to nothing (2 million rows at 100,000 stacks).
 */
export function large(stacks = 100_000, tail = 8) {
  const b = new Builder();
  const random = numbers(20);
  const objects = ['/usr/bin/server', '/usr/lib/libc.so.6', '/usr/lib/libssl.so.3', '/opt/app/lib/libengine.so', '[kernel]'];
  const words = ['parse', 'read', 'emit', 'walk', 'hash', 'lookup', 'merge', 'encode', 'flush', 'alloc', 'visit', 'poll'];
  const pick = (list) => list[Math.floor(random() * list.length)];
  const functions = Array.from({ length: 20_000 }, (_, at) => {
    const object = pick(objects);
    const kind = object === '[kernel]' ? 'kernel' : random() < 0.25 ? 'inlined' : random() < 0.05 ? 'jit' : 'native';
    const name = `${pick(words)}::${pick(words)}_${pick(words)}<${pick(words)}>::${pick(words)}_${at}`;
    return b.frame({ name, object, kind, file: `src/${pick(words)}/${pick(words)}.rs`, line: 1 + Math.floor(random() * 900) });
  });
  const threads = Array.from({ length: 64 }, (_, at) => b.thread(1000 + (at >> 3) * 100, 1000 + at, `worker-${at}`));
  const seen = new Set();
  // Like real ones, stacks share their callers: at each row the next frame is mostly one that was seen there before,
  // the earlier the likelier.
  const callees = new Map();
  const next = (row) => {
    let known = callees.get(row);
    if (!known) callees.set(row, (known = []));
    if (known.length > 0 && random() > 0.7 / (1 + known.length) ** 1.7) return known[Math.floor(random() ** 3 * known.length)];
    const fresh = b.row(row, functions[Math.floor(random() ** 2 * functions.length)]);
    if (!known.includes(fresh)) known.push(fresh);
    return fresh;
  };
  while (seen.size < stacks) {
    let depth = 5 + Math.floor(random() ** 2 * 55);
    let row = -1;
    for (let at = 0; at < depth; at++) {
      const rows = b.stacks.parent.length;
      row = next(row);
      if (b.stacks.parent.length > rows) depth = Math.min(depth, at + 1 + Math.floor(random() * tail));
    }
    if (seen.has(row)) continue;
    seen.add(row);
    const count = 1 + Math.floor(random() ** 12 * 400);
    b.samples.stack.push(row);
    b.samples.thread.push(threads[Math.floor(random() ** 2 * threads.length)]);
    b.samples.count.push(count);
    b.samples.weight_ns.push(count * period);
    b.samples.outcome.push(random() < 0.02 ? 2 : 0);
  }
  return b.page({ target: 'whole machine', duration_ns: 3_600_000_000_000 });
}

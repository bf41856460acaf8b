// SPDX-License-Identifier: Apache-2.0 OR MIT
// npm run bench: how long 100,000 distinct stacks take to open, and how even zooming is. Prints JSON; fails if opening
// takes more than 2 s at the median of the runs. `large` counts for the gate, `unshared` (20 times as many rows per
// stack) is the worst case and only reported.
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { makePages } from './make-pages.mjs';
import { open, withBrowser } from './browser/browser.mjs';

const runs = Number(process.argv[2] ?? 5);
const gateMs = 2000;
const directory = await mkdtemp(`${tmpdir()}/lightfoot-bench-`);
const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
const rounded = (ms) => Math.round(ms * 10) / 10;
try {
  const files = await makePages(directory, ['large', 'unshared']);
  const report = { schema: 'lightfoot.ui-bench/1', runs, gate_ms: gateMs };
  for (const [name, file] of Object.entries(files)) {
    const opened = [];
    const phases = [];
    let zooms;
    for (let run = 0; run < runs; run++) {
      // A new browser each time: nothing is cached.
      await withBrowser(async (context) => {
        const page = await open(context, file);
        phases.push(await page.evaluate(marks));
        opened.push(phases[run].shown_ms);
        zooms ??= run === runs - 1 ? await page.evaluate(zoomFrames) : undefined;
        report.chromium = context.browser()?.version();
      });
    }
    const middle = phases[opened.indexOf(median(opened))];
    report[name] = {
      page_bytes: (await stat(file)).size,
      open_ms_median: rounded(median(opened)),
      open_ms_max: rounded(Math.max(...opened)),
      phases_ms: Object.fromEntries(Object.entries(middle).map(([k, v]) => [k, rounded(v)])),
      zoom: zooms,
    };
  }
  process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
  if (report.large.open_ms_median > gateMs) {
    process.stderr.write(`100,000 stacks opened in ${report.large.open_ms_median} ms, more than ${gateMs} ms\n`);
    process.exitCode = 1;
  }
} finally {
  await rm(directory, { recursive: true, force: true });
}

/** Times since navigation started, in ms. `first_paint_ms`: when the browser painted the words "Opening the profile". */
function marks() {
  const at = (name) => performance.getEntriesByName(name)[0]?.startTime ?? NaN;
  return {
    read_ms: at('lightfoot-read'),
    built_ms: at('lightfoot-built'),
    drawn_ms: at('lightfoot-drawn'),
    shown_ms: at('lightfoot-shown'),
    first_paint_ms: at('first-contentful-paint'),
  };
}

/** Zooms in along the heaviest path and out again; the time between pictures while it moves, in ms. */
async function zoomFrames() {
  const canvas = document.getElementById('flame');
  const press = (key) => canvas.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  const between = [];
  const work = [];
  const watch = async (forMs) => {
    const until = performance.now() + forMs;
    let last = await new Promise(requestAnimationFrame);
    while (performance.now() < until) {
      const now = await new Promise(requestAnimationFrame);
      between.push(now - last);
      last = now;
      // What the page itself took in this picture: its callback runs in the same frame as this one.
      work.push(performance.now() - now);
    }
  };
  canvas.focus();
  press('ArrowDown');
  for (let zoom = 0; zoom < 8; zoom++) {
    press('ArrowDown');
    press('ArrowDown');
    if (zoom % 2 === 1) press('ArrowRight');
    press('Enter');
    await watch(300);
  }
  press('Escape');
  await watch(300);
  const sorted = (list) => [...list].sort((a, b) => a - b);
  const at = (list, part) => Math.round(sorted(list)[Math.floor((list.length - 1) * part)] * 10) / 10;
  return {
    pictures: between.length,
    between_ms_median: at(between, 0.5),
    between_ms_p95: at(between, 0.95),
    between_ms_max: at(between, 1),
    work_ms_p95: at(work, 0.95),
  };
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
// The page in a real browser. Every test ends by checking that the page asked nobody for anything, logged nothing and
// broke no policy (`page.problems`).
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { after, before, test } from 'node:test';
import { fillPage, page as buildPage } from '../../scripts/bundle.mjs';
import { makePages } from '../make-pages.mjs';
import { hostileNames } from '../profiles.mjs';
import { open, withBrowser } from './browser.mjs';

const row = 20; // height of a row of the graph, in CSS pixels
const moved = 600; // longer than a zoom and what follows it, in ms
let directory;
let files;
let context;
let finish;
let closed;

before(async () => {
  directory = await mkdtemp(`${tmpdir()}/lightfoot-pages-`);
  files = await makePages(directory);
  await new Promise((ready) => {
    closed = withBrowser(async (opened) => {
      context = opened;
      await new Promise((done) => ((finish = done), ready()));
    });
  });
});

after(async () => {
  finish?.();
  await closed;
  await rm(directory, { recursive: true, force: true });
});

/** A test on one page; `act` gets the page and a few ways to look at it. */
function onPage(title, name, act, options = {}) {
  test(title, async () => {
    const page = await open(context, files[name], options);
    try {
      await act(page, await tools(page));
      assert.deepEqual(page.problems, []);
      assert.equal(await page.evaluate(() => window.hacked), undefined);
    } finally {
      await page.close();
    }
  });
}

async function tools(page) {
  // Pixels are read from a copy: reading them from the canvas itself would make the browser treat it differently.
  await page.evaluate(() => {
    const copy = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    window.pixels = (x, y, width) => {
      copy.canvas.width = width;
      copy.canvas.height = 1;
      copy.drawImage(document.getElementById('flame'), x, y, width, 1, 0, 0, width, 1);
      return copy.getImageData(0, 0, width, 1).data;
    };
  });
  const text = (selector) => page.textContent(selector);
  const box = async () => page.locator('#flame').boundingBox();
  return {
    text,
    /** Point of the graph: part of the width from the left, depth. In the flame direction depth 0 is at the bottom. */
    async at(part, depth) {
      const bounds = await box();
      const flame = (await page.getAttribute('#as-flame', 'aria-pressed')) === 'true';
      const y = (depth + 0.5) * row;
      return { x: bounds.x + bounds.width * part, y: bounds.y + (flame ? bounds.height - y : y) };
    },
    async click(part, depth) {
      const { x, y } = await this.at(part, depth);
      await page.mouse.click(x, y);
      await page.waitForTimeout(moved);
    },
    async hover(part, depth) {
      const { x, y } = await this.at(part, depth);
      await page.mouse.move(x, y);
      return (await page.isVisible('#tooltip')) ? text('#tooltip') : '';
    },
    async press(...keys) {
      for (const key of keys) await page.keyboard.press(key);
    },
    async crumbs() {
      return page.$$eval('.crumbs li button bdi', (all) => all.map((one) => one.textContent));
    },
    async zoomed() {
      return (await this.crumbs()).at(-1);
    },
    /** Colour of the canvas near the left edge of a frame, as [r, g, b]. */
    async colour(part, depth) {
      return page.evaluate(
        ([p, d, height]) => {
          const canvas = document.getElementById('flame');
          const ratio = canvas.width / canvas.clientWidth;
          const flame = document.getElementById('as-flame').getAttribute('aria-pressed') === 'true';
          const y = flame ? canvas.clientHeight - (d + 1) * height + 2 : d * height + 2;
          return [...window.pixels(Math.round(canvas.width * p), Math.round(y * ratio), 1).slice(0, 3)];
        },
        [part, depth, row],
      );
    },
    rows: () => page.$$eval('#top tbody th button', (all) => all.map((one) => one.textContent)),
  };
}

onPage('opens with the run, the known shares and the price', 'small', async (page, t) => {
  assert.equal(await page.title(), 'process 4102 (demo): lightfoot profile');
  assert.match(await t.text('h1'), /process 4102 \(demo\)/);
  assert.match(await t.text('.facts'), /10\.0 s CPU time.*1,000 samples/);
  const cells = await page.$$eval('#top tbody tr', (rows) =>
    rows.map((r) => [r.querySelector('button').textContent, ...[...r.querySelectorAll('td b')].map((b) => b.textContent)]),
  );
  assert.deepEqual(cells[0], ['compute', '40.0 %', '70.0 %']);
  assert.deepEqual(cells.find(([name]) => name === 'parse'), ['parse', '12.0 %', '20.0 %']);
  assert.match(await t.text('.price'), /199 ms of CPU time over 10\.0 s: 2\.0 % of one CPU.*5 lost, 3 failed of 1,420/);
  assert.match(await t.text('#cost'), /interrupts1,000 × 14\.2 µs.*14\.2 ms14\.2 µs0\.14 %/);
  assert.match(await t.text('#accounting'), /fired1,420=recorded.*1,000\+filtered.*412\+throttled.*0\+lost.*5\+failed.*3/);
  assert.match(await t.text('.verdict'), /The sum is exact/);
  assert.match(await t.text('#notes'), /Hardware cycles/);
});

onPage('a click zooms, crumbs and Reset and Escape zoom out', 'small', async (page, t) => {
  await t.click(0.75, 3);
  assert.deepEqual(await t.crumbs(), ['all', '_start', 'main', 'parse']);
  assert.match(await t.text('.crumbs [aria-current]'), /20\.0 %/);
  assert.match(await t.text('#top caption'), /2 functions inside parse/);
  // parse now fills the width: its callee starts at the left.
  assert.match(await t.hover(0.1, 4), /jit:loop/);
  await page.click('.crumbs li:nth-child(3) button');
  await page.waitForTimeout(moved);
  assert.equal(await t.zoomed(), 'main');
  await page.click('#reset');
  await page.waitForTimeout(moved);
  assert.equal(await t.zoomed(), 'all');
  assert.ok(await page.isHidden('#reset'));
  await t.click(0.3, 3);
  assert.equal(await t.zoomed(), 'compute');
  await t.press('Escape');
  assert.equal(await t.zoomed(), 'all');
  // A click on a caller above the zoomed frame zooms out to it.
  await page.waitForTimeout(moved);
  await t.click(0.75, 3);
  await t.click(0.5, 0);
  assert.equal(await t.zoomed(), 'all');
});

onPage('the zoom is animated, and not for those who asked for calm', 'small', async (page, t) => {
  const widths = async () => {
    const { x, y } = await t.at(0.75, 3);
    const before = await t.colour(0.05, 3);
    await page.mouse.click(x, y);
    const seen = new Set();
    for (let picture = 0; picture < 30; picture++) {
      const found = await page.evaluate(
        () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
          const canvas = document.getElementById('flame');
          const line = window.pixels(0, 4 * 20 + 3, canvas.width);
          let edge = 0;
          // Where the first gap is.
          while (edge < canvas.width && !(line[edge * 4] > 250 && line[edge * 4 + 1] > 250 && line[edge * 4 + 2] > 250)) edge++;
          done(edge);
        }))),
      );
      seen.add(found);
    }
    assert.ok(before);
    return seen.size;
  };
  assert.ok((await widths()) > 2, 'in between there are other widths than at both ends');
  await t.press('Escape');
  await page.waitForTimeout(moved);
  await page.emulateMedia({ reducedMotion: 'reduce' });
  assert.ok((await widths()) <= 2, 'calm: at once');
});

onPage('search highlights and says how much matched', 'small', async (page, t) => {
  const plain = await t.colour(0.72, 3);
  await t.press('/');
  await page.keyboard.type('pars');
  await page.waitForFunction(() => document.getElementById('matched').textContent === 'matched 20.0 %');
  await page.waitForTimeout(100);
  assert.notDeepEqual(await t.colour(0.72, 3), plain, 'the match has another colour');
  assert.deepEqual(await t.rows(), ['parse']);
  assert.match(await t.text('#status'), /matched 20\.0 %, 1 name$/);
  // Overlapping matches count once; regular expressions work.
  await page.fill('#search', '^(compute|square)$');
  await page.waitForFunction(() => document.getElementById('matched').textContent === 'matched 70.0 %');
  // An invalid expression is plain text, and the page says so.
  await page.fill('#search', '[libc.so.6+');
  await page.waitForFunction(() => document.getElementById('matched').textContent === 'matched 4.0 % as plain text');
  assert.match(await page.getAttribute('#matched', 'title'), /Not a regular expression/);
  // The share is of what is zoomed.
  await page.fill('#search', 'square');
  await t.press('Enter');
  await t.click(0.3, 3);
  assert.equal(await t.text('#matched'), 'matched 42.9 %');
  await t.press('Escape');
  assert.equal(await t.text('#matched'), '');
  assert.equal(await t.zoomed(), 'compute', 'the first Escape clears the search only');
  await t.press('Escape');
  assert.equal(await t.zoomed(), 'all');
});

onPage('hovering shows the details', 'small', async (page, t) => {
  const details = await t.hover(0.3, 3);
  assert.match(details, /compute/);
  assert.match(details, /native: machine code/);
  assert.match(details, /\/usr\/bin\/demo/);
  assert.match(details, /src\/compute\.c:12 \(and 1 more place\)/);
  assert.match(details, /total7\.00 s70070\.0 %/);
  assert.match(details, /self4\.00 s40040\.0 %/);
  assert.match(details, /67\.1 % to 72\.8 % of all with 95 % probability/);
  assert.match(await t.hover(0.98, 4), /\[libc\.so\.6\+0x29d90\].*no name: no symbol table/);
  assert.equal(await t.hover(0.5, 10), '');
  await t.click(0.3, 3);
  assert.match(await t.hover(0.1, 4), /square.*of zoomed.*total2\.00 s20020\.0 %28\.6 %/);
});

onPage('the direction turns', 'small', async (page, t) => {
  assert.match(await t.hover(0.3, 3), /compute/);
  const before = await t.colour(0.01, 0);
  await page.click('#as-flame');
  await page.waitForTimeout(100);
  assert.deepEqual(await t.colour(0.01, 0), before, 'the root is at the bottom now');
  assert.match(await t.hover(0.3, 3), /compute/);
  await page.locator('#flame').focus();
  await t.press('ArrowUp', 'ArrowUp', 'ArrowUp', 'ArrowUp');
  assert.match(await t.text('#status'), /^compute/, 'up is towards the callees');
  await t.press('i');
  assert.equal(await page.getAttribute('#as-icicle', 'aria-pressed'), 'true');
});

onPage('Python and Ruby have marks, and the debt says what to do', 'languages', async (page, t) => {
  const marks = await page.$$eval('.legend .mark', (all) => all.map((one) => one.textContent + one.getAttribute('aria-label')));
  assert.deepEqual(marks, ['Nnative', 'Kkernel', 'Iinlined', '?unknown', 'Ppython', 'Rruby']);
  assert.match(await t.text('.legend'), /python 11\.0 %.*ruby 20\.0 %/);
  assert.match(await t.hover(0.2, 5), /serve.*python: a Python function\/srv\/app\/handlers\.py:61/);
  assert.match(await t.text('.legend .short'), /callers missing in 24\.0 % of samples/);
  assert.match(await t.text('#debt p'), /760 of 1,000 samples reach the root/);
  const rows = await page.$$eval('#debt tbody tr', (all) => all.map((row) => [...row.children].map((cell) => cell.textContent)));
  assert.deepEqual(rows[0], [
    '100', '10.0 %', 'libplugin.so',
    'meaning of no_rows (no .eh_frame, no .debug_frame)→ build it with -fasynchronous-unwind-tables or -fno-omit-frame-pointer',
  ]);
  assert.equal(rows.length, 11);
  assert.match(rows[4].join(), /‹U\+202E›\.so,meaning of truncated \(<i>x<\/i>\)/, 'foreign text is text');
  await page.click('.legend .short a');
  assert.ok(await page.locator('#debt').evaluate((card) => card.getBoundingClientRect().top < window.innerHeight));
});

onPage('the keyboard reaches everything', 'small', async (page, t) => {
  const status = () => t.text('#status');
  await t.press('g', 'ArrowDown');
  assert.match(await status(), /^all/);
  await t.press('ArrowDown', 'ArrowDown', 'ArrowDown');
  assert.match(await status(), /^compute, native: total 7\.00 s, 70\.0 % of all, self 4\.00 s, 700 samples/);
  assert.match(await t.text('#tooltip'), /compute/);
  await t.press('ArrowRight');
  assert.match(await status(), /^parse/);
  await t.press('ArrowDown', 'ArrowRight');
  assert.match(await status(), /^ksys_write/);
  await t.press('ArrowLeft', 'ArrowLeft', 'ArrowUp');
  assert.match(await status(), /^compute/);
  await t.press('Enter');
  assert.equal(await t.zoomed(), 'compute');
  await t.press('ArrowUp', 'ArrowUp');
  assert.match(await status(), /^_start/);
  await t.press('ArrowDown', 'ArrowDown');
  assert.match(await status(), /^compute/, 'from a caller the way leads to what is zoomed');
  await t.press('Backspace');
  assert.equal(await t.zoomed(), 'main');
  await t.press('Escape');
  assert.equal(await t.zoomed(), 'all');
  await t.press('?');
  assert.ok(await page.isVisible('#help'));
  await t.press('Escape');
  assert.ok(await page.isHidden('#help'));
  await t.press('t');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'tab-functions');
  await t.press('/');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'search');
  await page.keyboard.type('?/id');
  assert.equal(await page.inputValue('#search'), '?/id', 'letters typed into the field stay there');
});

onPage('Tab goes through the page in the order it is read', 'small', async (page, t) => {
  const order = [];
  for (let at = 0; at < 16; at++) {
    await t.press('Tab');
    order.push(await page.evaluate(() => document.activeElement.id || document.activeElement.textContent));
  }
  assert.deepEqual(order, [
    'Skip to the ledger', 'theme', 'help-button', 'search', 'as-icicle', 'as-flame', 'threads', 'grouping', 'all', 'flame',
    'callers missing in 12.0 % of samples', 'tab-functions', 'Function', 'Self', 'Total', 'compute',
  ]);
  await t.press('ArrowDown');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'square');
});

onPage('the table sorts, and a click on a name highlights it', 'small', async (page, t) => {
  await page.click('#top thead .total button');
  assert.equal(await page.getAttribute('#top thead .total', 'aria-sort'), 'descending');
  assert.deepEqual((await t.rows()).slice(0, 3), ['_start', 'main', 'compute']);
  await page.click('#top thead .total button');
  assert.equal(await page.getAttribute('#top thead .total', 'aria-sort'), 'ascending');
  assert.equal((await t.rows()).at(-1), '_start');
  await page.click('#top thead .name button');
  assert.equal((await t.rows())[0], '[libc.so.6+0x29d90]');
  await page.click('#top tbody tr:has-text("ksys_write") button');
  assert.equal(await page.inputValue('#search'), '^ksys_write$');
  assert.equal(await t.text('#matched'), 'matched 6.0 %');
  assert.equal((await t.rows()).length, 9, 'the table stays whole');
  await page.click('#top tbody tr:has-text("ksys_write") button');
  assert.equal(await t.text('#matched'), '');
});

onPage('processes and threads can be filtered', 'small', async (page, t) => {
  await page.click('#threads');
  const only = async (name) => {
    await page.hover(`#threads-panel li:has-text("${name}")`);
    await page.click(`#threads-panel li:has-text("${name}") button`);
  };
  await only('helper (4200)');
  assert.equal(await t.text('#threads'), 'helper (4200)');
  assert.match(await t.text('#status'), /Showing helper \(4200\): 100 samples/);
  assert.deepEqual((await t.rows()).sort(), ['[libc.so.6+0x29d90]', '_start', 'ksys_write', 'main', 'write_out']);
  await only('worker (tid 4103)');
  assert.equal(await t.text('#threads'), 'worker (tid 4103)');
  await page.click('#threads-panel .tools button:has-text("All")');
  assert.equal(await t.text('#threads'), 'All 3 threads');
  await page.uncheck('#threads-panel li:has-text("demo (4102)") input');
  assert.equal(await t.text('#threads'), 'helper (4200)');
  await page.fill('#threads-panel .tools input', 'work');
  assert.equal(await page.locator('#threads-panel li').count(), 2, 'the process and its thread that fits');
  await t.press('Escape');
  assert.ok(await page.isHidden('#threads-panel'));
  assert.match(await t.hover(0.5, 3), /write_out.*of shown.*total1\.00 s10010\.0 %100 %/);
  await page.click('#threads');
  await page.click('#threads-panel .tools button:has-text("None")');
  assert.equal(await t.text('#threads'), 'No thread');
  assert.deepEqual(await t.rows(), []);
});

onPage('stacks can be grouped by process and by thread', 'small', async (page, t) => {
  await page.fill('#search', 'compute');
  await page.selectOption('#grouping', 'process');
  assert.match(await t.hover(0.3, 1), /^demo \(4102\)CPU.*total9\.00 s90090\.0 %/);
  assert.match(await t.hover(0.95, 1), /^helper \(4200\)/);
  assert.match(await t.hover(0.3, 2), /_start/);
  assert.equal(await t.text('#matched'), 'matched 70.0 %');
  assert.deepEqual(await t.rows(), ['compute'], 'a process is not a function');
  await page.selectOption('#grouping', 'thread');
  assert.match(await t.hover(0.3, 1), /^demo \(tid 4102\).*total6\.00 s/);
  await t.click(0.3, 1);
  assert.match(await t.text('#top caption'), /inside demo \(tid 4102\)/);
  await page.selectOption('#grouping', 'none');
  assert.match(await t.hover(0.3, 1), /_start/);
  assert.match(await t.text('.legend'), /callers missing in 12\.0 % of samples/);
});

onPage('the call tree says the same without a canvas', 'small', async (page, t) => {
  await page.click('#tab-calls');
  const open = () => page.$$eval('#tree [role="treeitem"]', (all) => all.map((one) => one.querySelector('bdi').textContent));
  assert.deepEqual(await open(), ['all', '_start', 'main', 'compute', 'parse', 'write_out'], 'a chain opens as one');
  const compute = page.locator('#tree li:has(> .line bdi:text-is("compute"))').first();
  assert.match(await compute.locator('> .line').textContent(), /70\.0 %Ncompute7\.00 s, self 4\.00 s/);
  assert.equal(await compute.getAttribute('aria-level'), '4');
  assert.equal(await compute.getAttribute('aria-setsize'), '3');
  assert.equal(await compute.getAttribute('aria-expanded'), 'false');
  await page.locator('#tree li').first().focus();
  await t.press('ArrowDown', 'ArrowDown', 'ArrowDown', 'ArrowRight');
  assert.equal(await compute.getAttribute('aria-expanded'), 'true');
  assert.deepEqual((await open()).slice(3, 6), ['compute', 'square', 'compute']);
  await t.press('ArrowRight');
  assert.match(await page.evaluate(() => document.activeElement.textContent), /square/);
  await t.press('ArrowLeft', 'ArrowLeft');
  assert.equal(await compute.getAttribute('aria-expanded'), 'false');
  await t.press('Enter');
  await page.waitForTimeout(moved);
  assert.equal(await t.zoomed(), 'compute');
  assert.deepEqual(await open(), ['compute', 'square', 'compute']);
});

for (const colorScheme of ['light', 'dark']) {
  onPage(`${colorScheme} as the system prefers, the other way by choice`, 'small', async (page, t) => {
    const isDark = async () => {
      const [r, g, b] = (await page.evaluate(() => getComputedStyle(document.body).backgroundColor)).match(/\d+/g).map(Number);
      const [canvas] = await t.colour(0.5, 20);
      assert.equal(r + g + b < 200, canvas < 70, 'page and canvas agree');
      return canvas < 70;
    };
    assert.equal(await isDark(), colorScheme === 'dark');
    await page.click('#theme');
    await page.waitForTimeout(100);
    assert.equal(await isDark(), colorScheme !== 'dark');
    await page.click('#theme');
    await page.emulateMedia({ colorScheme: colorScheme === 'dark' ? 'light' : 'dark' });
    await page.waitForTimeout(100);
    assert.equal(await isDark(), colorScheme === 'dark', 'a choice outlasts the preference');
    await page.evaluate(() => localStorage.clear());
  }, { media: { colorScheme } });
}

onPage('hostile names are harmless and legible', 'hostile', async (page, t) => {
  assert.equal(await page.locator('#app script, #app img, #app svg:not([data-icon]), body > img').count(), 0);
  const rows = await t.rows();
  assert.ok(rows.includes('</script><script>window.hacked=1</script>'));
  assert.ok(rows.includes('<img src=x onerror="window.hacked=1">'));
  assert.ok(rows.includes('evil‹U+202E›gnp.exe‹U+202C›::run'));
  assert.ok(rows.includes('[empty name]'));
  assert.ok(rows.every((name) => name.length <= 300));
  // Every frame can be hovered; the tooltip stays on the screen.
  for (let at = 0; at < hostileNames.length; at++) {
    const seen = await t.hover(((at + 0.5) * 10) / 215, 2);
    assert.match(seen, /total100 ms10/, `frame ${at}`);
    const bounds = await page.locator('#tooltip').boundingBox();
    const { width, height } = page.viewportSize();
    assert.ok(bounds.x >= 0 && bounds.y >= 0 && bounds.x + bounds.width <= width && bounds.y + bounds.height <= height, `frame ${at}`);
  }
  // Each can be searched, zoomed into and found in the tree.
  for (let at = 0; at < 6; at++) await page.locator('#top tbody th button').nth(at).click();
  await page.keyboard.press('Escape');
  await t.click(0.02, 2);
  await page.click('#tab-calls');
  assert.ok((await t.text('#tree')).length > 10);
  await page.click('#threads');
  assert.match(await t.text('#threads-panel'), /<b>comm<\/b>.*‹U\+202E›reverse/);
  assert.match(await t.text('#notes'), /<script>window\.hacked=1<\/script> & <b>bold<\/b>/);
});

onPage('a stack of 4,000 frames can be walked to its end', 'hostile', async (page, t) => {
  await page.locator('#flame').focus();
  await page.evaluate(() => (document.querySelector('.flame').scrollTop = 1e9));
  await page.waitForTimeout(100);
  const scrolled = await page.evaluate(() => document.querySelector('.flame').scrollTop);
  assert.ok(scrolled > 3500 * row);
  await page.click('#as-flame');
  await page.waitForTimeout(100);
  assert.match(await t.hover(0.5, 0), /^all/, 'flames start at the ground');
});

onPage('an empty profile says so and keeps its ledger', 'empty', async (page, t) => {
  assert.match(await t.text('#nothing'), /No samples.*never fired/);
  assert.match(await t.text('#cost'), /182 ms/);
  assert.equal(await page.locator('canvas').count(), 0);
});

onPage('100,000 distinct stacks open, zoom, search and filter', 'large', async (page, t) => {
  assert.ok(await page.evaluate(() => performance.getEntriesByName('lightfoot-drawn').length === 1));
  await t.click(0.02, 3);
  assert.notEqual(await t.zoomed(), 'all');
  await page.fill('#search', 'parse');
  await page.waitForFunction(() => /^matched \d/.test(document.getElementById('matched').textContent));
  await t.press('Escape', 'Escape');
  await page.click('#threads');
  await page.uncheck('#threads-panel li >> nth=0 >> input');
  assert.match(await t.text('#threads'), /56 of 64 threads/);
  // Only what can be seen is in the document.
  assert.ok((await page.locator('#app *').count()) < 3000);
});

for (const width of [320, 500, 700, 1000]) {
  onPage(`the debt fits a window of ${width} pixels`, 'languages', async (page) => {
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth));
    const { card, cells } = await page.locator('#debt').evaluate((one) => ({
      card: one.getBoundingClientRect().right,
      cells: Math.max(...[...one.querySelectorAll('td')].map((cell) => cell.getBoundingClientRect().right)),
    }));
    assert.ok(cells <= card, `${cells} of ${card}`);
  }, { viewport: { width, height: 640 } });
  onPage(`a window of ${width} pixels needs no sideways scrolling`, 'small', async (page, t) => {
    const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth);
    assert.ok(await fits());
    assert.ok((await page.locator('#flame').boundingBox()).width > 250);
    await page.click('#threads');
    assert.ok(await fits(), 'with the panel open');
    await t.press('Escape');
    await t.hover(0.95, 4);
    assert.ok(await fits(), 'with details of the last frame');
  }, { viewport: { width, height: 640 } });
}

onPage('paper is light, without controls', 'small', async (page) => {
  await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
  assert.ok(await page.isHidden('.toolbar'));
  assert.ok(await page.isVisible('#cost'));
  const pdf = await page.pdf({ format: 'A4' });
  assert.ok(pdf.length > 10_000);
}, { media: { colorScheme: 'dark' } });

test('the graph is sharp on dense screens', async () => {
  await withBrowser(
    async (dense) => {
      const page = await open(dense, files.small);
      const [canvas, css] = await page.evaluate(() => {
        const c = document.getElementById('flame');
        return [c.width, c.clientWidth];
      });
      assert.equal(canvas, css * 2);
      assert.deepEqual(page.problems, []);
    },
    { deviceScaleFactor: 2 },
  );
});

test('the policy stops what a profile might smuggle in', async () => {
  const file = `${directory}/smuggled.html`;
  const html = await readFile(files.small, 'utf8');
  await writeFile(file, html.replace('</body>', '<script>window.hacked=1</script><img src="x.png" onerror="window.hacked=1"></body>'));
  const page = await open(context, file);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.ok(page.problems.length >= 2, 'the browser says that it refused');
  await page.close();
});

test('data that cannot be read are said to be so', async () => {
  const html = await buildPage();
  for (const [name, profile, words] of [
    ['newer', { schema: 'lightfoot.page/9' }, /made for lightfoot\.page\/1, but the data says "lightfoot\.page\/9"/],
    ['broken', { schema: 'lightfoot.page/1' }, /strings is not a list/],
  ]) {
    const file = `${directory}/${name}.html`;
    await writeFile(file, fillPage(html, 'x', profile));
    const page = await open(context, file, { broken: true });
    assert.match(await page.textContent('[role="alert"]'), words);
    await page.close();
  }
});

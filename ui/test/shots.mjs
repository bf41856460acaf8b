// SPDX-License-Identifier: Apache-2.0 OR MIT
// node test/shots.mjs DIRECTORY [PAGE.html]: pictures of the page, wide and narrow, light and dark, to look at.
import { makePages } from './make-pages.mjs';
import { open, withBrowser } from './browser/browser.mjs';

const directory = process.argv[2] ?? 'shots';
const files = await makePages(directory, process.argv[3] ? [] : ['small', 'languages', 'hostile', 'empty', 'large']);
if (process.argv[3]) files.given = process.argv[3];
await withBrowser(async (context) => {
  const shot = async (name, file, options, act = async () => {}) => {
    const page = await open(context, file, options);
    await act(page);
    await page.waitForTimeout(450);
    await page.screenshot({ path: `${directory}/${name}.png`, fullPage: options.full ?? false });
    for (const problem of page.problems) process.stderr.write(`${name}: ${problem}\n`);
    await page.close();
  };
  const wide = { width: 1440, height: 900 };
  for (const [name, file] of Object.entries(files)) {
    for (const colorScheme of ['light', 'dark']) {
      await shot(`${name}-${colorScheme}`, file, { media: { colorScheme }, viewport: wide });
    }
    await shot(`${name}-narrow`, file, { media: { colorScheme: 'light' }, viewport: { width: 390, height: 844 }, full: true });
  }
  const graph = files.given ?? files.large;
  await shot('hover', graph, { media: { colorScheme: 'light' }, viewport: wide }, async (page) => page.mouse.move(300, 330));
  await shot('search', graph, { media: { colorScheme: 'dark' }, viewport: wide }, async (page) => {
    await page.fill('#search', 'parse|read');
    await page.click('#tab-calls');
  });
  await shot('zoomed', graph, { media: { colorScheme: 'light' }, viewport: wide }, async (page) => {
    await page.click('#flame', { position: { x: 200, y: 130 } });
    await page.click('#threads');
  });
  await shot('flame', graph, { media: { colorScheme: 'light' }, viewport: wide }, async (page) => page.click('#as-flame'));
  await shot('ledger', files.given ?? files.small, { media: { colorScheme: 'light' }, viewport: wide, full: true });
  await shot('debt', files.given ?? files.languages, { media: { colorScheme: 'light' }, viewport: wide, full: true });
  await shot('debt-dark', files.given ?? files.languages, { media: { colorScheme: 'dark' }, viewport: wide, full: true });
  await shot('help', files.given ?? files.small, { media: { colorScheme: 'dark' }, viewport: wide }, async (page) => page.keyboard.press('?'));
});

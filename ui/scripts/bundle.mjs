// SPDX-License-Identifier: Apache-2.0 OR MIT
// Makes the page: template + style + script in one text, with one place for the title and one for the profile.
// The result depends on nothing but the sources and the pinned esbuild: same input, same bytes.
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import * as esbuild from 'esbuild';

export const uiRoot = fileURLToPath(new URL('..', import.meta.url));
export const profilePlace = '/*LIGHTFOOT_PROFILE*/';
export const titlePlace = '<!--LIGHTFOOT_TITLE-->';

const shared = {
  absWorkingDir: uiRoot,
  bundle: true,
  minify: true,
  write: false,
  charset: 'ascii',
  legalComments: 'none',
  logLevel: 'warning',
};

/** The page without a profile, ready for the two places to be filled. */
export async function page() {
  const [template, script, style] = await Promise.all([
    readFile(`${uiRoot}/src/page.html`, 'utf8'),
    text({ entryPoints: ['src/main.ts'], format: 'iife', target: 'es2022', platform: 'browser' }),
    text({ entryPoints: ['src/style.css'], target: ['chrome123', 'firefox120', 'safari17.5'] }),
  ]);
  // The policy names the script and the style by their hash: nothing that a profile contains can ever run.
  const policy = [
    "default-src 'none'",
    `script-src '${hash(script)}'`,
    `style-src '${hash(style)}'`,
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
  const html = fill(fill(fill(withoutComments(template), '<!--POLICY-->', policy), '/*STYLE*/', style), '/*SCRIPT*/', script);
  for (const place of [profilePlace, titlePlace]) once(html, place);
  if (/https?:\/\//.test(html)) throw new Error('the page must not name any host');
  return html;
}

/** The page with a profile, as the HTML export writes it. `profile` is an object of schema lightfoot.page/1. */
export function fillPage(html, title, profile) {
  const json = JSON.stringify(profile).replaceAll('<', '\\u003c');
  const safeTitle = title.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
  return fill(fill(html, titlePlace, safeTitle), profilePlace, json);
}

async function text(options) {
  const result = await esbuild.build({ ...shared, ...options });
  return result.outputFiles[0].text.trim();
}

/** Comments in the template are for its readers; the bundle needs none of them. */
function withoutComments(template) {
  return template.replace(/^\s*<!-- [^]*? -->\n/gm, '');
}

function hash(content) {
  return `sha256-${createHash('sha256').update(content, 'utf8').digest('base64')}`;
}

function once(html, place) {
  if (html.split(place).length !== 2) throw new Error(`the page must contain ${place} exactly once`);
}

/** Replaces `place`, which must occur once; `content` is taken literally (no `$` patterns). */
function fill(html, place, content) {
  once(html, place);
  return html.replace(place, () => content);
}

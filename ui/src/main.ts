// SPDX-License-Identifier: Apache-2.0 OR MIT
const data = document.getElementById('lightfoot-profile')?.textContent ?? '';
const pre = document.createElement('pre');
pre.textContent = data;
document.getElementById('app')?.replaceChildren(pre);
export {};

// hot.js MS: outer;middle;leafA 70 %, outer;leafB 30 %, by counted iterations; optimised by V8 after its first moments. With
// --max-inlined-bytecode-size=0 the functions stay apart.
'use strict';
function burn(n, x) {
	for (let i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >>> 17;
		x ^= x << 5;
	}
	return x;
}
function leafA(n) { return burn(n, 1) + 1; }
function leafB(n) { return burn(n, 2) + 1; }
function middle(unit) { return leafA(70 * unit) + 1; }
function outer(unit) { return middle(unit) + leafB(30 * unit); }

const ms = Number(process.argv[2] || 4000);
const start = Date.now();
let random = 12345, sink = 0, said = false;
for (let now = start; now < start + ms; now = Date.now()) {
	for (let i = 0; i < 20; i++) {
		random = (Math.imul(random, 1103515245) + 12345) >>> 0;
		sink = (sink + outer(150 + (random >>> 16) % 251)) | 0;
	}
	if (!said && now - start > 1000) {
		said = true;
		require('fs').writeSync(1, `{"program":"hot.js","event":"ready","pid":${process.pid}}\n`);
	}
}
require('fs').writeSync(1, `{"program":"hot.js","pid":${process.pid},"sink":${sink === 42}}\n`);

//! One module per format: text, HTML, SVG, folded, pprof, speedscope, Firefox, JSON.

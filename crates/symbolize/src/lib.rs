//! Address to name: native objects (blazesym), kernel, vDSO, perf maps; every cache bounded in bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lightfoot_interpreters::check::python_align(bytes));

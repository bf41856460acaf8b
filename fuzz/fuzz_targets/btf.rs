#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lightfoot_sites::check::btf(bytes));

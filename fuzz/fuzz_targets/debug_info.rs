#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lightfoot_symbolize::check::debug_info(bytes));

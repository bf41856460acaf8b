//! A profiling run: kernel + process + symbolize + cost -> model::Profile.

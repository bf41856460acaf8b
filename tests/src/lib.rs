//! End to end tests: helpers.

//! What works here, found by trying.

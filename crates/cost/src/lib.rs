//! Calibration arithmetic and the ledger: decides, never acts.

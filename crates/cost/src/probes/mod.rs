//! What probes cost: prices of this machine, the account of a run, the trial before it, the budget's governor. Pure.
//!
//! A firing costs what makes the program run (the *trigger*: trap, trampoline, tracepoint, with an empty program) and what the program does
//! (its *body*). The kernel's statistics see the body alone, and add a time of their own to it: the *bias*. Our programs
//! also count each firing (part of the trigger's price, unless *bare*) and make checks. So predicted = trigger + checks + body, and
//! live = firings x (trigger + checks) + bodies run x body.
//!
//! Not here: the measuring (crate `tracer`), and doing what the governor orders.

mod account;
mod book;
pub mod governor;
mod prices;
mod rounds;
mod trial;

pub use account::{Account, Counts, Line, StatisticsWindow};
pub use book::Damaged;
pub use governor::Governor;
pub use prices::{Around, Checks, Family, Predicted, Price, Prices};
pub use rounds::price_of_rounds;
pub use trial::{Verdict, WARN_NS_PER_S, judge};

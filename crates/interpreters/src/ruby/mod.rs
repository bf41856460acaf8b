//! CRuby: frames are control frames of the thread's execution context, read by `bpf/ruby.h`.

mod align;
mod code;
mod detect;
mod names;
mod offsets;
mod tls;
mod values;

pub use align::{Aligned, align, go_on};
pub use detect::detect;
pub use names::{Limits, Names};

/// Top byte of a frame's second word. Mirror: `enum lf_ruby_frame` in `bpf/ruby.h`.
pub mod frame {
    /// The last frame that an activation of the loop runs.
    pub const FINISH: u64 = 1 << 56;
    /// The address is a method entry's, not an iseq's.
    pub const METHOD_ENTRY: u64 = 2 << 56;
    /// A method written in C.
    pub const C_FUNCTION: u64 = 4 << 56;
    /// No frame: the activation has left its frames already.
    pub const NOTHING: u64 = 8 << 56;
    /// The rest of the word: address of the instruction that comes next.
    pub const PC: u64 = (1 << 56) - 1;
}

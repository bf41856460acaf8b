//! What the kernel side and the names need to know of a version. Mirror: `bpf/python.h`.

/// `_PyRuntime` in [`crate::Interpreter::symbols`].
pub const SYMBOL_RUNTIME: usize = 0;
/// `PyCode_Type` in [`crate::Interpreter::symbols`].
pub const SYMBOL_CODE_TYPE: usize = 1;

/// How frames hang together; the value of [`Offset::Kind`]. Keep in step with `enum lf_python_kind`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// 3.8 to 3.10: a frame object for each activation of the loop.
    Objects = 1,
    /// 3.11: an activation has a `_PyCFrame` on the C stack, and runs the frames up to the one with `is_entry`.
    Entry = 2,
    /// 3.12: the same, up to a frame that the C stack owns.
    Shim = 3,
    /// 3.13 and later: no `_PyCFrame`; the frame that ends an activation's is itself on the C stack.
    Direct = 4,
}

/// Places in [`crate::Interpreter::offsets`]: offsets in bytes unless said. Keep in step with `enum lf_python_offset`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[expect(missing_docs, reason = "structure and field say it")]
pub enum Offset {
    /// [`Kind`].
    Kind = 0,
    RuntimeInterpretersHead,
    /// 0: the runtime does not know who holds the lock.
    RuntimeThreadCurrent,
    InterpreterNext,
    InterpreterThreadsHead,
    ThreadPrevious,
    ThreadNext,
    ThreadInterpreter,
    /// `pthread_self()`.
    ThreadId,
    /// 0: not there.
    ThreadNativeId,
    /// Bits that say whether it is the current one of its thread; 0: not there.
    ThreadStatus,
    /// The frame, or the `_PyCFrame`.
    ThreadFrame,
    CFrameFrame,
    CFramePrevious,
    /// Bytes of a frame up to the end of the last field that is read.
    FrameBytes,
    FrameCode,
    FramePrevious,
    /// `f_lasti`, `prev_instr`, `instr_ptr`.
    FrameInstruction,
    /// `owner`, or `is_entry`.
    FrameOwner,
    /// Value of `owner` from which on a frame is the C stack's (not an offset).
    OwnerStack,
    /// Where a code object's instructions begin.
    CodeInstructions,
    /// Whether the collector runs, in the interpreter's state, or, if [`Offset::CollectingInRuntime`], in the runtime's; 0: unknown.
    Collecting,
    /// 1: see [`Offset::Collecting`] (not an offset).
    CollectingInRuntime,
    /// Bit number of "this is the thread's current state" in the status (not an offset).
    StatusActiveBit,
    // From here on user space only.
    ObjectType = 32,
    CodeFilename,
    CodeName,
    /// 0: not there.
    CodeQualname,
    CodeFirstLine,
    CodeLines,
    /// What [`Offset::CodeLines`] points to: [`LineFormat`] (not an offset).
    LineFormat,
    /// Thread-local copies of the instructions; 0: not there.
    CodeLocalCopies,
    TextLength,
    TextState,
    /// Size of the header of an ASCII string.
    TextAsciiHeader,
    /// Size of the header of another compact string.
    TextCompactHeader,
    /// Bit number of the first bit of the kind of characters in the state (not an offset).
    TextKindShift,
    BytesLength,
    BytesData,
}

/// How a code object tells lines (the value of [`Offset::LineFormat`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum LineFormat {
    /// Up to 3.9: `co_lnotab`, pairs of bytes.
    Notes = 1,
    /// 3.10: pairs that say where a line ends (PEP 626).
    Ranges = 2,
    /// 3.11 and later: locations (`Objects/locations.md` of CPython).
    Locations = 3,
}

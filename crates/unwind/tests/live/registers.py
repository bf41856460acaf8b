# For gdb: each thread's registers and the program counters of its frames, leaf first.
import gdb

NAMES = "rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip".split()
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame = gdb.newest_frame()
    values = [int(frame.read_register(name)) & (1 << 64) - 1 for name in NAMES]
    print("@registers", *["%x" % value for value in values])
    while frame is not None:
        if frame.type() in (gdb.NORMAL_FRAME, gdb.SIGTRAMP_FRAME):
            print("@frame", "%x" % frame.pc())
        frame = frame.older()

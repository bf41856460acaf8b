/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The contract between probes.bpf.c and user space (crates/kernel/src/probes/abi.rs). Sizes are asserted on both sides.
 */
#pragma once
#include "core_types.h"

/* lf_probe_config::flags: set before load, so that the verifier removes what is not asked for. */
enum lf_probe_flag {
	LF_PROBE_GATE = 1 << 0,       /* the budget's gate comes first */
	LF_PROBE_FILTER = 1 << 1,     /* only the process lf_probe_config::pid */
	LF_PROBE_COOKIE = 1 << 2,     /* the slot is the attachment's cookie; otherwise it is written into the program, LF_PROBE_SLOT */
	LF_PROBE_ATOMIC = 1 << 3,     /* the program may be preempted by itself on one CPU: user probes */
	LF_PROBE_COMPAT = 1 << 4,     /* the kernel has 32-bit system calls, whose numbers mean something else */
};

struct lf_probe_config {
	__u32 flags;        /* enum lf_probe_flag */
	__u32 pid;          /* LF_PROBE_FILTER: as user space knows it */
	__u32 slots;        /* rows of counters per CPU, without the last one */
	__u32 wakeup_bytes; /* bytes in the ring that wake user space; 0: never */
	__u32 pidns_inode;  /* user space's own pid namespace; 0 in the initial one */
	__u32 reserved;
};
_Static_assert(sizeof(struct lf_probe_config) == 24, "keep in step with probes/abi.rs");

/* The constant that user space replaces by the number of a program's slot. */
#define LF_PROBE_SLOT 0x51075107

/* What became of each firing: one cache line per CPU and slot, at CPU * (slots + 1) + slot. Only its CPU writes it. */
struct lf_probe_row {
	__u64 recorded;
	__u64 weighed; /* with LF_PROBE_GATE: the sum of 1-in-N's Ns of those recorded */
	__u64 filtered;
	__u64 throttled; /* by 1-in-N: the weights of those recorded stand for them */
	__u64 lost;
	__u64 cut; /* throttled by the breaker: nothing stands for them */
	__u64 reserved[2];
};
_Static_assert(sizeof(struct lf_probe_row) == 64, "keep in step with probes/abi.rs");

/* The last row of each CPU: what belongs to no slot. */
struct lf_probe_cpu {
	__u64 passed; /* system calls that nobody asked for, seen by a dispatcher */
	__u64 epoch;  /* lf_probe_breaker::epoch when it last fired */
	__u64 fired;  /* since then */
	__u64 reserved[5];
};
_Static_assert(sizeof(struct lf_probe_cpu) == sizeof(struct lf_probe_row), "they share an array");

/* Read and written as one word. */
struct lf_probe_gate {
	__u32 one_in;    /* 0, 1: all */
	__u32 threshold; /* 2^32 / one_in: random numbers below it are kept */
};
_Static_assert(sizeof(struct lf_probe_gate) == 8, "keep in step with probes/abi.rs");

/* Read and written as one word. 0: there is no breaker. */
struct lf_probe_breaker {
	__u32 epoch;   /* changes each time user space fills it */
	__u32 firings; /* that each CPU may have until the next time */
};
_Static_assert(sizeof(struct lf_probe_breaker) == 8, "keep in step with probes/abi.rs");

/* System calls of the dispatchers: slot + 1 at the number, 0 for those that nobody asked for. */
#define LF_SYSCALLS 1024

/* What the ring carries: body `event`. */
struct lf_probe_event {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u32 pid;     /* process, as user space knows it */
	__u32 tid;     /* thread, in the initial pid namespace */
	__u32 slot;
	__u32 weight; /* of 1-in-N: N */
	__u32 cpu;
	__u32 reserved;
	char comm[16];
	__u64 unused[2];
};
_Static_assert(sizeof(struct lf_probe_event) == 64, "keep in step with probes/abi.rs");

/* Key of body `simple`; the value is a sum of weights. */
struct lf_probe_process {
	__u32 slot;
	__u32 pid;
};

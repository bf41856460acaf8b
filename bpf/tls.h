/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Contract of tls.bpf.c with user space (crates/kernel/src/probes/tls.rs). Sizes are asserted on both sides. */
#pragma once
#include "core_types.h"

/* Set before load. */
struct lf_tls_config {
	__u32 pidns_inode; /* user space's pid namespace, in which pids are told; 0 if it is the initial one */
	__u32 reserved;
};
_Static_assert(sizeof(struct lf_tls_config) == 8, "keep in step with probes/tls.rs");

/* What the cookie of a probe says of its function. */
#define LF_TLS_WRITE 1 /* SSL_write, SSL_write_ex; else SSL_read, SSL_read_ex */
#define LF_TLS_EX 2    /* the function's value is 0 or 1, and the length goes where its fourth argument points */

/* One call, sent when it returns. No content. */
struct lf_tls_event {
	__u64 entered_ns; /* CLOCK_MONOTONIC */
	__u64 left_ns;
	__u64 ssl;    /* address of the SSL object: which connection */
	__s64 length; /* bytes; 0 and below as the function returned it */
	__u32 pid;    /* as user space knows it */
	__u32 tid;
	__u32 cookie; /* LF_TLS_* */
	__u32 reserved;
};
_Static_assert(sizeof(struct lf_tls_event) == 48, "keep in step with probes/tls.rs");

/*
 * Summed over CPUs, when nothing fires any more: left = sent + lost, and entered = left + no_room + at most one a thread whose return was
 * not seen, since it was inside when the probes went.
 */
struct lf_tls_counts {
	__u64 entered;
	__u64 left;    /* returned, and its entry was seen */
	__u64 stray;   /* returned, and its entry was not seen: it was inside when the probes came */
	__u64 no_room; /* entered, and there was no room to keep it */
	__u64 sent;
	__u64 lost; /* the ring was full */
};
_Static_assert(sizeof(struct lf_tls_counts) == 48, "keep in step with probes/tls.rs");

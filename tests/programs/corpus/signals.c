/* signals [--altstack]: work_leaf (main;work;work_leaf) is interrupted by SIGPROF each 5 ms of CPU time; the handler burns
 * 2.5 ms of it: main;work;work_leaf;(the C library's return from a signal);on_signal;handle;handler_leaf. A second handler,
 * SIGSEGV by a fault in faulting (main;fault;faulting;(same);on_fault;fault_leaf), ends by siglongjmp. With --altstack both
 * run on a stack of their own. */
#include "corpus.h"
#include <setjmp.h>
#include <sys/time.h>

DEFINE_LEAF(work_leaf)
DEFINE_LEAF(handler_leaf)
DEFINE_LEAF(fault_leaf)

static volatile uint64_t sink;
static sigjmp_buf back;

FUNCTION uint64_t handle(uint64_t x)
{
	RUBBISH;
	x = handler_leaf(900000, x);
	STAY;
	return x;
}

FUNCTION void on_signal(int number)
{
	sink += handle((uint64_t)number);
	STAY;
}

FUNCTION void on_fault(int number)
{
	sink += fault_leaf(300000, (uint64_t)number);
	siglongjmp(back, 1);
}

FUNCTION uint64_t work(uint64_t unit, uint64_t x)
{
	x = work_leaf(100 * unit, x);
	RUBBISH;
	return x;
}

/* The fault is at the first instruction of the function: a signal frame whose caller has not yet a frame. */
FUNCTION __attribute__((naked)) void faulting(volatile int *nowhere);
#if defined(__x86_64__)
FUNCTION __attribute__((naked)) void faulting(volatile int *nowhere)
{
	__asm__ volatile("movl $1, (%rdi)\n ret");
}
#else
FUNCTION void faulting(volatile int *nowhere) { *nowhere = 1; }
#endif

FUNCTION void fault(void)
{
	if (sigsetjmp(back, 1) == 0)
		faulting((volatile int *)16);
	STAY;
}

int main(int argc, char **argv)
{
	struct course course = course_of(argc, argv);
	int flags = SA_RESTART;
	if (flag(argc, argv, "--altstack")) {
		static char stack[1 << 16] __attribute__((aligned(64)));
		stack_t other = { .ss_sp = stack, .ss_size = sizeof stack };
		if (sigaltstack(&other, NULL))
			die("sigaltstack");
		flags |= SA_ONSTACK;
	}
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
	sigaddset(&action.sa_mask, SIGSEGV);
	sigaction(SIGPROF, &action, NULL);
	action.sa_handler = on_fault;
	sigaddset(&action.sa_mask, SIGPROF);
	sigaction(SIGSEGV, &action, NULL);
	struct itimerval each = { { 0, 5000 }, { 0, 5000 } };
	setitimer(ITIMER_PROF, &each, NULL);
	uint64_t x = 88172645463325252u;
	for (uint64_t unit; (unit = next_turn(&course));) {
		x = work(unit, x);
		if (unit % 16 == 0)
			fault();
	}
	struct itimerval none = { { 0, 0 }, { 0, 0 } };
	setitimer(ITIMER_PROF, &none, NULL);
	return done("signals", &course) + (x == 42);
}

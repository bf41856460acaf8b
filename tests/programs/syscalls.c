/* syscalls [--kernel-share PERCENT] [--seconds S]
 *
 * Spends PERCENT of its CPU time in the kernel (read_zeros: large reads of /dev/zero) and the rest in user_part, by the
 * thread's CPU clock: after each read the user part runs until the shares are right again. Reads have random lengths: with equal
 * ones a round takes one millisecond on some machines, and a sampler of 999 Hz sees the same part of it for seconds.
 */
#include "program.h"

static double share, seconds;
static uint64_t kernel_ns, user_ns;
static unsigned char buffer[4 << 20];

/* The system call itself, not the C library's read(): that has no frame, so its caller would be missing from the walk. */
HOT uint64_t read_zeros(int fd, size_t bytes)
{
	__asm__ volatile("" : : "r"(__builtin_frame_address(0)));
#if defined(__x86_64__)
	long got = 0; /* SYS_read */
	__asm__ volatile("syscall" : "+a"(got) : "D"((long)fd), "S"(buffer), "d"(bytes) : "rcx", "r11", "memory");
#else
	register long got __asm__("x0") = fd;
	register void *to __asm__("x1") = buffer;
	register long size __asm__("x2") = (long)bytes;
	register long number __asm__("x8") = 63; /* SYS_read */
	__asm__ volatile("svc #0" : "+r"(got) : "r"(to), "r"(size), "r"(number) : "memory");
#endif
	return (uint64_t)got;
}

HOT uint64_t user_part(uint64_t iterations, uint64_t x)
{
	x = spin(iterations, x);
	__asm__ volatile("" ::: "memory");
	return x;
}

HOT uint64_t mixed(void *argument)
{
	int fd = *(int *)argument;
	uint64_t x = 1, random = 1, end = wall_ns() + (uint64_t)(seconds * 1e9);
	memset(buffer, 1, sizeof buffer); /* page faults before, not inside, the reads */
	uint64_t before = thread_cpu_ns(), now;
	while (wall_ns() < end) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		read_zeros(fd, (1 << 20) + (random >> 33) % (3 << 20));
		now = thread_cpu_ns();
		kernel_ns += now - before;
		before = now;
		while ((double)user_ns * share < (double)kernel_ns * (1 - share)) {
			x = user_part(20000, x);
			now = thread_cpu_ns();
			user_ns += now - before;
			before = now;
		}
	}
	return x;
}

int main(int argc, char **argv)
{
	share = number(argc, argv, "--kernel-share", 50) / 100;
	seconds = number(argc, argv, "--seconds", 5);
	watchdog((unsigned)(seconds + 30));
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	if (fd == -1 || share <= 0 || share > 1)
		return 97;
	root_of_stack(mixed, &fd);
	printf("{\"program\":\"syscalls\",\"pid\":%d,\"kernel_ns\":%lu,\"user_ns\":%lu,\"cpu_ns\":%lu}\n", getpid(), kernel_ns, user_ns,
	       process_cpu_ns());
	return 0;
}

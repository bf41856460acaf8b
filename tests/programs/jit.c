/* jit [--seconds S] [--map good|none|truncated|hostile] [--file PATH]
 *
 * Machine code in anonymous memory: a loop that keeps frame pointers, called by jit_caller, named `jit_hot_loop` by
 * /tmp/perf-PID.map (removed at the end). Root first: root_of_stack, jit_caller, jit_hot_loop.
 * Other maps: none at all; cut off in the middle of its second line; hostile (binary, overlapping, endless lines, absurd numbers).
 *
 * --file PATH: the code is mapped from PATH, offset 4096, instead; page 0 of PATH is what the test put there (a hostile or
 * cut-off ELF header). There is no perf map then.
 */
#include "program.h"

static char map_path[64];
static double seconds;
static uint64_t calls;

static void clean(int number)
{
	if (map_path[0])
		unlink(map_path);
	if (number)
		_exit(128 + number);
}

typedef void (*code_function)(uint64_t iterations);

static const unsigned char loop_code[] = {
#if defined(__x86_64__)
	0x55,             /* push rbp */
	0x48, 0x89, 0xe5, /* mov rbp, rsp */
	0x48, 0x89, 0xf9, /* mov rcx, rdi */
	0x48, 0xff, 0xc9, /* 1: dec rcx */
	0x75, 0xfb,       /* jnz 1b */
	0x5d,             /* pop rbp */
	0xc3,             /* ret */
#else
	0xfd, 0x7b, 0xbf, 0xa9, /* stp x29, x30, [sp, #-16]! */
	0xfd, 0x03, 0x00, 0x91, /* mov x29, sp */
	0x00, 0x04, 0x00, 0xf1, /* 1: subs x0, x0, #1 */
	0xe1, 0xff, 0xff, 0x54, /* b.ne 1b */
	0xfd, 0x7b, 0xc1, 0xa8, /* ldp x29, x30, [sp], #16 */
	0xc0, 0x03, 0x5f, 0xd6, /* ret */
#endif
};

HOT uint64_t jit_caller(void *argument)
{
	code_function code = (code_function)argument;
	uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9);
	do {
		code(2000000);
		calls++;
	} while (wall_ns() < end);
	return calls;
}

static void write_map(const char *how, void *code)
{
	if (strcmp(how, "none") == 0)
		return;
	snprintf(map_path, sizeof map_path, "/tmp/perf-%d.map", getpid());
	FILE *map = fopen(map_path, "we");
	if (!map)
		die(map_path);
	unsigned long address = (unsigned long)(uintptr_t)code, size = sizeof loop_code;
	if (strcmp(how, "hostile") == 0) {
		fprintf(map, "\n \nzzzz 10 not_hex\n%lx\n%lx %lx\n", address, address, size);
		fprintf(map, "ffffffffffffffff ffffffffffffffff wraps_around\n0 0 empty\n%lx 0 nothing\n", address);
		fwrite("\0\0\377\376 1 \0bad\n", 1, 12, map);
		fprintf(map, "123456789012345678901234567890 1 too_long_a_number\n-5 10 negative\n");
		for (int i = 0; i < 200000; i++)
			fputc('A', map);
		fprintf(map, "\n1 7fffffffffffffff covers_everything\n");
		for (int i = 0; i < 20000; i++)
			fprintf(map, "%lx %x overlapping_%d\n", address - 4096 + (unsigned long)i % 8192, 1 + i % 64, i);
	} else {
		fprintf(map, "%lx %lx jit_hot_loop\n", address, size);
	}
	if (strcmp(how, "truncated") == 0)
		fprintf(map, "%lx 1", address + 4096);
	fclose(map);
}

int main(int argc, char **argv)
{
	seconds = number(argc, argv, "--seconds", 5);
	watchdog((unsigned)(seconds + 30));
	const char *file = option(argc, argv, "--file", NULL);
	void *code;
	if (file) {
		int fd = open(file, O_RDWR | O_CLOEXEC);
		if (fd == -1 || pwrite(fd, loop_code, sizeof loop_code, 4096) != (ssize_t)sizeof loop_code)
			die(file);
		code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 4096);
		close(fd);
		if (code == MAP_FAILED)
			die("mmap");
	} else {
		code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (code == MAP_FAILED)
			die("mmap");
		memcpy(code, loop_code, sizeof loop_code);
		if (mprotect(code, 4096, PROT_READ | PROT_EXEC))
			die("mprotect");
		__builtin___clear_cache((char *)code, (char *)code + sizeof loop_code);
		signal(SIGTERM, clean);
		signal(SIGINT, clean);
		signal(SIGHUP, clean);
		signal(SIGALRM, clean);
		write_map(option(argc, argv, "--map", "good"), code);
	}
	printf("{\"program\":\"jit\",\"event\":\"ready\",\"pid\":%d}\n", getpid());
	fflush(stdout);
	root_of_stack(jit_caller, code);
	printf("{\"program\":\"jit\",\"pid\":%d,\"calls\":%lu,\"cpu_ns\":%lu}\n", getpid(), calls, process_cpu_ns());
	clean(0);
	return 0;
}

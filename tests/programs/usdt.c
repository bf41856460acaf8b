/* usdt --calls N
 *
 * Has a USDT probe lightfoot:tick with a semaphore and one argument, written out as <sys/sdt.h> would. Says where it is, waits for a byte on stdin,
 * then passes the probe N times, as programs do it: only if the semaphore is up. Waits for the end of stdin, and says how often it was up and
 * what the semaphore is in the end.
 */
#include "program.h"

__attribute__((section(".probes"), used)) volatile unsigned short tick_semaphore;

NOINLINE void tick(uint64_t number)
{
	__asm__ volatile("tick_probe: nop\n"
			 ".pushsection .note.stapsdt,\"?\",\"note\"\n"
			 ".balign 4\n"
			 ".4byte 992f-991f, 994f-993f, 3\n"
			 "991: .asciz \"stapsdt\"\n"
			 "992: .balign 4\n"
			 "993: .8byte tick_probe\n"
			 ".8byte _.stapsdt.base\n"
			 ".8byte tick_semaphore\n"
			 ".asciz \"lightfoot\"\n"
			 ".asciz \"tick\"\n"
#if defined(__x86_64__)
			 ".asciz \"8@%%rdi\"\n"
#else
			 ".asciz \"8@x0\"\n"
#endif
			 "994: .balign 4\n"
			 ".popsection\n"
			 ".ifndef _.stapsdt.base\n"
			 ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
			 ".weak _.stapsdt.base\n"
			 ".hidden _.stapsdt.base\n"
			 "_.stapsdt.base: .space 1\n"
			 ".size _.stapsdt.base, 1\n"
			 ".popsection\n"
			 ".endif\n"
			 :
			 : "r"(number));
}
extern char tick_probe[] __attribute__((visibility("hidden")));

/* Offset in its file of what lies at an address. */
static unsigned long file_offset(const volatile void *address)
{
	unsigned long start, end, offset, wanted = (unsigned long)address, found = 0;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 && start <= wanted && wanted < end)
			found = wanted - start + offset;
	if (!maps)
		die("/proc/self/maps");
	fclose(maps);
	return found;
}

int main(int argc, char **argv)
{
	uint64_t calls = (uint64_t)number(argc, argv, "--calls", 10007), up = 0;
	watchdog(60);
	printf("{\"ready\":true,\"probe\":%lu,\"semaphore\":%lu}\n", file_offset(tick_probe), file_offset(&tick_semaphore));
	fflush(stdout);
	char byte;
	if (read(0, &byte, 1) != 1)
		return 97;
	for (uint64_t i = 0; i < calls; i++)
		if (tick_semaphore) {
			up++;
			tick(i);
		}
	printf("{\"up\":%lu}\n", up);
	fflush(stdout);
	while (read(0, &byte, 1) == 1)
		;
	printf("{\"up\":%lu,\"semaphore\":%u}\n", up, tick_semaphore);
	return 0;
}

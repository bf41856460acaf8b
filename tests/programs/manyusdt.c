/* manyusdt [--seconds S]
 *
 * 1,000 USDT probes lightfoot:p0001 to p1000, each with a semaphore of its own, none ever passed: for attaching and detaching. Says when it is ready.
 */
#include "program.h"

#define PROBES 1000

__attribute__((section(".probes"), used)) volatile unsigned short many_semaphores[PROBES];

NOINLINE void pass(void)
{
	__asm__ volatile(".set number, 0\n"
			 ".rept 1000\n"
			 ".set number, number + 1\n"
			 ".set at, .\n"
			 "990: nop\n"
			 ".pushsection .note.stapsdt,\"?\",\"note\"\n"
			 ".balign 4\n"
			 ".4byte 992f-991f, 994f-993f, 3\n"
			 "991: .asciz \"stapsdt\"\n"
			 "992: .balign 4\n"
			 "993: .8byte 990b\n"
			 ".8byte _.stapsdt.base\n"
			 ".8byte many_semaphores + 2 * (number - 1)\n"
			 ".asciz \"lightfoot\"\n"
			 /* p0001 to p1000, digit by digit */
			 ".ascii \"p\"\n"
			 ".byte 48 + number / 1000, 48 + number / 100 % 10, 48 + number / 10 % 10, 48 + number % 10, 0\n"
			 ".asciz \"\"\n"
			 "994: .balign 4\n"
			 ".popsection\n"
			 ".endr\n"
			 ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
			 ".weak _.stapsdt.base\n"
			 ".hidden _.stapsdt.base\n"
			 "_.stapsdt.base: .space 1\n"
			 ".size _.stapsdt.base, 1\n"
			 ".popsection\n");
}

int main(int argc, char **argv)
{
	double seconds = number(argc, argv, "--seconds", 30);
	watchdog((unsigned)(seconds + 30));
	if (seconds < 0)
		pass();
	printf("{\"ready\":true}\n");
	fflush(stdout);
	sleep_s(seconds);
	return 0;
}

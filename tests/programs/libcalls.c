/* libcalls LIBRARY FUNCTION
 *
 * Loads a libstdc++ from LIBRARY and calls one of its functions (those below, by mangled name) as often as each line of stdin says; answers
 * each with the CPU time that the thread took for it. Ends with stdin.
 */
#include "program.h"
#include <dlfcn.h>

typedef long (*function)(const void *, long, long, void *);

int main(int argc, char **argv)
{
	static char object[64];
	static int status;
	static const struct {
		const char *name;
		const void *first;
		void *fourth;
	} known[] = {
		{ "_ZNSt6localeC1Ev", object, NULL },                    /* std::locale::locale() */
		{ "_ZNSt6locale7classicEv", NULL, NULL },                /* std::locale::classic() */
		{ "_ZSt19uncaught_exceptionsv", NULL, NULL },            /* std::uncaught_exceptions() */
		{ "__cxa_current_exception_type", NULL, NULL },
		{ "_ZNSt8ios_base15sync_with_stdioEb", (void *)1, NULL }, /* std::ios_base::sync_with_stdio(true): as it is already */
		{ "__cxa_demangle", "?", &status },                      /* no name: nothing to demangle */
	};
	if (argc != 3)
		die("libcalls LIBRARY FUNCTION");
	watchdog(600);
	void *library = dlopen(argv[1], RTLD_NOW);
	if (!library)
		die(dlerror());
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		if (strcmp(argv[2], known[i].name))
			continue;
		function call = (function)dlsym(library, known[i].name);
		unsigned long calls;
		if (!call)
			die(known[i].name);
		printf("{\"program\":\"libcalls\",\"pid\":%d}\n", getpid());
		fflush(stdout);
		while (scanf("%lu", &calls) == 1) {
			uint64_t start = thread_cpu_ns();
			for (unsigned long n = 0; n < calls; n++)
				call(known[i].first, 0, 0, known[i].fourth);
			printf("{\"ns\":%lu}\n", thread_cpu_ns() - start);
			fflush(stdout);
		}
		return 0;
	}
	die(argv[2]);
}

/* reuse: loads libreuse_a.so, calls reuse_a, unloads it, then the same with libreuse_b.so and reuse_b: libraries of the same size
 * whose functions lie at the same addresses with frames of different sizes. main;call_library;reuse_a;reuse_a_leaf 70 %,
 * main;call_library;reuse_b;reuse_b_leaf 30 %. Prints how often one was loaded where the other had been. */
#include "corpus.h"
#include <dlfcn.h>

static volatile uint64_t sink;
typedef uint64_t (*work)(uint64_t);
static work last;
static uint64_t reused;

FUNCTION void call_library(const char *folder, char which, uint64_t unit)
{
	char path[4096], name[] = { 'r', 'e', 'u', 's', 'e', '_', which, 0 };
	snprintf(path, sizeof path, "%s/lib%s.so", folder, name);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(98);
	}
	work function = (work)dlsym(library, name);
	reused += function == last;
	last = function;
	sink += function(unit);
	dlclose(library);
	STAY;
}

int main(int argc, char **argv)
{
	struct course course = course_of(argc, argv);
	char folder[4096];
	ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
	if (length <= 0)
		die("/proc/self/exe");
	folder[length] = 0;
	*strrchr(folder, '/') = 0;
	uint64_t calls = 0;
	for (uint64_t unit; (unit = next_long_turn(&course)); calls += 2) {
		call_library(folder, 'a', unit);
		call_library(folder, 'b', unit);
	}
	printf("{\"program\":\"reuse\",\"pid\":%d,\"calls\":%lu,\"reused\":%lu}\n", getpid(), (unsigned long)calls, (unsigned long)reused);
	return 0;
}

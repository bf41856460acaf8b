/* linkage: main;bound;call_many calls 1,000 one-line functions of another library through its procedure linkage table: a third
 * of the samples are in the table itself. main;binding;... loads that library again and again, bound lazily, so that the
 * dynamic linker looks each of them up: main;binding;call_many;(ld.so), with the linker's trampoline between them, which keeps the
 * vector registers on an aligned stack. The libraries lie beside the program. */
#include "corpus.h"
#include <dlfcn.h>

static volatile uint64_t sink;
typedef unsigned long (*many)(unsigned long);

static void *load(const char *folder, const char *name, many *function)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(98);
	}
	*function = (many)dlsym(library, "call_many");
	return library;
}

FUNCTION void bound(many call, uint64_t turns)
{
	for (uint64_t i = 0; i < turns; i++)
		sink += call(i);
	STAY;
}

FUNCTION void binding(const char *folder)
{
	many call;
	void *library = load(folder, "libmanycaller.so", &call);
	sink += call(1);
	RUBBISH;
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
	many call;
	load(folder, "libmanystays.so", &call);
	while (next_long_turn(&course)) {
		bound(call, 400);
		binding(folder);
	}
	return done("linkage", &course);
}

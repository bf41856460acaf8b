/* pthreads: four threads, root (libc's two functions);body;in_thread;thread_leaf 80 %, and thread_exit_leaf 20 % in a destructor of
 * thread-specific data, which runs below libc's start_thread after body has returned. Threads live 20 ms each. */
#include "corpus.h"

DEFINE_LEAF(thread_leaf)
DEFINE_LEAF(thread_exit_leaf)

static volatile uint64_t sink;
static pthread_key_t key;

FUNCTION void at_exit(void *unit)
{
	sink += thread_exit_leaf(20 * 100 * (uint64_t)(uintptr_t)unit, sink);
	STAY;
}

FUNCTION uint64_t in_thread(uint64_t unit, uint64_t x)
{
	RUBBISH;
	for (int i = 0; i < 100; i++)
		x = thread_leaf(80 * unit, x);
	STAY;
	return x;
}

FUNCTION void *body(void *unit)
{
	pthread_setspecific(key, unit);
	sink += in_thread((uint64_t)(uintptr_t)unit, sink);
	STAY;
	return NULL;
}

int main(int argc, char **argv)
{
	struct course course = course_of(argc, argv);
	pthread_key_create(&key, at_exit);
	for (uint64_t unit; (unit = next_long_turn(&course));) {
		pthread_t threads[4];
		for (int i = 0; i < 4; i++)
			if (pthread_create(&threads[i], NULL, body, (void *)(uintptr_t)unit))
				die("pthread_create");
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
	}
	return done("pthreads", &course);
}

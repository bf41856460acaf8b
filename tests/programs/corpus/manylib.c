/* A library with 1,000 functions (MANY_CALLEE) or one that calls them all through its procedure linkage table. */
#define REPEAT_10(M, n) M(n##0) M(n##1) M(n##2) M(n##3) M(n##4) M(n##5) M(n##6) M(n##7) M(n##8) M(n##9)
#define REPEAT_100(M, n) REPEAT_10(M, n##0) REPEAT_10(M, n##1) REPEAT_10(M, n##2) REPEAT_10(M, n##3) REPEAT_10(M, n##4) \
	REPEAT_10(M, n##5) REPEAT_10(M, n##6) REPEAT_10(M, n##7) REPEAT_10(M, n##8) REPEAT_10(M, n##9)
#define REPEAT_1000(M, n) REPEAT_100(M, n##0) REPEAT_100(M, n##1) REPEAT_100(M, n##2) REPEAT_100(M, n##3) REPEAT_100(M, n##4) \
	REPEAT_100(M, n##5) REPEAT_100(M, n##6) REPEAT_100(M, n##7) REPEAT_100(M, n##8) REPEAT_100(M, n##9)

#ifdef MANY_CALLEE
#define DEFINE(n) unsigned long many_function_##n(unsigned long x) { return x * 3 + 1; }
REPEAT_1000(DEFINE, 1)
#else
#define DECLARE(n) unsigned long many_function_##n(unsigned long x);
#define CALL(n) x = many_function_##n(x);
REPEAT_1000(DECLARE, 1)
unsigned long call_many(unsigned long x)
{
	REPEAT_1000(CALL, 1)
	return x;
}
#endif

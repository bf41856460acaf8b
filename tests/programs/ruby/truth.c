/*
 * A C extension that calls Ruby back, and knows the truth about it: each function notes when it is entered how many frames Ruby has below
 * it at that moment (`rb_profile_frames`, its own one included). `Native.chain` tells all of it, the root first: Ruby's frames with
 * their full labels, and the functions of C where they stand.
 */
#include <ruby.h>
#include <ruby/debug.h>
#include <stdlib.h>

#define APART __attribute__((noinline))
#define MARKS 256
#define FRAMES 1024

struct mark {
	const char *name;
	int frames;
};

static struct mark marks[MARKS];
static int depth;
static VALUE frames[FRAMES];
static int lines[FRAMES];

static void enter(const char *name)
{
	if (depth < MARKS)
		marks[depth] = (struct mark){ name, rb_profile_frames(0, FRAMES, frames, lines) };
	depth++;
}

/* Native.chain: without its own frame. */
static VALUE native_chain(VALUE self)
{
	VALUE chain = rb_ary_new();
	int count = rb_profile_frames(0, FRAMES, frames, lines), mark = 0;

	for (int at = 0; at < count; at++) {
		/* The newest is first; it is ours. */
		if (at < count - 1)
			rb_ary_push(chain, rb_profile_frame_full_label(frames[count - 1 - at]));
		for (; mark < depth && mark < MARKS && marks[mark].frames == at + 1; mark++)
			rb_ary_push(chain, rb_str_new_cstr(marks[mark].name));
	}
	return chain;
}

/* Two native frames between two of Ruby. */
APART VALUE native_inner(VALUE receiver, VALUE name, VALUE argument)
{
	VALUE result;

	enter("native_inner");
	result = rb_funcall(receiver, SYM2ID(name), 1, argument);
	depth--;
	return result;
}

/* Native.call(receiver, name, argument) */
APART VALUE native_call(VALUE self, VALUE receiver, VALUE name, VALUE argument)
{
	VALUE result;

	enter("native_call");
	result = native_inner(receiver, name, argument);
	depth--;
	return result;
}

/* Native.each(count) { |number| } */
APART VALUE native_each(VALUE self, VALUE count)
{
	long last = NUM2LONG(count);

	enter("native_each");
	for (long number = 0; number < last; number++)
		rb_yield(LONG2NUM(number));
	depth--;
	return Qnil;
}

APART int native_compare(const void *one, const void *other)
{
	int order;

	enter("native_compare");
	order = NUM2INT(rb_yield_values(2, LONG2NUM(*(const long *)one), LONG2NUM(*(const long *)other)));
	depth--;
	return order;
}

/* Native.sort { |one, other| }: the C library sorts three numbers and asks the block. */
APART VALUE native_sort(VALUE self)
{
	long numbers[] = { 3, 1, 2 };

	enter("native_sort");
	qsort(numbers, 3, sizeof(*numbers), native_compare);
	depth--;
	return LONG2NUM(numbers[0]);
}

APART VALUE native_protected(VALUE argument)
{
	VALUE result;

	enter("native_protected");
	result = rb_yield(argument);
	depth--;
	return result;
}

/* Native.protect { } */
APART VALUE native_protect(VALUE self)
{
	int state = 0;
	VALUE result;

	enter("native_protect");
	result = rb_protect(native_protected, Qnil, &state);
	depth--;
	if (state)
		rb_jump_tag(state);
	return result;
}

void Init_truth(void)
{
	VALUE native = rb_define_module("Native");

	rb_define_singleton_method(native, "chain", native_chain, 0);
	rb_define_singleton_method(native, "call", native_call, 3);
	rb_define_singleton_method(native, "each", native_each, 1);
	rb_define_singleton_method(native, "sort", native_sort, 0);
	rb_define_singleton_method(native, "protect", native_protect, 0);
}

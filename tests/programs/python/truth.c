/*
 * A C extension that calls Python back, and knows the truth about it: each function notes when it is entered how many frames Python has
 * below it at that moment. `marks()` tells these notes, outermost first: (name of the C function, frames of Python below it).
 *
 * Built with the headers of each interpreter it is used in; nothing but the documented API.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>

#define APART __attribute__((noinline))
#define MARKS 256

struct mark {
	const char *name;
	long frames;
};

static struct mark marks[MARKS];
static int depth;

/* Frames of Python below, as its own frame objects tell; -1 with an exception. */
static long frames_below(void)
{
	PyObject *frame = (PyObject *)PyEval_GetFrame();
	long count = 0;

	Py_XINCREF(frame);
	while (frame && frame != Py_None) {
		PyObject *back = PyObject_GetAttrString(frame, "f_back");

		Py_DECREF(frame);
		frame = back;
		count++;
	}
	Py_XDECREF(frame);
	return frame ? count : -1;
}

static void enter(const char *name)
{
	if (depth < MARKS)
		marks[depth] = (struct mark){ name, frames_below() };
	depth++;
}

/* Two native frames between two of Python; what comes after the call keeps it from being the last thing done. */
APART PyObject *truth_inner(PyObject *function, PyObject *arguments)
{
	PyObject *result;

	enter("truth_inner");
	result = PyObject_Call(function, arguments, NULL);
	depth--;
	return result;
}

/* call(function, *arguments) */
APART PyObject *truth_call(PyObject *self, PyObject *arguments)
{
	PyObject *function = PyTuple_GetItem(arguments, 0);
	PyObject *rest = PyTuple_GetSlice(arguments, 1, PyTuple_Size(arguments)), *result = NULL;

	enter("truth_call");
	if (function && rest)
		result = truth_inner(function, rest);
	Py_XDECREF(rest);
	depth--;
	return result;
}

/* each(count, function): function(0), function(1) ... */
APART PyObject *truth_each(PyObject *self, PyObject *arguments)
{
	long count;
	PyObject *function;

	if (!PyArg_ParseTuple(arguments, "lO", &count, &function))
		return NULL;
	enter("truth_each");
	for (long number = 0; number < count; number++) {
		PyObject *result = PyObject_CallFunction(function, "l", number);

		if (!result) {
			depth--;
			return NULL;
		}
		Py_DECREF(result);
	}
	depth--;
	Py_RETURN_NONE;
}

static PyObject *comparing;

APART int truth_compare(const void *one, const void *other)
{
	PyObject *result;
	long order;

	enter("truth_compare");
	result = PyObject_CallFunction(comparing, "ll", *(const long *)one, *(const long *)other);
	order = result ? PyLong_AsLong(result) : 0;
	Py_XDECREF(result);
	depth--;
	return (int)order;
}

/* sort(function): the C library sorts three numbers and asks function(one, other). */
APART PyObject *truth_sort(PyObject *self, PyObject *function)
{
	long numbers[] = { 3, 1, 2 };
	PyObject *before = comparing;

	enter("truth_sort");
	comparing = function;
	qsort(numbers, 3, sizeof(*numbers), truth_compare);
	comparing = before;
	depth--;
	if (PyErr_Occurred())
		return NULL;
	return PyLong_FromLong(numbers[0]);
}

static PyObject *truth_marks(PyObject *self, PyObject *nothing)
{
	PyObject *list = PyList_New(0);

	for (int at = 0; list && at < depth && at < MARKS; at++) {
		PyObject *pair = Py_BuildValue("(sl)", marks[at].name, marks[at].frames);

		if (!pair || PyList_Append(list, pair))
			Py_CLEAR(list);
		Py_XDECREF(pair);
	}
	return list;
}

static PyMethodDef methods[] = {
	{ "call", truth_call, METH_VARARGS, NULL },
	{ "each", truth_each, METH_VARARGS, NULL },
	{ "sort", truth_sort, METH_O, NULL },
	{ "marks", truth_marks, METH_NOARGS, NULL },
	{ NULL, NULL, 0, NULL },
};

static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, "truth", NULL, -1, methods, NULL, NULL, NULL, NULL };

PyMODINIT_FUNC PyInit_truth(void)
{
	return PyModule_Create(&module);
}

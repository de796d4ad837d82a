/* SPDX-License-Identifier: BSD-2-Clause */
/* A program that knows nothing of regc, and loads a plug-in that does. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *handle = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	int (*run)(void) = NULL;
	int r;

	if (handle)
		run = (int (*)(void))dlsym(handle, "churn_run");
	if (!run) {
		fprintf(stderr, "load: %s\n", argc > 1 ? dlerror() : "no name");
		return 77;
	}
	r = run();
	/* And away with it; what regc patched must outlive the plug-in. */
	dlclose(handle);
	handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	run = handle ? (int (*)(void))dlsym(handle, "churn_run") : NULL;
	if (!r)
		r = run ? run() : 2;
	return r;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Where in the program a thread waits; see instruction.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/instruction.h"

static size_t find(const Regc__AdminReply *reply, const char *name)
{
	size_t i;

	for (i = 0; i < reply->n_columns; i++)
		if (!strcmp(reply->columns[i]->name, name))
			break;
	return i;
}

/*
 * /proc/PID/task/TID/syscall, proc(5): the last word is the instruction pointer, in
 * a page fault as in a system call; "running" has none.
 */
static uint64_t instruction_of(uint64_t pid, uint64_t tid)
{
	char path[64], text[256], *last;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%llu/task/%llu/syscall",
		 (unsigned long long)pid, (unsigned long long)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	last = strrchr(text, ' ');
	return last ? strtoull(last + 1, NULL, 16) : 0;
}

void instruction_fill(const Regc__AdminReply *reply)
{
	size_t pid = find(reply, "pid"), thread = find(reply, "thread");
	size_t to = find(reply, "instruction"), i;

	for (i = 0; i < reply->n_rows; i++) {
		const Regc__Row *row = reply->rows[i];

		if (pid < row->n_cells && thread < row->n_cells &&
		    to < row->n_cells && row->cells[thread]->number)
			row->cells[to]->number =
				instruction_of(row->cells[pid]->number,
					       row->cells[thread]->number);
	}
}

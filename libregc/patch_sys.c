/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads /proc/self/maps with system calls made by hand, without allocating. */
#include "libregc/patch_sys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int patch_maps_open(struct patch_maps *m, const char *path)
{
	m->fd = patch_raw_open(path, O_RDONLY);
	m->n = m->at = 0;
	return m->fd < 0 ? m->fd : 0;
}

char *patch_maps_line(struct patch_maps *m)
{
	char *line, *end;
	long got;

	for (;;) {
		line = m->buf + m->at;
		end = memchr(line, '\n', m->n - m->at);
		if (end) {
			*end = 0;
			m->at = (size_t)(end + 1 - m->buf);
			return line;
		}
		m->n -= m->at;
		memmove(m->buf, line, m->n);
		m->at = 0;
		got = patch_raw(SYS_read, m->fd, (long)(m->buf + m->n),
				(long)(sizeof(m->buf) - m->n), 0, 0, 0);
		if (got == -EINTR)
			continue;
		if (got <= 0)
			return NULL;
		m->n += (size_t)got;
	}
}

static const char *scan_hex(const char *s, uint64_t *ret)
{
	uint64_t v = 0;

	for (;; s++) {
		if (*s >= '0' && *s <= '9')
			v = v << 4 | (uint64_t)(*s - '0');
		else if (*s >= 'a' && *s <= 'f')
			v = v << 4 | (uint64_t)(*s - 'a' + 10);
		else
			break;
	}
	*ret = v;
	return s;
}

/* start-end rwxp offset major:minor inode name; false for other lines. */
bool patch_map_parse(const char *s, struct patch_map *ret)
{
	unsigned int field;

	s = scan_hex(s, &ret->start);
	if (*s++ != '-')
		return false;
	s = scan_hex(s, &ret->end);
	if (*s++ != ' ' || strlen(s) < 4)
		return false;
	ret->prot = (s[0] == 'r' ? PROT_READ : 0) |
		    (s[1] == 'w' ? PROT_WRITE : 0) |
		    (s[2] == 'x' ? PROT_EXEC : 0);
	ret->shared = s[3] == 's';
	for (field = 0; field < 3 && *s; field++) {
		s = strchr(s, ' ');
		if (!s)
			return false;
		s++;
	}
	ret->file = *s != '0';
	s = strchr(s, ' ');
	ret->name = s ? s + strspn(s, " ") : "";
	return true;
}

bool patch_maps_next(struct patch_maps *m, struct patch_map *ret)
{
	const char *line;

	while ((line = patch_maps_line(m)))
		if (patch_map_parse(line, ret))
			return true;
	return false;
}

int patch_map_find(uint64_t a, struct patch_map *ret, char *name, size_t n_name)
{
	struct patch_maps m;
	struct patch_map map;
	int rc = patch_maps_open(&m, "/proc/self/maps");

	if (rc < 0)
		return rc;
	rc = -ENOENT;
	while (rc && patch_maps_next(&m, &map))
		if (a >= map.start && a < map.end)
			rc = 0;
	patch_raw_close(m.fd);
	if (rc)
		return rc;
	snprintf(name, n_name, "%s", map.name);
	map.name = name;
	*ret = map;
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Words of the command line turned into numbers. */
#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli/parse.h"

/*
 * strtoull() alone would take a sign, blanks in front and octal; none of them
 * is meant here.
 */
static int parse_digits(const char *text, const char **ret_end, uint64_t *ret)
{
	int base = 10;
	unsigned long long value;
	char *end;

	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
		base = 16;
		text += 2;
	}
	if (!(base == 16 ? isxdigit((unsigned char)*text) :
			   isdigit((unsigned char)*text)))
		return -EINVAL;
	/* "0x0x1": strtoull() would take the second prefix */
	if (base == 16 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, base);
	*ret_end = end;
	if (errno == ERANGE)
		return -ERANGE;
	*ret = value;
	return 0;
}

int parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
	const char *end = text;
	uint64_t value = 0;
	int r = parse_digits(text, &end, &value);

	if (r == -EINVAL || *end != '\0')
		return -EINVAL;
	if (r < 0 || value < min || value > max)
		return -ERANGE;
	*ret = value;
	return 0;
}

int parse_bytes(const char *text, uint64_t *ret)
{
	static const char suffixes[] = "KMGT";
	const char *end = text;
	const char *suffix;
	unsigned int shift = 0;
	uint64_t value = 0;
	int r = parse_digits(text, &end, &value);

	if (r == -EINVAL)
		return r;
	if (*end != '\0') {
		suffix = strchr(suffixes, toupper((unsigned char)*end));
		if (!suffix || end[1] != '\0')
			return -EINVAL;
		shift = 10 * (unsigned int)(suffix - suffixes + 1);
	}
	if (r < 0 || value == 0 || value > UINT64_MAX >> shift)
		return -ERANGE;
	*ret = value << shift;
	return 0;
}

/* Bits as REGC_ACCESS_* in regc.h; reading is always allowed and has none. */
static const struct {
	const char *name;
	uint64_t bit;
} access_words[] = {
	{ "read", 0 },
	{ "write", 1 << 0 },
	{ "remote-read", 1 << 1 },
	{ "remote-write", 1 << 2 },
	{ "remote-atomic", 1 << 3 },
	{ "relaxed-ordering", 1 << 4 },
};

int parse_access(const char *text, uint64_t *ret)
{
	const size_t n_words = sizeof(access_words) / sizeof(access_words[0]);
	uint64_t access = 0;
	size_t len, i;

	for (;; text += len + 1) {
		len = strcspn(text, ",");
		for (i = 0; i < n_words; i++) {
			if (strlen(access_words[i].name) == len &&
			    !memcmp(access_words[i].name, text, len))
				break;
		}
		if (i == n_words)
			return -EINVAL;
		access |= access_words[i].bit;
		if (text[len] == '\0')
			break;
	}
	*ret = access;
	return 0;
}

int parse_state(const char *text, uint64_t *ret)
{
	if (!strcmp(text, "live"))
		*ret = 1;
	else if (!strcmp(text, "void"))
		*ret = 2;
	else
		return -EINVAL;
	return 0;
}

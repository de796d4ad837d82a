/* SPDX-License-Identifier: BSD-2-Clause */
/* The option table: values, files, and what is printed from it. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "regcached/log.h"
#include "regcached/options.h"
#include "tests/support/suite.h"

#define MEMORY (UINT64_C(1000) << 20)

static struct options o;
static char error[OPTION_ERROR_BYTES];

static void setup(void)
{
	options_init(&o, MEMORY);
	error[0] = 0;
}

static int set(const char *pair)
{
	return options_set_pair(&o, pair, error);
}

START_TEST(defaults_are_those_of_the_table)
{
	char text[64];
	int i;

	ck_assert_uint_eq(o.value[OPTION_NODE_BYTES], MEMORY / 2);
	ck_assert_uint_eq(o.value[OPTION_SPACE_BYTES], MEMORY / 4);
	ck_assert_uint_eq(o.value[OPTION_SPACE_REGIONS], 131072);
	for (i = 0; i < OPTION_N; i++) {
		const struct option_row *row = option_row((enum option_id)i);

		ck_assert_int_eq(option_find(row->name, strlen(row->name)), i);
		ck_assert(!o.set[i]);
		ck_assert_uint_gt(strlen(row->doc), 10);
		if (row->unit == OPTION_UNIT_WORD ||
		    row->unit == OPTION_UNIT_NUMBER)
			ck_assert_str_eq(option_text(&o, (enum option_id)i, text,
						     sizeof(text)),
					 row->initial);
	}
}
END_TEST

START_TEST(sizes_take_suffixes_and_percent)
{
	static const struct {
		const char *text;
		uint64_t value;
	} good[] = {
		{ "4096", 4096 },
		{ "8K", 8192 },
		{ "8k", 8192 },
		{ "3M", 3 << 20 },
		{ "1G", 1 << 30 },
		{ "2T", UINT64_C(2) << 40 },
		{ "100%", MEMORY },
		{ "1%", MEMORY / 100 },
		{ "9223372036854775807", UINT64_MAX >> 1 },
	};
	static const char *const bad[] = {
		"", "K", "-1", "+1", " 1", "1 K", "1KB", "1X", "1.5G", "0x10",
		"101%", "-1%", "%", "5%%", "4095", "0", "0%",
		"9223372036854775808", "8388608T", "18446744073709551616",
		"99999999999999999999999",
	};
	char pair[64];
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(*good); i++) {
		snprintf(pair, sizeof(pair), "limit.node.bytes=%s", good[i].text);
		ck_assert_msg(set(pair) == 0, "%s", error);
		ck_assert_uint_eq(o.value[OPTION_NODE_BYTES], good[i].value);
	}
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(pair, sizeof(pair), "limit.node.bytes=%s", bad[i]);
		ck_assert_msg(set(pair) == -EINVAL, "%s is taken", pair);
		ck_assert_ptr_nonnull(strstr(error, "limit.node.bytes"));
		ck_assert_uint_eq(o.value[OPTION_NODE_BYTES], UINT64_MAX >> 1);
	}
}
END_TEST

START_TEST(numbers_are_bounded)
{
	ck_assert_int_eq(set("limit.space.regions=0"), -EINVAL);
	ck_assert_int_eq(set("limit.space.regions=1"), 0);
	ck_assert_int_eq(set("limit.space.regions=1048576"), 0);
	ck_assert_int_eq(set("limit.space.regions=1048577"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "within 1 and 1048576"));
	ck_assert_int_eq(set("limit.space.regions=1K"), -EINVAL);
	ck_assert_uint_eq(o.value[OPTION_SPACE_REGIONS], 1048576);
}
END_TEST

START_TEST(words_are_those_of_the_table)
{
	ck_assert_int_eq(set("mode=strict"), 0);
	ck_assert_uint_eq(o.value[OPTION_MODE], 2); /* REGC_MODE_STRICT */
	ck_assert(o.set[OPTION_MODE]);
	ck_assert_int_eq(set("mode=Strict"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "off, fast, strict, auto"));
	ck_assert_int_eq(set("mode="), -EINVAL);
	ck_assert_int_eq(set("log.level=debug"), 0);
	ck_assert_uint_eq(o.value[OPTION_LOG_LEVEL], LOG_LEVEL_DEBUG);
}
END_TEST

START_TEST(unknown_name_is_quoted)
{
	ck_assert_int_eq(set("limit.nod.bytes=1"), -EINVAL);
	ck_assert_str_eq(error, "unknown option \"limit.nod.bytes\"");
	ck_assert_int_eq(set("limit.node.byte=1"), -EINVAL);
	ck_assert_int_eq(set("limit.node.bytess=1"), -EINVAL);
	ck_assert_int_eq(set("\x1b[31m=1"), -EINVAL);
	ck_assert_str_eq(error, "unknown option \"\\x1b[31m\"");
	ck_assert_int_eq(set("mode"), -EINVAL);
	ck_assert_int_eq(set("=1"), -EINVAL);
}
END_TEST

START_TEST(socket_path_must_fit)
{
	char pair[256];

	snprintf(pair, sizeof(pair), "socket=%0107d", 0);
	ck_assert_int_eq(set(pair), 0);
	ck_assert_uint_eq(strlen(o.socket), 107);
	snprintf(pair, sizeof(pair), "socket=%0108d", 0);
	ck_assert_int_eq(set(pair), -EINVAL);
	ck_assert_uint_eq(strlen(o.socket), 107);
}
END_TEST

static int parse(const char *text)
{
	return options_parse(&o, "file.conf", text, error);
}

START_TEST(file_has_comments_blanks_and_a_last_line_without_end)
{
	ck_assert_int_eq(parse(""), 0);
	ck_assert_int_eq(parse("\n\n  # only this\n"), 0);
	ck_assert_int_eq(parse("socket = /run/a#b #c\n"), 0);
	ck_assert_str_eq(o.socket, "/run/a#b");
	ck_assert_int_eq(parse("mode=fast # so\n\tlimit.node.regions  =\t5  \r\n"
			       "log.level = warn"), 0);
	ck_assert_uint_eq(o.value[OPTION_MODE], 1);
	ck_assert_uint_eq(o.value[OPTION_NODE_REGIONS], 5);
	ck_assert_uint_eq(o.value[OPTION_LOG_LEVEL], LOG_LEVEL_WARN);
}
END_TEST

START_TEST(error_in_a_file_has_its_line)
{
	char text[2048];

	ck_assert_int_eq(parse("mode = fast\n\nmood = fast\n"), -EINVAL);
	ck_assert_str_eq(error, "file.conf:3: unknown option \"mood\"");
	ck_assert_int_eq(parse("mode fast\n"), -EINVAL);
	ck_assert_str_eq(error, "file.conf:1: \"mode fast\" is not NAME = VALUE");
	ck_assert_int_eq(parse("mode = fast\nmode = strict\n"), -EINVAL);
	ck_assert_str_eq(error, "file.conf:2: option mode stands here twice");
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = 0;
	ck_assert_int_eq(parse(text), -EINVAL);
	ck_assert_str_eq(error, "file.conf:1: line is too long");
	ck_assert_int_eq(options_read(&o, "/nowhere/x", error), -ENOENT);
	ck_assert_ptr_nonnull(strstr(error, "/nowhere/x: No such file"));
	ck_assert_int_eq(options_read(&o, "/", error), -EISDIR);
	ck_assert_int_ne(options_read(&o, "/dev/zero", error), 0);
}
END_TEST

struct text {
	char *all;
	size_t n;
};

static void collect(void *arg, const char *text)
{
	struct text *t = arg;
	size_t n = strlen(text);

	t->all = realloc(t->all, t->n + n + 1);
	ck_assert_ptr_nonnull(t->all);
	memcpy(t->all + t->n, text, n + 1);
	t->n += n;
}

static char *collected(void (*print)(const struct option_out *out))
{
	struct text t = { NULL, 0 };
	struct option_out out = { collect, &t };

	print(&out);
	return t.all;
}

START_TEST(sample_without_its_comment_signs_is_the_default)
{
	char *sample = collected(options_print_sample), *p;
	struct options p0;
	int i;

	ck_assert_int_eq(parse(sample), 0);
	for (i = 0; i < OPTION_N; i++)
		ck_assert(!o.set[i]);
	for (p = sample; (p = strstr(p, "\n#")); p++)
		if (p[2] != ' ')
			p[1] = ' ';
	p0 = o;
	ck_assert_msg(parse(sample) == 0, "%s", error);
	for (i = 0; i < OPTION_N; i++) {
		ck_assert(o.set[i]);
		ck_assert_uint_eq(o.value[i], p0.value[i]);
	}
	free(sample);
}
END_TEST

static char *read_source(const char *name)
{
	const char *src = getenv("REGC_SRCDIR");
	char path[512], *text = calloc(1, 1 << 16);
	FILE *f;

	snprintf(path, sizeof(path), "%s/regcached/%s", src ? src : ".", name);
	f = fopen(path, "re");
	if (!f || !text)
		exit(77);
	ck_assert_uint_gt(fread(text, 1, (1 << 16) - 1, f), 0);
	fclose(f);
	return text;
}

START_TEST(sample_file_and_manual_page_are_those_of_the_table)
{
	char *sample = collected(options_print_sample);
	char *man = collected(options_print_man);
	char *file = read_source("regcached.conf");

	ck_assert_msg(!strcmp(sample, file),
		      "regcached.conf is not regcached --sample-config");
	free(file);
	file = read_source("regcached.conf.5");
	ck_assert_msg(strstr(file, man) != NULL,
		      "regcached.conf.5 has not regcached --man-options");
	free(file);
	free(man);
	free(sample);
}
END_TEST

START_TEST(escaped_text_is_printable_and_fits)
{
	char buf[16];

	ck_assert_str_eq(log_escape(buf, sizeof(buf), "plain", 5), "plain");
	ck_assert_str_eq(log_escape(buf, sizeof(buf), "plain", 2), "pl");
	ck_assert_str_eq(log_escape(buf, sizeof(buf), "a\nb\\", 4),
			 "a\\x0ab\\x5c");
	ck_assert_str_eq(log_escape(buf, 5, "\x01\x02", 2), "\\x01");
	ck_assert_str_eq(log_escape(buf, 4, "\x01", 1), "");
	ck_assert_str_eq(log_escape(buf, 3, "abc", 3), "ab");
	ck_assert_str_eq(log_escape(buf, 1, "abc", 3), "");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("config");
	TCase *t = tcase_create("config");

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, defaults_are_those_of_the_table);
	tcase_add_test(t, sizes_take_suffixes_and_percent);
	tcase_add_test(t, numbers_are_bounded);
	tcase_add_test(t, words_are_those_of_the_table);
	tcase_add_test(t, unknown_name_is_quoted);
	tcase_add_test(t, socket_path_must_fit);
	tcase_add_test(t, file_has_comments_blanks_and_a_last_line_without_end);
	tcase_add_test(t, error_in_a_file_has_its_line);
	tcase_add_test(t, sample_without_its_comment_signs_is_the_default);
	tcase_add_test(t, sample_file_and_manual_page_are_those_of_the_table);
	tcase_add_test(t, escaped_text_is_printable_and_fits);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}

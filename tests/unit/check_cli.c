/* SPDX-License-Identifier: BSD-2-Clause */
/* regc-ctl: words of the command line, and the printer of listings. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output.h"
#include "cli/parse.h"
#include "tests/support/suite.h"

START_TEST(number_takes_limits_and_refuses_junk)
{
	uint64_t n = 7;

	ck_assert_int_eq(parse_number("1", 1, 9, &n), 0);
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(parse_number("9", 1, 9, &n), 0);
	ck_assert_int_eq(parse_number("0", 1, 9, &n), -ERANGE);
	ck_assert_int_eq(parse_number("10", 1, 9, &n), -ERANGE);
	ck_assert_int_eq(parse_number("010", 1, 99, &n), 0);
	ck_assert_uint_eq(n, 10);
	ck_assert_int_eq(parse_number("0x1F", 0, 99, &n), 0);
	ck_assert_uint_eq(n, 31);
	ck_assert_int_eq(parse_number("18446744073709551615", 0, UINT64_MAX,
				      &n), 0);
	ck_assert_int_eq(parse_number("18446744073709551616", 0, UINT64_MAX,
				      &n), -ERANGE);
	ck_assert_int_eq(parse_number("0x10000000000000000", 0, UINT64_MAX,
				      &n), -ERANGE);
	n = 7;
	ck_assert_int_eq(parse_number("", 0, 99, &n), -EINVAL);
	ck_assert_int_eq(parse_number("-1", 0, 99, &n), -EINVAL);
	ck_assert_int_eq(parse_number("+1", 0, 99, &n), -EINVAL);
	ck_assert_int_eq(parse_number(" 1", 0, 99, &n), -EINVAL);
	ck_assert_int_eq(parse_number("1 ", 0, 99, &n), -EINVAL);
	ck_assert_int_eq(parse_number("1K", 0, 99, &n), -EINVAL);
	ck_assert_int_eq(parse_number("0x", 0, 99, &n), -EINVAL);
	ck_assert_int_eq(parse_number("0x0x1", 0, 99, &n), -EINVAL);
	ck_assert_int_eq(parse_number("7f00", 0, 9999, &n), -EINVAL);
	ck_assert_uint_eq(n, 7);
}
END_TEST

START_TEST(bytes_take_suffixes_and_refuse_overflow)
{
	uint64_t n = 7;

	ck_assert_int_eq(parse_bytes("64K", &n), 0);
	ck_assert_uint_eq(n, 65536);
	ck_assert_int_eq(parse_bytes("0x10m", &n), 0);
	ck_assert_uint_eq(n, 16 << 20);
	ck_assert_int_eq(parse_bytes("17179869183G", &n), 0);
	ck_assert_uint_eq(n, UINT64_MAX - (1 << 30) + 1);
	ck_assert_int_eq(parse_bytes("17179869184G", &n), -ERANGE);
	ck_assert_int_eq(parse_bytes("99999999999999999999K", &n), -ERANGE);
	ck_assert_int_eq(parse_bytes("0", &n), -ERANGE);
	ck_assert_int_eq(parse_bytes("1KB", &n), -EINVAL);
	ck_assert_int_eq(parse_bytes("1X", &n), -EINVAL);
	ck_assert_int_eq(parse_bytes("K", &n), -EINVAL);
	ck_assert_int_eq(parse_bytes("", &n), -EINVAL);
}
END_TEST

START_TEST(access_takes_known_words_only)
{
	uint64_t n = 7;

	ck_assert_int_eq(parse_access("read", &n), 0);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(parse_access("read,write,remote-atomic", &n), 0);
	ck_assert_uint_eq(n, 1 | 8);
	ck_assert_int_eq(parse_access("", &n), -EINVAL);
	ck_assert_int_eq(parse_access("read,", &n), -EINVAL);
	ck_assert_int_eq(parse_access("writ", &n), -EINVAL);
	ck_assert_int_eq(parse_access("write,fly", &n), -EINVAL);
}
END_TEST

/* ---- output ------------------------------------------------------------ */

/* One reply of all kinds; text is the only text cell. */
struct fixture {
	Regc__AdminReply reply;
	Regc__Column columns[6], *column_ptrs[6];
	Regc__Cell cells[6], *cell_ptrs[6];
	Regc__Row row, *row_ptrs[1];
};

static void fixture_init(struct fixture *f, const char *text)
{
	static const char *const names[] = { "name",    "count", "bytes",
					     "address", "age_ns", "ok" };
	static const uint64_t numbers[] = { 0, 12, 3 << 20, 0x7f00,
					    UINT64_C(2100000000), 1 };
	size_t i;

	regc__admin_reply__init(&f->reply);
	regc__row__init(&f->row);
	for (i = 0; i < 6; i++) {
		regc__column__init(&f->columns[i]);
		f->columns[i].name = (char *)names[i];
		f->columns[i].kind = (uint32_t)i;
		f->column_ptrs[i] = &f->columns[i];
		regc__cell__init(&f->cells[i]);
		f->cells[i].number = numbers[i];
		f->cell_ptrs[i] = &f->cells[i];
	}
	f->cells[0].text = (char *)text;
	f->row.cells = f->cell_ptrs;
	f->row.n_cells = 6;
	f->row_ptrs[0] = &f->row;
	f->reply.columns = f->column_ptrs;
	f->reply.n_columns = 6;
	f->reply.rows = f->row_ptrs;
	f->reply.n_rows = 1;
}

/* The text printed for n replies; the caller frees it. */
static char *printed(enum output_format format, bool upright,
		     const Regc__AdminReply *reply, int n)
{
	struct output out = { .format = format, .upright = upright };
	char *text = NULL;
	size_t len = 0;

	out.file = open_memstream(&text, &len);
	ck_assert_ptr_nonnull(out.file);
	while (n-- > 0)
		ck_assert_int_eq(output_reply(reply, &out), 0);
	ck_assert_int_eq(output_end(&out), 0);
	fclose(out.file);
	return text;
}

static void check_printed(enum output_format format, bool upright,
			  const Regc__AdminReply *reply, int n,
			  const char *expected)
{
	char *text = printed(format, upright, reply, n);

	ck_assert_str_eq(text, expected);
	free(text);
}

START_TEST(text_aligns_and_names_units)
{
	struct fixture f;

	fixture_init(&f, "mpi");
	check_printed(OUTPUT_TEXT, false, &f.reply, 2,
		      "name  count  bytes  address    age   ok\n"
		      "mpi      12  3 MiB   0x7f00  2.1 s  yes\n"
		      "mpi      12  3 MiB   0x7f00  2.1 s  yes\n");
}
END_TEST

START_TEST(text_escapes_what_drives_a_terminal)
{
	struct fixture f;
	char *text;

	fixture_init(&f, "a\x1b[1m\n\t\\\xc2\x9b\xff\xc3\xa4");
	text = printed(OUTPUT_TEXT, true, &f.reply, 1);
	ck_assert_ptr_nonnull(strstr(text, "name     a\\x1b[1m\\n\\t\\"
				     "\\xc2\\x9b\\xff\xc3\xa4\n"));
	free(text);
}
END_TEST

START_TEST(tab_has_one_row_a_line_and_plain_numbers)
{
	struct fixture f;

	fixture_init(&f, "a\tb\nc");
	check_printed(OUTPUT_TAB, false, &f.reply, 2,
		      "name\tcount\tbytes\taddress\tage_ns\tok\n"
		      "a\\tb\\nc\t12\t3145728\t0x7f00\t2100000000\tyes\n"
		      "a\\tb\\nc\t12\t3145728\t0x7f00\t2100000000\tyes\n");
}
END_TEST

START_TEST(json_is_an_array_of_objects)
{
	struct fixture f;

	fixture_init(&f, "m");
	check_printed(OUTPUT_JSON, false, &f.reply, 2,
		      "[\n"
		      "  {\"name\": \"m\", \"count\": 12, \"bytes\": 3145728, "
		      "\"address\": 32512, \"age_ns\": 2100000000, \"ok\": true},\n"
		      "  {\"name\": \"m\", \"count\": 12, \"bytes\": 3145728, "
		      "\"address\": 32512, \"age_ns\": 2100000000, \"ok\": true}\n"
		      "]\n");
	check_printed(OUTPUT_JSON, false, &f.reply, 0, "[]\n");
}
END_TEST

START_TEST(json_escapes_controls_and_replaces_bad_utf8)
{
	struct fixture f;
	char *text;

	/* bad: lone tail, overlong, surrogate, beyond U+10FFFF, cut short */
	fixture_init(&f, "q\"\\\x01\x7f\xc2\x85|\x80|\xc0\xaf|\xed\xa0\x80|"
		     "\xf4\x90\x80\x80|\xe2\x82");
	text = printed(OUTPUT_JSON, false, &f.reply, 1);
	ck_assert_ptr_nonnull(strstr(text, "\"q\\\"\\\\\\u0001\\u007f\\u0085|"
		"\\ufffd|\\ufffd\\ufffd|\\ufffd\\ufffd\\ufffd|"
		"\\ufffd\\ufffd\\ufffd\\ufffd|\\ufffd\\ufffd\""));
	free(text);
}
END_TEST

START_TEST(a_sentence_is_printed_in_every_format)
{
	Regc__AdminReply reply = REGC__ADMIN_REPLY__INIT;

	reply.text = (char *)"a miss: \"voided\"";
	check_printed(OUTPUT_TEXT, true, &reply, 1, "a miss: \"voided\"\n");
	check_printed(OUTPUT_TAB, true, &reply, 1,
		      "text\na miss: \"voided\"\n");
	check_printed(OUTPUT_JSON, true, &reply, 1,
		      "[\n  {\"text\": \"a miss: \\\"voided\\\"\"}\n]\n");
}
END_TEST

START_TEST(a_row_shorter_than_the_columns_is_padded)
{
	struct fixture f;

	fixture_init(&f, "m");
	f.row.n_cells = 1;
	check_printed(OUTPUT_TAB, false, &f.reply, 1,
		      "name\tcount\tbytes\taddress\tage_ns\tok\n"
		      "m\t0\t0\t0x0\t0\tno\n");
}
END_TEST

static void check_unit(uint32_t kind, uint64_t number, const char *expected)
{
	Regc__AdminReply reply = REGC__ADMIN_REPLY__INIT;
	Regc__Column column = REGC__COLUMN__INIT, *columns[] = { &column };
	Regc__Cell cell = REGC__CELL__INIT, *cells[] = { &cell };
	Regc__Row row = REGC__ROW__INIT, *rows[] = { &row };
	char *text, *value;

	column.name = (char *)"x";
	column.kind = kind;
	cell.number = number;
	row.cells = cells;
	reply.columns = columns;
	reply.rows = rows;
	row.n_cells = reply.n_columns = reply.n_rows = 1;
	text = printed(OUTPUT_TEXT, false, &reply, 1);
	value = strchr(text, '\n') + 1;
	value[strcspn(value, "\n")] = '\0';
	value += strspn(value, " ");
	ck_assert_str_eq(value, expected);
	free(text);
}

START_TEST(units_round_up_to_the_next_unit)
{
	check_unit(2, 0, "0 B");
	check_unit(2, 1023, "1023 B");
	check_unit(2, 1024, "1 KiB");
	check_unit(2, 1025, "1.0 KiB");
	check_unit(2, (1 << 20) - 1, "1.0 MiB");
	check_unit(2, 3 << 19, "1.5 MiB");
	check_unit(2, UINT64_MAX, "unlimited");
	check_unit(4, 999, "999 ns");
	check_unit(4, 1500, "1.5 us");
	check_unit(4, 999999, "1.0 ms");
	check_unit(4, UINT64_C(119000000000), "119.0 s");
	check_unit(4, UINT64_C(120000000000), "2 min 0 s");
	check_unit(4, UINT64_C(90061) * 1000000000, "25 h 1 min");
	check_unit(4, UINT64_C(200000) * 1000000000, "2 d 7 h");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cli");
	TCase *tc = tcase_create("cli");

	suite_add_tcase(suite, tc);
	tcase_add_test(tc, number_takes_limits_and_refuses_junk);
	tcase_add_test(tc, bytes_take_suffixes_and_refuse_overflow);
	tcase_add_test(tc, access_takes_known_words_only);
	tcase_add_test(tc, text_aligns_and_names_units);
	tcase_add_test(tc, text_escapes_what_drives_a_terminal);
	tcase_add_test(tc, tab_has_one_row_a_line_and_plain_numbers);
	tcase_add_test(tc, json_is_an_array_of_objects);
	tcase_add_test(tc, json_escapes_controls_and_replaces_bad_utf8);
	tcase_add_test(tc, a_sentence_is_printed_in_every_format);
	tcase_add_test(tc, a_row_shorter_than_the_columns_is_padded);
	tcase_add_test(tc, units_round_up_to_the_next_unit);
	return suite_run(suite);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One printer for every listing: text for people, tab-separated, JSON.
 *
 * The columns of a reply say what their values are, so no command has code of
 * its own here.  A listing is printed packet by packet and never held: a column
 * is as wide as its widest value so far, which is exact for any listing of one
 * packet and settles soon in a longer one.
 *
 * Text comes from other users' programs.  Whatever is not printable UTF-8 is
 * escaped, so a name can neither drive a terminal nor break a row.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cli/output.h"

enum {
	KIND_TEXT,
	KIND_NUMBER,
	KIND_BYTES,
	KIND_ADDRESS,
	KIND_NS,
	KIND_YESNO,
};

/* Text of one cell; texts longer than this are cut at a whole character. */
struct cell_text {
	char text[2048];
	size_t len;
	int width; /* characters, not bytes */
};

/*
 * Length of the UTF-8 character at s (NUL ends the string), 0 if the bytes are
 * none: no overlong form, no surrogate, not beyond U+10FFFF.
 */
static size_t utf8_len(const unsigned char *s)
{
	size_t n, i;

	if (s[0] < 0x80)
		return 1;
	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		n = 2;
	else if (s[0] >= 0xe0 && s[0] <= 0xef)
		n = 3;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		n = 4;
	else
		return 0;
	for (i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	}
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

/* Controls of both sets; the second (U+0080 to U+009F) drives terminals too. */
static bool is_control(const unsigned char *s, size_t n)
{
	if (n == 1)
		return *s < 0x20 || *s == 0x7f;
	return n == 2 && s[0] == 0xc2 && s[1] < 0xa0;
}

static void json_string(FILE *f, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t n;

	fputc('"', f);
	for (; *s; s += n ? n : 1) {
		n = utf8_len(s);
		if (n == 0)
			fputs("\\ufffd", f);
		else if (*s == '"' || *s == '\\')
			fprintf(f, "\\%c", *s);
		else if (is_control(s, n))
			fprintf(f, "\\u%04x", n == 1 ? *s : s[1]);
		else
			fwrite(s, 1, n, f);
	}
	fputc('"', f);
}

static void cell_add(struct cell_text *cell, const char *bytes, size_t n,
		     int width)
{
	if (cell->len + n >= sizeof(cell->text))
		return;
	memcpy(cell->text + cell->len, bytes, n);
	cell->len += n;
	cell->text[cell->len] = '\0';
	cell->width += width;
}

/*
 * Escapes as in C: \t \n \xNN, and for programs, who want it back, \\.  Names
 * that come escaped from the broker look to people as they are typed.
 */
static void cell_escape(struct cell_text *cell, const char *text, bool raw)
{
	const unsigned char *s = (const unsigned char *)text;
	char esc[8];
	size_t n, i;

	for (; *s; s += n ? n : 1) {
		n = utf8_len(s);
		if (*s == '\t') {
			cell_add(cell, "\\t", 2, 2);
		} else if (*s == '\n') {
			cell_add(cell, "\\n", 2, 2);
		} else if (raw && *s == '\\') {
			cell_add(cell, "\\\\", 2, 2);
		} else if (n == 0 || is_control(s, n)) {
			for (i = 0; i < (n ? n : 1); i++) {
				snprintf(esc, sizeof(esc), "\\x%02x", s[i]);
				cell_add(cell, esc, 4, 4);
			}
		} else {
			cell_add(cell, (const char *)s, n, 1);
		}
	}
}

/* The largest unit that leaves one digit or more before the point. */
static int scaled(char *buf, size_t size, uint64_t value, unsigned int base,
		  const char *const *units, size_t n_units)
{
	double v = (double)value;
	size_t i = 0;

	/* .95 and above would round up to the next unit */
	while (i + 1 < n_units && v >= base - 0.05) {
		v /= base;
		i++;
	}
	if (i == 0)
		return snprintf(buf, size, "%" PRIu64 " %s", value, units[0]);
	return snprintf(buf, size, "%.1f %s", v, units[i]);
}

static int format_bytes(char *buf, size_t size, uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB",
					     "PiB", "EiB" };
	uint64_t v = bytes;
	size_t i = 0;

	if (bytes == UINT64_MAX)
		return snprintf(buf, size, "unlimited");
	while (v >= 1024 && v % 1024 == 0) {
		v /= 1024;
		i++;
	}
	/* whole numbers stay exact: 64 KiB, not 64.0 */
	if (v < 1024)
		return snprintf(buf, size, "%" PRIu64 " %s", v, units[i]);
	return scaled(buf, size, bytes, 1024, units, 7);
}

static int format_ns(char *buf, size_t size, uint64_t ns)
{
	static const char *const units[] = { "ns", "us", "ms", "s" };
	uint64_t s = ns / UINT64_C(1000000000);

	if (s < 120)
		return scaled(buf, size, ns, 1000, units, 4);
	if (s < 7200)
		return snprintf(buf, size, "%" PRIu64 " min %" PRIu64 " s",
				s / 60, s % 60);
	if (s < UINT64_C(48) * 3600)
		return snprintf(buf, size, "%" PRIu64 " h %" PRIu64 " min",
				s / 3600, s % 3600 / 60);
	return snprintf(buf, size, "%" PRIu64 " d %" PRIu64 " h", s / 86400,
			s % 86400 / 3600);
}

/* raw: plain numbers, as programs want them. */
static void cell_format(struct cell_text *ret, unsigned int kind,
			const Regc__Cell *cell, bool raw)
{
	char buf[64];
	uint64_t n = cell->number;

	ret->len = 0;
	ret->width = 0;
	ret->text[0] = '\0';
	if (kind == KIND_TEXT) {
		cell_escape(ret, cell->text ? cell->text : "", raw);
		return;
	}
	if (kind == KIND_ADDRESS)
		snprintf(buf, sizeof(buf), "0x%" PRIx64, n);
	else if (kind == KIND_YESNO)
		snprintf(buf, sizeof(buf), "%s", n ? "yes" : "no");
	else if (kind == KIND_BYTES && !raw)
		format_bytes(buf, sizeof(buf), n);
	else if (kind == KIND_NS && !raw)
		format_ns(buf, sizeof(buf), n);
	else
		snprintf(buf, sizeof(buf), "%" PRIu64, n);
	cell_add(ret, buf, strlen(buf), (int)strlen(buf));
}

static void spaces(FILE *f, int n)
{
	while (n-- > 0)
		fputc(' ', f);
}

static const Regc__Cell no_cell = REGC__CELL__INIT;

/* A short row is a newer or older broker's; what is missing is empty. */
static const Regc__Cell *row_cell(const Regc__Row *row, size_t i)
{
	return i < row->n_cells ? row->cells[i] : &no_cell;
}

/* Text shows a unit with each value, so a name needs none: age_ns is age. */
static const char *text_name(const Regc__Column *column, char *buf, size_t size)
{
	size_t len = strlen(column->name);

	if (column->kind == KIND_NS && len > 3 &&
	    !strcmp(column->name + len - 3, "_ns"))
		len -= 3;
	snprintf(buf, size, "%.*s", (int)len, column->name);
	return buf;
}

static void widen(int *width, int n)
{
	if (*width < n)
		*width = n;
}

/* ---- text -------------------------------------------------------------- */

static void print_aligned(FILE *f, const char *text, int text_width, int width,
			  bool right, bool last)
{
	if (right)
		spaces(f, width - text_width);
	fputs(text, f);
	if (!right && !last)
		spaces(f, width - text_width);
	fputs(last ? "\n" : "  ", f);
}

static void text_measure(struct output *out, const Regc__AdminReply *reply)
{
	struct cell_text cell;
	char name[64];
	size_t row, i;

	for (i = 0; i < out->n_columns; i++) {
		const Regc__Column *column = reply->columns[i];

		text_name(column, name, sizeof(name));
		widen(&out->widths[i], (int)strlen(name));
		for (row = 0; row < reply->n_rows; row++) {
			cell_format(&cell, column->kind,
				    row_cell(reply->rows[row], i), false);
			widen(&out->widths[i], cell.width);
		}
	}
}

static void text_rows(struct output *out, const Regc__AdminReply *reply)
{
	struct cell_text cell;
	char name[64];
	size_t row, i, last = out->n_columns - 1;

	text_measure(out, reply);
	for (i = 0; !out->started && i < out->n_columns; i++) {
		const Regc__Column *column = reply->columns[i];

		text_name(column, name, sizeof(name));
		print_aligned(out->file, name, (int)strlen(name),
			      out->widths[i], column->kind != KIND_TEXT,
			      i == last);
	}
	for (row = 0; row < reply->n_rows; row++) {
		for (i = 0; i < out->n_columns; i++) {
			unsigned int kind = reply->columns[i]->kind;

			cell_format(&cell, kind, row_cell(reply->rows[row], i),
				    false);
			print_aligned(out->file, cell.text, cell.width,
				      out->widths[i], kind != KIND_TEXT,
				      i == last);
		}
	}
}

static void text_upright(struct output *out, const Regc__AdminReply *reply)
{
	struct cell_text cell;
	char name[64];
	size_t row, i;
	int width = 0;

	for (i = 0; i < out->n_columns; i++)
		widen(&width, (int)strlen(text_name(reply->columns[i], name,
						    sizeof(name))));
	for (row = 0; row < reply->n_rows; row++) {
		if (out->n_rows + row > 0)
			fputc('\n', out->file);
		for (i = 0; i < out->n_columns; i++) {
			const Regc__Column *column = reply->columns[i];

			cell_format(&cell, column->kind,
				    row_cell(reply->rows[row], i), false);
			text_name(column, name, sizeof(name));
			print_aligned(out->file, name, (int)strlen(name), width,
				      false, false);
			fprintf(out->file, "%s\n", cell.text);
		}
	}
}

static void text_reply(struct output *out, const Regc__AdminReply *reply)
{
	struct cell_text cell = { .len = 0 };

	if (reply->text && *reply->text) {
		cell_escape(&cell, reply->text, false);
		fprintf(out->file, "%s\n", cell.text);
		if (reply->n_rows)
			fputc('\n', out->file);
	}
	if (out->n_columns == 0)
		return;
	if (out->upright && out->n_columns > 2)
		text_upright(out, reply);
	else
		text_rows(out, reply);
}

/* ---- for programs ------------------------------------------------------ */

static void tab_line(FILE *f, const char *text, bool last)
{
	fprintf(f, "%s%c", text, last ? '\n' : '\t');
}

static void tab_reply(struct output *out, const Regc__AdminReply *reply)
{
	struct cell_text cell = { .len = 0 };
	size_t row, i, last = out->n_columns - 1;

	if (out->n_columns == 0) {
		cell_escape(&cell, reply->text ? reply->text : "", true);
		fprintf(out->file, "text\n%s\n", cell.text);
		return;
	}
	for (i = 0; !out->started && i < out->n_columns; i++)
		tab_line(out->file, reply->columns[i]->name, i == last);
	for (row = 0; row < reply->n_rows; row++) {
		for (i = 0; i < out->n_columns; i++) {
			cell_format(&cell, reply->columns[i]->kind,
				    row_cell(reply->rows[row], i), true);
			tab_line(out->file, cell.text, i == last);
		}
	}
}

static void json_value(FILE *f, unsigned int kind, const Regc__Cell *cell)
{
	if (kind == KIND_TEXT)
		json_string(f, cell->text ? cell->text : "");
	else if (kind == KIND_YESNO)
		fputs(cell->number ? "true" : "false", f);
	else
		fprintf(f, "%" PRIu64, cell->number);
}

/* The sentence of a reply, if any, is the first value of its first object. */
static void json_object(struct output *out, const Regc__AdminReply *reply,
			const Regc__Row *row, const char *text)
{
	FILE *f = out->file;
	size_t i;

	fputs(out->n_rows ? ",\n  {" : "[\n  {", f);
	if (text) {
		fputs("\"text\": ", f);
		json_string(f, text);
	}
	for (i = 0; row && i < out->n_columns; i++) {
		fputs(i || text ? ", " : "", f);
		json_string(f, reply->columns[i]->name);
		fputs(": ", f);
		json_value(f, reply->columns[i]->kind, row_cell(row, i));
	}
	fputc('}', f);
	out->n_rows++;
}

static void json_reply(struct output *out, const Regc__AdminReply *reply)
{
	const char *text = reply->text && *reply->text ? reply->text : NULL;
	size_t row;

	if (reply->n_rows == 0 && text)
		json_object(out, reply, NULL, text);
	for (row = 0; row < reply->n_rows; row++)
		json_object(out, reply, reply->rows[row], row ? NULL : text);
}

/* ------------------------------------------------------------------------ */

/* 1: the write failed, out->err says how; nothing more should be printed. */
static int output_check(struct output *out)
{
	errno = 0;
	if (fflush(out->file) == 0 && !ferror(out->file))
		return 0;
	if (!out->err)
		out->err = errno ? -errno : -EIO;
	return 1;
}

int output_reply(const Regc__AdminReply *reply, void *output)
{
	struct output *out = output;

	out->n_columns = reply->n_columns;
	if (out->n_columns > OUTPUT_MAX_COLUMNS)
		out->n_columns = OUTPUT_MAX_COLUMNS;
	if (out->format == OUTPUT_JSON) {
		json_reply(out, reply); /* counts its own rows */
		return output_check(out);
	}
	if (out->format == OUTPUT_TAB)
		tab_reply(out, reply);
	else
		text_reply(out, reply);
	out->started = true;
	out->n_rows += reply->n_rows;
	return output_check(out);
}

int output_end(struct output *out)
{
	if (out->format == OUTPUT_JSON && !out->err)
		fputs(out->n_rows ? "\n]\n" : "[]\n", out->file);
	return output_check(out);
}

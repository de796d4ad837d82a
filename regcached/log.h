/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Log lines on standard error, one write each, never waiting.
 *
 * A line that standard error would not take at once is dropped and counted; the
 * next line that gets through says how many were lost.  So are lines beyond
 * LOG_RATE a second on average, below debug: peers can provoke them.  Level and
 * counts are the only mutable globals of the broker.
 * Style: lower case, "key value", text of others through log_quote().
 */
#ifndef REGCACHED_LOG_H
#define REGCACHED_LOG_H

#include <stddef.h>
#include <stdint.h>

#define LOG_RATE 50
#define LOG_BURST 500

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARN,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
};

void log_set_level(enum log_level level);
enum log_level log_get_level(void);
uint64_t log_n_dropped(void);

void log_line(enum log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

/*
 * Copies text of a peer (at most n bytes, or up to a NUL) into buf so that it is
 * printable ASCII: everything else, and the backslash, becomes \xNN.  Returns
 * buf; the result is cut to fit.
 */
char *log_escape(char *buf, size_t size, const char *text, size_t n);

#endif

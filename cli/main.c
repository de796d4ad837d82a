/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * regc-ctl: shows and flushes what a regcached holds.
 *
 * commands[] says what can be asked, with which operands and options; usage
 * errors and help come from it.  A command is one question to the broker
 * (query.c), its answer a table that says itself how to print it (output.c), so
 * no command has code of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/args.h"
#include "cli/instruction.h"
#include "cli/output.h"
#include "cli/query.h"
#include "libregc/regc.h"

#define EXIT_USAGE 2

#define STR_(x) #x
#define STR(x) STR_(x)
#define VERSION_TEXT                                            \
	STR(REGC_VERSION_MAJOR) "." STR(REGC_VERSION_MINOR) "." \
	STR(REGC_VERSION_PATCH)

struct operand {
	const char *name;
	enum args_kind kind;
	unsigned int field; /* of struct args */
	bool optional;
};

static const struct operand no_operands[] = { { 0 } };

static const struct operand explain_operands[] = {
	{ "PID", ARGS_PID, offsetof(struct args, pid), false },
	{ "ADDR", ARGS_ADDR, offsetof(struct args, addr), false },
	{ "LEN", ARGS_BYTES, offsetof(struct args, len), true },
	{ 0 },
};

static const struct command {
	const char *name;
	Regc__AdminKind kind;
	const struct operand *operands;
	unsigned int takes; /* OPT_* besides OPT_GLOBAL */
	bool needs_one;     /* exactly one of takes must be given */
	bool upright;       /* the answer is one thing with many values */
	const char *doc;
} commands[] = {
	{ "status", REGC__ADMIN_KIND__ADMIN_STATUS, no_operands, 0, false,
	  true, "show the broker: since when, what it holds" },
	{ "groups", REGC__ADMIN_KIND__ADMIN_GROUPS, no_operands, OPT_GROUP,
	  false, false, "list groups of processes and their limits" },
	{ "spaces", REGC__ADMIN_KIND__ADMIN_SPACES, no_operands,
	  OPT_PID | OPT_GROUP, false, false,
	  "list processes: mode and why, regions, bytes" },
	{ "libraries", REGC__ADMIN_KIND__ADMIN_LIBRARIES, no_operands,
	  OPT_PID | OPT_GROUP | OPT_LIBRARY, false, false,
	  "list libraries of processes and their counters" },
	{ "regions", REGC__ADMIN_KIND__ADMIN_REGIONS, no_operands,
	  OPT_PID | OPT_GROUP | OPT_LIBRARY | OPT_ADDR | OPT_LEN | OPT_STATE,
	  false, false, "list what is registered, and by whom" },
	{ "transfers", REGC__ADMIN_KIND__ADMIN_TRANSFERS, no_operands,
	  OPT_PID | OPT_GROUP | OPT_WATCH, false, false,
	  "list buffers in flight, and which threads wait for them" },
	{ "explain", REGC__ADMIN_KIND__ADMIN_EXPLAIN, explain_operands,
	  OPT_ACCESS, false, false,
	  "say why a get of [ADDR, ADDR + LEN) would hit or miss" },
	{ "stats", REGC__ADMIN_KIND__ADMIN_STATS, no_operands,
	  OPT_PID | OPT_GROUP, false, true, "show counters" },
	{ "monitors", REGC__ADMIN_KIND__ADMIN_MONITORS, no_operands,
	  OPT_PID | OPT_GROUP, false, false,
	  "show which changes of memory are caught, and how" },
	{ "flush", REGC__ADMIN_KIND__ADMIN_FLUSH, no_operands,
	  OPT_PID | OPT_GROUP | OPT_ALL, true, false,
	  "drop what is not leased, of --pid, --group or --all" },
	{ "config", REGC__ADMIN_KIND__ADMIN_CONFIG, no_operands, 0, false,
	  false, "list the options of the broker as in force" },
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct command *command_find(const char *name)
{
	size_t i;

	for (i = 0; i < N_COMMANDS; i++) {
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	}
	return NULL;
}

/* ---- help -------------------------------------------------------------- */

static void print_synopsis(const struct command *cmd, char *ret, size_t size)
{
	const struct operand *op;
	size_t len;

	snprintf(ret, size, "%s", cmd->name);
	for (op = cmd->operands; op->name; op++) {
		len = strlen(ret);
		snprintf(ret + len, size - len, "%s%s%s",
			 op->optional ? " [" : " ", op->name,
			 op->optional ? "]" : "");
	}
}

static void help_all(void)
{
	char left[64];
	size_t i;

	printf("Usage: regc-ctl [OPTION]... COMMAND [ARGUMENT]...\n"
	       "Shows and flushes what a regcached holds.\n\nCommands:\n");
	for (i = 0; i < N_COMMANDS; i++) {
		print_synopsis(&commands[i], left, sizeof(left));
		printf("  %-23s %s\n", left, commands[i].doc);
	}
	printf("  %-23s %s\n\nOptions:\n", "help [COMMAND]",
	       "print this, or the options of COMMAND");
	args_print_options(OPT_GLOBAL);
	printf("\nExit status: 0, 1 if the broker does not answer or refuses, "
	       "2 for a usage error.\n");
}

static void help_command(const struct command *cmd)
{
	char left[64];

	print_synopsis(cmd, left, sizeof(left));
	printf("Usage: regc-ctl %s [OPTION]...\n%s: %s\n\nOptions:\n", left,
	       cmd->name, cmd->doc);
	args_print_options(cmd->takes | OPT_GLOBAL);
}

/* 0 or an exit status */
static int help(const char *name)
{
	const struct command *cmd = name ? command_find(name) : NULL;

	if (name && !cmd && strcmp(name, "help")) {
		args_usage_error("unknown command '%s'", name);
		return EXIT_USAGE;
	}
	if (cmd)
		help_command(cmd);
	else
		help_all();
	return 0;
}

/* ---- one command ------------------------------------------------------- */

static int check_options(const struct command *cmd, const struct args *args)
{
	unsigned int given = args->given & ~(unsigned int)OPT_GLOBAL;
	unsigned int alien = given & ~cmd->takes;

	if (alien)
		return args_usage_error("%s does not take --%s", cmd->name,
					args_option_name(alien));
	if (cmd->needs_one && given == 0)
		return args_usage_error("%s wants --pid, --group or --all",
					cmd->name);
	if (cmd->needs_one && (given & (given - 1)))
		return args_usage_error("%s wants only one of --pid, --group "
					"and --all", cmd->name);
	if ((given & OPT_LEN) && !(given & OPT_ADDR))
		return args_usage_error("--len wants --addr");
	if ((args->given & OPT_JSON) && (args->given & OPT_TAB))
		return args_usage_error("--json and --tab exclude each other");
	return 0;
}

static int take_operands(const struct command *cmd, struct args *args)
{
	const struct operand *op = cmd->operands;
	unsigned int i;

	for (i = 1; op->name; op++, i++) {
		if (i >= args->n_words) {
			if (op->optional)
				return 0;
			return args_usage_error("%s wants %s", cmd->name,
						op->name);
		}
		if (args_value(args, op->kind, op->field, op->name,
			       args->words[i]) < 0)
			return -1;
	}
	if (i < args->n_words)
		return args_usage_error("%s does not take '%s'", cmd->name,
					args->words[i]);
	return 0;
}

static int check_range(const struct command *cmd, struct args *args)
{
	if (args->len == 0 && (cmd->operands->name || args->given & OPT_ADDR))
		args->len = 1;
	if (args->len != 0 && args->addr > UINT64_MAX - args->len)
		return args_usage_error("ADDR + LEN is beyond 64 bits");
	return 0;
}

/* EPIPE is quiet: whoever reads has seen enough. */
static int finish(const struct output *out, int failed)
{
	if (out->err == -EPIPE)
		return EXIT_SUCCESS;
	if (out->err) {
		fprintf(stderr, "regc-ctl: cannot write: %s\n",
			strerror(-out->err));
		return EXIT_FAILURE;
	}
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int on_reply(const Regc__AdminReply *reply, void *out)
{
	instruction_fill(reply);
	return output_reply(reply, out);
}

static int ask(const struct command *cmd, const struct args *args,
	       const Regc__Admin *question)
{
	struct output out = { .file = stdout, .upright = cmd->upright };
	int r;

	if (args->given & OPT_JSON)
		out.format = OUTPUT_JSON;
	else if (args->given & OPT_TAB)
		out.format = OUTPUT_TAB;
	r = query_run(args->socket, question, on_reply, &out);
	if (r == 0)
		r = output_end(&out);
	/* A reader that went away has seen enough: no more of it. */
	if (args->given & OPT_WATCH && out.err == -EPIPE)
		return EXIT_FAILURE;
	return finish(&out, r < 0);
}

static int run(const struct command *cmd, const struct args *args)
{
	const struct timespec second = { .tv_sec = 1 };
	bool screen = isatty(STDOUT_FILENO) && !(args->given & OPT_JSON);
	Regc__Admin question = REGC__ADMIN__INIT;
	int status;

	question.kind = cmd->kind;
	question.pid = (uint32_t)args->pid;
	/* protobuf-c has no const; the packer only reads */
	if (args->group)
		question.group = (char *)args->group;
	if (args->library)
		question.library = (char *)args->library;
	question.addr = args->addr;
	question.len = args->len;
	question.access = (uint32_t)args->access;
	question.state = (uint32_t)args->state;
	for (;;) {
		if (args->given & OPT_WATCH && screen)
			fputs("\033[H\033[2J", stdout);
		status = ask(cmd, args, &question);
		if (status || !(args->given & OPT_WATCH))
			return status;
		if (!screen)
			putchar('\n'); /* between two listings */
		nanosleep(&second, NULL);
	}
}

/* Help and version take the same care with a full disk as data does. */
static int finish_words(int status)
{
	struct output out = { .file = stdout, .format = OUTPUT_TEXT };

	output_end(&out);
	return status ? status : finish(&out, 0);
}

/*
 * Started without one of the three, the broker's socket would become standard
 * output.  Read-only, so that to write there fails and is told.
 */
static void open_standard_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDONLY);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	const struct command *cmd;
	struct args args;

	open_standard_fds();
	signal(SIGPIPE, SIG_IGN);
	if (args_parse(&args, argc, argv) < 0)
		return EXIT_USAGE;
	if (args.given & OPT_VERSION) {
		printf("regc-ctl %s\n", VERSION_TEXT);
		return finish_words(0);
	}
	if (args.n_words > 0 && !strcmp(args.words[0], "help")) {
		if (args.n_words > 2) {
			args_usage_error("help does not take '%s'",
					 args.words[2]);
			return EXIT_USAGE;
		}
		return finish_words(help(args.words[1]));
	}
	if (args.given & OPT_HELP)
		return finish_words(help(args.words[0]));
	if (args.n_words == 0) {
		args_usage_error("a command is wanted");
		return EXIT_USAGE;
	}
	cmd = command_find(args.words[0]);
	if (!cmd) {
		args_usage_error("unknown command '%s'", args.words[0]);
		return EXIT_USAGE;
	}
	if (check_options(cmd, &args) < 0 || take_operands(cmd, &args) < 0 ||
	    check_range(cmd, &args) < 0)
		return EXIT_USAGE;
	return run(cmd, &args);
}

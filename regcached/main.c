/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * regcached: arguments, signals, and the loop.
 *
 * SIGTERM and SIGINT end it (the socket is removed), SIGHUP reads the options
 * again; a file that is not right changes nothing.  The signals come through a
 * descriptor, so they never interrupt anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "libregc/regc.h"
#include "libregc/wire.h"
#include "regcached/broker.h"
#include "regcached/log.h"
#include "regcached/options.h"

#ifndef REGC_SYSCONFDIR
#define REGC_SYSCONFDIR "/etc"
#endif
#define DEFAULT_CONFIG REGC_SYSCONFDIR "/regc/regcached.conf"
#define MAX_SETS 64
#define EXIT_USAGE 2

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define VERSION_TEXT                                              \
	TEXT(REGC_VERSION_MAJOR) "." TEXT(REGC_VERSION_MINOR) \
		"." TEXT(REGC_VERSION_PATCH)

/* What the command line said; kept for reloads. */
struct arguments {
	const char *config; /* NULL: the default one, if it is there */
	char *sets[MAX_SETS]; /* owned */
	int n_sets;
};

struct daemon {
	struct broker *broker;
	struct arguments args;
	struct loop_source signals;
	bool ends;
};

static void put_stdout(void *arg, const char *text)
{
	(void)arg;
	fputs(text, stdout);
}

static const struct option_out out_stdout = { put_stdout, NULL };

static void print_help(void)
{
	printf("Usage: regcached [OPTION]...\n"
	       "The broker of regc: keeps the registrations of all processes.\n"
	       "\n"
	       "  --config FILE      options from FILE [" DEFAULT_CONFIG
	       ", if there]\n"
	       "  --socket PATH      the same as --set socket=PATH\n"
	       "  --log-level LEVEL  the same as --set log.level=LEVEL\n"
	       "  --set NAME=VALUE   an option, after those of the file\n"
	       "  --sample-config    print a file with all defaults\n"
	       "  --man-options      print the options as a manual page has them\n"
	       "  --help, --version\n"
	       "\n"
	       "SIGHUP reads the options again; SIGTERM ends.\n"
	       "Exit status: 0, 1 for a failure, 2 for a usage error.\n"
	       "\n"
	       "Options:\n");
	options_print_help(&out_stdout);
}

/* File, then command line, into *o; -errno with one sentence in error. */
static int load_options(const struct arguments *args, struct options *o,
			char *error)
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) *
			  (uint64_t)sysconf(_SC_PAGESIZE);
	int r = 0, i;

	options_init(o, memory);
	if (args->config)
		r = options_read(o, args->config, error);
	else if (access(DEFAULT_CONFIG, F_OK) == 0)
		r = options_read(o, DEFAULT_CONFIG, error);
	for (i = 0; !r && i < args->n_sets; i++)
		r = options_set_pair(o, args->sets[i], error);
	return r;
}

/* ---- service manager ----------------------------------------------------- */

/* sd_notify(3) of one line; without NOTIFY_SOCKET nothing. */
static void notify(const char *line)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	size_t n = path ? strlen(path) : 0;
	int fd;

	if (!n || n >= sizeof(addr.sun_path) || (*path != '/' && *path != '@'))
		return;
	memcpy(addr.sun_path, path, n);
	if (*path == '@')
		addr.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (sendto(fd, line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT,
		   (struct sockaddr *)&addr,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
		log_warn("cannot notify the service manager: %s",
			 strerror(errno));
	close(fd);
}

/* ---- signals ------------------------------------------------------------- */

static void reload(struct daemon *d)
{
	char error[OPTION_ERROR_BYTES];
	struct options o;

	if (load_options(&d->args, &o, error)) {
		log_error("%s; nothing is changed", error);
		return;
	}
	if (strcmp(o.socket, d->broker->options.socket)) {
		log_warn("option socket is not changed by a reload");
		memcpy(o.socket, d->broker->options.socket, sizeof(o.socket));
	}
	broker_apply_options(d->broker, &o);
	log_info("options read again");
}

static void signal_event(void *arg, uint32_t events)
{
	struct daemon *d = arg;
	struct signalfd_siginfo info;

	(void)events;
	while (read(d->signals.fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGHUP) {
			reload(d);
			continue;
		}
		log_info("ends: signal %s", info.ssi_signo == SIGTERM ?
			 "SIGTERM" : "SIGINT");
		d->ends = true;
	}
}

static int signals_init(struct daemon *d)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	d->signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	d->signals.fn = signal_event;
	d->signals.arg = d;
	return d->signals.fd < 0 ? -errno :
				   loop_add(&d->broker->loop, &d->signals, EPOLLIN);
}

/* ---- arguments ----------------------------------------------------------- */

static int usage(const char *text, const char *what)
{
	char shown[200];

	fprintf(stderr, "regcached: %s%s; --help tells more\n", text,
		log_escape(shown, sizeof(shown), what, strlen(what)));
	return EXIT_USAGE;
}

/* --socket PATH is --set socket=PATH; false: too many of them. */
static bool add_set(struct arguments *args, const char *name, const char *value)
{
	if (args->n_sets == MAX_SETS)
		return false;
	if (asprintf(&args->sets[args->n_sets], "%s%s%s", name, *name ? "=" : "",
		     value) < 0)
		abort();
	args->n_sets++;
	return true;
}

enum { OPT_CONFIG = 256, OPT_SOCKET, OPT_LOG_LEVEL, OPT_SET, OPT_SAMPLE,
       OPT_MAN, OPT_HELP, OPT_VERSION };

static const struct option long_options[] = {
	{ "config", required_argument, NULL, OPT_CONFIG },
	{ "socket", required_argument, NULL, OPT_SOCKET },
	{ "log-level", required_argument, NULL, OPT_LOG_LEVEL },
	{ "set", required_argument, NULL, OPT_SET },
	{ "sample-config", no_argument, NULL, OPT_SAMPLE },
	{ "man-options", no_argument, NULL, OPT_MAN },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

/* Prints and ends with 0, or 1 if that cannot be written. */
static int print_and_end(int opt)
{
	if (opt == OPT_HELP)
		print_help();
	else if (opt == OPT_SAMPLE)
		options_print_sample(&out_stdout);
	else if (opt == OPT_MAN)
		options_print_man(&out_stdout);
	else
		printf("regcached " VERSION_TEXT "\n");
	return fflush(stdout) || ferror(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* getopt knows what is wrong, but says it only by what it leaves. */
static int bad_option(const char *word)
{
	char letter[] = { '-', (char)optopt, 0 };

	if (optopt >= OPT_CONFIG)
		return usage("no value is taken by ", word);
	if (optopt)
		return usage("unknown option ", letter);
	return usage("unknown or ambiguous option ", word);
}

/* -1: go on; else the exit status. */
static int parse_arguments(int argc, char **argv, struct arguments *args)
{
	bool fits = true;
	int opt;

	opterr = 0;
	while ((opt = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
		switch (opt) {
		case OPT_CONFIG:
			if (!*optarg)
				return usage("--config wants a file", "");
			args->config = optarg;
			break;
		case OPT_SOCKET:
			if (!*optarg)
				return usage("--socket wants a path", "");
			fits = add_set(args, "socket", optarg);
			break;
		case OPT_LOG_LEVEL:
			fits = add_set(args, "log.level", optarg);
			break;
		case OPT_SET:
			fits = add_set(args, "", optarg);
			break;
		case ':':
			return usage("a value is missing after ",
				     argv[optind - 1]);
		case '?':
			return bad_option(argv[optind - 1]);
		default:
			return print_and_end(opt);
		}
		if (!fits)
			return usage("too many options, at ", optarg);
	}
	return optind < argc ? usage("unknown argument ", argv[optind]) : -1;
}

/* A --set that is wrong is a usage error, a file that is wrong a failure. */
static int check_sets(const struct arguments *args)
{
	char error[OPTION_ERROR_BYTES];
	struct options o;
	int i;

	options_init(&o, UINT64_C(1) << 40);
	for (i = 0; i < args->n_sets; i++)
		if (options_set_pair(&o, args->sets[i], error))
			return usage(error, "");
	return -1;
}

static int run(struct daemon *d, const struct options *o)
{
	char path[OPTION_PATH_BYTES];
	int r;

	if (o->socket[0])
		snprintf(path, sizeof(path), "%s", o->socket);
	else
		regc_wire_default_socket(geteuid(), path, sizeof(path));
	if (broker_new(o, path, &d->broker))
		return EXIT_FAILURE;
	r = signals_init(d);
	if (r) {
		log_error("cannot take signals: %s", strerror(-r));
		broker_free(d->broker);
		return EXIT_FAILURE;
	}
	log_info("listening on \"%s\"", path);
	notify("READY=1");
	while (!d->ends)
		broker_turn(d->broker);
	notify("STOPPING=1");
	loop_del(&d->broker->loop, &d->signals);
	close(d->signals.fd);
	broker_free(d->broker);
	return EXIT_SUCCESS;
}

/* Started without one of the three, a socket could become standard error. */
static void open_standard_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	struct daemon d = { .broker = NULL };
	char error[OPTION_ERROR_BYTES];
	struct options o;
	int status;

	open_standard_fds();
	status = parse_arguments(argc, argv, &d.args);
	if (status < 0)
		status = check_sets(&d.args);
	if (status < 0 && load_options(&d.args, &o, error)) {
		fprintf(stderr, "regcached: error: %s\n", error);
		status = EXIT_FAILURE;
	}
	if (status < 0) {
		log_set_level((enum log_level)o.value[OPTION_LOG_LEVEL]);
		status = run(&d, &o);
	}
	while (d.args.n_sets)
		free(d.args.sets[--d.args.n_sets]);
	return status;
}

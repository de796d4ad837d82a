/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The protocol of transfers (shm/transfer.h) as a model for spin(1).  model.sh
 * says which scenes are searched, and which broken rules must be found.
 *
 * One step is one store of a shared word, one read of one slot, one change of
 * one page's protection, or one wake-up; a scan is many steps.  Memory is
 * sequentially consistent here; a missing fence is modelled as what it permits:
 * the loads of the scan before the store of the word.
 *
 * The kernel.  closed[] is the protection in the page tables.  A store to a
 * closed page is a fault: the thread queues an event and sleeps if the page is
 * closed still.  It may sleep even if the page was opened just before it queued:
 * the kernel looks at the write bit, which opening need not set.  Opening and
 * waking are two steps.  A wake-up takes away the events of those who slept, read
 * or not; they try again.
 *
 * Time.  The limit of a transfer that blocks somebody may be over at any moment.
 * No process polls, all wait for a condition.  So if there is no cycle of states
 * at all (spin searches for that, too), every run ends, and what the judge finds
 * at the end is what happens at last: nobody sleeps for ever.
 *
 * Not in here: copying; unmapped memory; the broker that comes after.  A broker
 * that is stopped twice, while the guardian sees nothing of the time between, can
 * keep an event that nobody acts on until it goes on or dies (broker_lives=3).
 */

/* ---- the scene: constant in a run, from the environment -------------------- */

hidden byte client_a, client_b, client_c; /* transfers, 0: none */
hidden byte rounds;	     /* transfers of each, one after the other */
hidden byte n_slots;	     /* slot 0 is the guardian's */
hidden byte n_writers;	     /* writer i stores to page i */
hidden byte closed_at_start; /* pages, though nobody covers them */
hidden byte broker_lives;    /* 0: dead from the start, n: n - 1 stops */
hidden byte limits;	     /* waits have a time limit */
hidden byte never_completes; /* a transfer may stay ARMED */
hidden byte slots_given;     /* client i has slot i first; else whatever is free */
hidden byte ids_given;	     /* and id i; else ids are drawn in any order */
hidden byte groups;	     /* two clients that begin two transfers at once */
hidden byte at_least;	     /* so many transfers must come to be ARMED */
hidden byte broken;	     /* a rule */

#define P0 1
#define P1 2
#define PAGES(t) ((t) & 3)
#define BYTES(t) ((t) & 12) /* 4 and 8 are a byte each */
#define RECEIVES 16
#define REPORTS 32
#define CONFLICT(t, u) (BYTES((t) & (u)) && (((t) | (u)) & RECEIVES))

c_code {
	static unsigned char scene(const char *name)
	{
		const char *value = getenv(name);

		return value ? (unsigned char)atoi(value) : 0;
	}
}

/* Rules to break; model.sh has the same numbers. */
#define NO_FENCE_BEGIN 1    /* the scan may come before ARMING */
#define NO_FENCE_COMPLETE 2 /* the scan may come before CLOSING */
#define NO_WAIT 3	    /* pages are closed though one is CLOSING */
#define NO_SLOT 4	    /* the guardian opens without slot 0 */
#define NO_WAKE_DEATH 5	    /* the end of the broker wakes nobody */
#define NO_WAKE_AGAIN 6	    /* nor its death after it had been stopped */
#define NO_WAKE_LEFT 7	    /* a page left closed for another: no wake-up */
#define NO_IDS 8	    /* both of two that are ARMING yield */
#define NO_YIELD 9	    /* to what is ARMING */
#define NO_FLAG_ID 10	    /* "timed out" says only in which slot */
#define NO_WAKE_OPEN 11	    /* a page that is open already: no wake-up */
#define NO_ID_BLOCK 12	    /* the ids of a group are not in sequence */

/* ---- shared memory --------------------------------------------------------- */

#define N_SLOTS 5
#define FREE 0
#define TAKEN 1
#define ARMING 2
#define ARMED 3
#define POSTED 4
#define CLOSING 5
#define WORD(id, state) ((id) << 3 | (state))
#define STATE(w) ((w) & 7)
#define ID(w) ((w) >> 3)
#define HELD(w) (STATE(w) == ARMED || STATE(w) == POSTED)
#define ACTIVE(w) (STATE(w) == ARMING || HELD(w))

byte word[N_SLOTS];
byte says[N_SLOTS];	/* what the transfer is, written while TAKEN */
byte flag[N_SLOTS];	/* area: id that is timed out */
byte mark[N_SLOTS];	/* table: id that blocks somebody */
byte own_mark[N_SLOTS]; /* area: the same, learnt by the guardian */
byte next_id = 1;
byte asked;		/* table: pages that the broker wants to have opened */

#define TIMED_OUT(s) (flag[s] == (broken == NO_FLAG_ID -> 1 : ID(word[s])))
#define COVERS(s, p) (ACTIVE(word[s]) && (says[s] & 1 << (p)))
#define WANTS(s, p) (COVERS(s, p) && !(says[s] & REPORTS) && !TIMED_OUT(s))

/* ---- the kernel ------------------------------------------------------------- */

#define NONE 0
#define PENDING 1
#define READ 2
#define RUNS 0
#define STOPPED 1
#define DEAD 2

bit closed[2];
byte event[2]; /* of writer i, who sleeps while there is one */
byte life;     /* of the broker */

/* ---- assertions ------------------------------------------------------------- */

byte over_ids; /* bits: these reached their limit, whatever flag[] says */
byte n_armed;
byte n_at_work; /* clients, groups and writers that have not come to their end */

#define GUARDS(s, p)                                                            \
	(HELD(word[s]) && (says[s] & 1 << (p)) && !(says[s] & REPORTS) &&        \
	 !(over_ids & 1 << ID(word[s])))
#define CLASH(s, o) (s != o && HELD(word[o]) && CONFLICT(says[s], says[o]))

/* Page p is open: rightly? */
inline assert_open(p)
{
	assert(!GUARDS(1, p) && !GUARDS(2, p) && !GUARDS(3, p))
}

/* s is ARMED: rightly? */
inline assert_armed(s)
{
	assert(!GUARDS(s, 0) || closed[0]);
	assert(!GUARDS(s, 1) || closed[1]);
	assert(!CLASH(s, 1) && !CLASH(s, 2) && !CLASH(s, 3))
}

/* ---- pages ------------------------------------------------------------------- */

inline wake(p)
{
	if
	:: p < n_writers -> event[p] = NONE
	:: else
	fi
}

inline open(p)
{
	atomic {
		closed[p] = 0;
		assert_open(p)
	}
	wake(p)
}

/* ---- clients ----------------------------------------------------------------- */

/*
 * One step reads one slot: its word, what it says, and its word again until both
 * words are the same.  A slot says the same as long as it has the same id, so it
 * is as if word and meaning were read at once.
 */
#define NEXT                                                                    \
	s++;                                                                    \
	if                                                                      \
	:: s == me -> s++                                                       \
	:: else                                                                 \
	fi

/* Pages that somebody else covers into covered. */
inline scan_covers()
{
	covered = 0;
	s = (me == 1 -> 2 : 1);
	do
	:: atomic { s < n_slots ->
		if
		:: ACTIVE(word[s]) -> covered = covered | PAGES(says[s])
		:: else
		fi;
		NEXT
		}
	:: atomic { s >= n_slots -> s = 0; break }
	od
}

/* Before pages are closed: waits for what is CLOSING, yields to what conflicts. */
inline scan_conflicts()
{
	s = 0;
	do
	:: atomic { s < n_slots ->
		w = word[s];
		if
		:: STATE(w) == CLOSING && PAGES(mine & says[s]) && broken != NO_WAIT ->
			word[s] != w
		:: ACTIVE(w) && CONFLICT(mine, says[s]) ->
			if
			:: HELD(w) || broken == NO_IDS ||
			   ID(w) < id && broken != NO_YIELD ->
				refused = 1;
				s = n_slots
			:: STATE(w) == ARMING && ID(w) > id && broken != NO_IDS ->
				word[s] != w
			:: STATE(w) == ARMING && broken == NO_YIELD -> NEXT
			fi
		:: else -> NEXT
		fi;
		w = 0
		}
	:: atomic { s >= n_slots -> s = 0; break }
	od
}

inline close_pages()
{
	if
	:: mine & P0 -> closed[0] = 1
	:: else
	fi;
	if
	:: mine & P1 -> closed[1] = 1
	:: else
	fi
}

/* A page stays closed if others cover it; its sleepers are theirs from now on. */
inline open_pages()
{
	if
	:: (mine & P0) && !(covered & P0) -> open(0)
	:: (mine & covered & P0) && broken != NO_WAKE_LEFT -> wake(0)
	:: else
	fi;
	if
	:: (mine & P1) && !(covered & P1) -> open(1)
	:: (mine & covered & P1) && broken != NO_WAKE_LEFT -> wake(1)
	:: else
	fi
}

/* What is done while TAKEN nobody sees, so it is one step. */
inline take()
{
	atomic {
		if
		:: first -> me = first; first = 0
		:: !first && word[1] == FREE -> me = 1
		:: !first && n_slots > 2 && word[2] == FREE -> me = 2
		:: !first && n_slots > 3 && word[3] == FREE -> me = 3
		fi;
		id = (drawn -> drawn : next_id);
		next_id = (drawn -> next_id : next_id + 1);
		drawn = 0;
		word[me] = WORD(id, TAKEN);
		says[me] = mine;
		flag[me] = (broken == NO_FLAG_ID -> 0 : flag[me])
	}
}

/* A mark of what is over is as good as none. */
inline free()
{
	atomic {
		word[me] = FREE;
		says[me] = 0;
		if
		:: mark[me] == id -> mark[me] = 0
		:: else
		fi;
		if
		:: own_mark[me] == id -> own_mark[me] = 0
		:: else
		fi;
		me = 0;
		id = 0;
		covered = 0;
		refused = 0
	}
}

proctype client(byte mine; byte first; byte drawn)
{
	byte me, id, s, w, covered, n;
	bit refused;

again:
	take();
	if
	:: broken == NO_FENCE_BEGIN -> scan_conflicts(); word[me] = WORD(id, ARMING)
	:: else -> word[me] = WORD(id, ARMING); scan_conflicts()
	fi;
	if
	:: refused
	:: else ->
		close_pages();
		atomic {
			word[me] = WORD(id, ARMED);
			assert_armed(me);
			if
			:: at_least -> n_armed++
			:: else
			fi
		}
		if
		:: never_completes -> goto left
		:: true
		fi;
		word[me] = WORD(id, POSTED)
	fi;
	if
	:: broken == NO_FENCE_COMPLETE -> scan_covers(); word[me] = WORD(id, CLOSING)
	:: else -> word[me] = WORD(id, CLOSING); scan_covers()
	fi;
	open_pages();
	free();
	atomic {
		n++;
		if
		:: n < rounds -> goto again
		:: else
		fi
	}
left:
	n_at_work--
}

/* ---- writers ------------------------------------------------------------------ */

proctype writer(byte page)
{
again:
	atomic {
		if
		:: !closed[page] ->
			assert_open(page);
			n_at_work--;
			goto stored
		:: else /* a fault */
		fi
	}
	atomic {
		if
		:: event[page] = PENDING
		:: !closed[page] -> goto again
		fi
	}
	event[page] == NONE;
	goto again;
stored:
	skip
}

/* ---- decisions ---------------------------------------------------------------- */

/* Who wants page p closed?  Their ids into wants; is there any into covered. */
inline decide()
{
	s = 1;
	do
	:: atomic { s < n_slots ->
		if
		:: WANTS(s, p) -> covered = 1; wants[s] = ID(word[s])
		:: else
		fi;
		s++
		}
	:: atomic { s == n_slots -> s = 0; break }
	od
}

inline read_event()
{
	if
	:: event[0] == PENDING -> p = 0
	:: event[1] == PENDING -> p = 1
	fi;
	event[p] = READ
}

inline forget()
{
	wants[1] = 0;
	wants[2] = 0;
	wants[3] = 0;
	covered = 0;
	p = 0;
	s = 0
}

/* ---- the broker ----------------------------------------------------------------- */

/* It is stopped and killed at any moment; what it did so far stays. */
#define MAY_END                                                                 \
	if                                                                      \
	:: true                                                                 \
	:: goto killed                                                          \
	:: may_stop -> STOP                                                     \
	fi
#define STOP                                                                    \
	atomic { life = STOPPED; may_stop-- }                                   \
	if                                                                      \
	:: life = RUNS                                                          \
	:: goto killed                                                          \
	:: goto gone                                                            \
	fi

proctype broker()
{
	byte p, s, covered;
	byte wants[N_SLOTS];
	byte may_stop;

	may_stop = (broker_lives -> broker_lives - 1 : 0);
end:
	do
	:: atomic {
		event[0] == PENDING || event[1] == PENDING ->
		read_event()
		}
		MAY_END;
		decide();
		MAY_END;
		if
		:: covered ->
			s = 1;
			do
			:: atomic { s < n_slots && wants[s] ->
				mark[s] = wants[s];
				s++
				}
				MAY_END
			:: atomic { s < n_slots && !wants[s] -> s++ }
			:: atomic { s == n_slots -> forget(); break }
			od
		:: else -> atomic { asked = asked | 1 << p; forget() }
		fi
	:: may_stop -> STOP
	:: goto killed
	od;
killed:
	life = DEAD;
gone:
	skip
}

/* ---- the guardian ----------------------------------------------------------------- */

/* Opens page p unless somebody wants it closed; who sleeps there tries again. */
inline open_or_wake()
{
	if
	:: broken != NO_SLOT ->
		says[0] = 1 << p;
		word[0] = WORD(0, CLOSING)
	:: else
	fi;
	decide();
	if
	:: covered -> wake(p)
	:: !covered && (closed[p] || broken != NO_WAKE_OPEN) -> open(p)
	:: else
	fi;
	atomic {
		word[0] = FREE;
		forget()
	}
}

#define OVERDUE(s)                                                              \
	(ACTIVE(word[s]) && !TIMED_OUT(s) &&                                    \
	 (mark[s] == ID(word[s]) || own_mark[s] == ID(word[s])))

proctype guardian()
{
	byte p, s, covered, over, id, pages;
	byte wants[N_SLOTS];
	byte seen; /* the broker's life, as acted upon */

	seen = (broker_lives -> RUNS : DEAD);
end:
	do
	/* The broker does not run: what it has read may be lost. */
	:: atomic { life == RUNS && seen != RUNS -> seen = RUNS }
	:: atomic { life != RUNS && seen == RUNS && broken == NO_WAKE_DEATH ->
		seen = life }
	:: atomic { life == DEAD && seen == STOPPED && broken == NO_WAKE_AGAIN ->
		seen = life }
	:: atomic { life != RUNS && seen != life && broken != NO_WAKE_DEATH &&
		(seen == RUNS || broken != NO_WAKE_AGAIN) -> seen = life }
		wake(0);
		wake(1)
	/* It asked to have a page opened. */
	:: atomic { asked & P0 -> asked = asked & ~P0; p = 0 }
		open_or_wake()
	:: atomic { asked & P1 -> asked = asked & ~P1; p = 1 }
		open_or_wake()
	/* Decides in its place. */
	:: atomic {
		seen != RUNS && (event[0] == PENDING || event[1] == PENDING) ->
		read_event()
		}
		decide();
		if
		:: covered ->
			s = 1;
			do
			:: atomic { s < n_slots ->
				if
				:: wants[s] -> own_mark[s] = wants[s]
				:: else
				fi;
				s++
				}
			:: atomic { s == n_slots -> forget(); break }
			od
		:: else -> open_or_wake()
		fi
	/* The time limit of a transfer that blocks somebody is over. */
	:: atomic {
		limits && (OVERDUE(1) || OVERDUE(2) || OVERDUE(3)) ->
		if
		:: OVERDUE(1) -> over = 1
		:: OVERDUE(2) -> over = 2
		:: OVERDUE(3) -> over = 3
		fi;
		id = ID(word[over]);
		pages = PAGES(says[over])
		}
		/* By now the slot may be another's. */
		atomic {
			flag[over] = (broken == NO_FLAG_ID -> 1 : id);
			over_ids = over_ids | 1 << id;
			over = 0;
			id = 0
		}
		if
		:: pages & P0 -> p = 0; open_or_wake()
		:: else
		fi;
		if
		:: pages & P1 -> p = 1; open_or_wake()
		:: else
		fi;
		pages = 0
	od
}

/* ---- groups ------------------------------------------------------------------------ */

/* Begins two transfers at once: both or none.  Conflicts alone, no pages. */
proctype group(byte first; byte mine_1; byte mine_2)
{
	byte id_1, id_2, id, me, s, w, mine;
	bit refused;

	if
	:: broken == NO_ID_BLOCK ->
		atomic { id_1 = next_id; next_id++ }
		atomic { id_2 = next_id; next_id++ }
	:: else ->
		atomic { id_1 = next_id; id_2 = next_id + 1; next_id = next_id + 2 }
	fi;
	says[first] = mine_1;
	says[first + 1] = mine_2;
	word[first] = WORD(id_1, ARMING);
	word[first + 1] = WORD(id_2, ARMING);
	atomic { me = first; mine = mine_1; id = id_1 }
	scan_conflicts();
	if
	:: refused
	:: else ->
		atomic { me = first + 1; mine = mine_2; id = id_2 }
		scan_conflicts()
	fi;
	if
	:: refused ->
		word[first] = WORD(id_1, CLOSING);
		word[first + 1] = WORD(id_2, CLOSING)
	:: else ->
		atomic { word[first] = WORD(id_1, ARMED); n_armed++ }
		atomic { word[first + 1] = WORD(id_2, ARMED); n_armed++ }
	fi;
	word[first] = FREE;
	word[first + 1] = FREE;
	n_at_work--
}

/* ---- all ---------------------------------------------------------------------------- */

proctype judge()
{
	timeout;
	assert(event[0] == NONE && event[1] == NONE); /* nobody sleeps */
	assert(n_at_work == 0); /* nobody waits */
	assert(!closed[0] || COVERS(1, 0) || COVERS(2, 0) || COVERS(3, 0));
	assert(!closed[1] || COVERS(1, 1) || COVERS(2, 1) || COVERS(3, 1));
	assert(n_armed >= at_least)
}

init
{
	atomic {
		c_code {
			client_a = scene("client_a");
			client_b = scene("client_b");
			client_c = scene("client_c");
			rounds = scene("rounds");
			n_slots = scene("n_slots");
			n_writers = scene("n_writers");
			closed_at_start = scene("closed_at_start");
			broker_lives = scene("broker_lives");
			limits = scene("limits");
			slots_given = scene("slots_given");
			ids_given = scene("ids_given");
			never_completes = scene("never_completes");
			groups = scene("groups");
			at_least = scene("at_least");
			broken = scene("broken");
		};
		closed[0] = ((closed_at_start & P0) -> 1 : 0);
		closed[1] = ((closed_at_start & P1) -> 1 : 0);
		next_id = (ids_given -> 4 : 1);
		life = (broker_lives -> RUNS : DEAD);
		n_at_work = n_writers + 2 * groups + (client_a -> 1 : 0) +
			    (client_b -> 1 : 0) + (client_c -> 1 : 0);
		if
		:: groups ->
			run group(1, 4 + RECEIVES, 8 + RECEIVES);
			run group(3, 4 + RECEIVES, 8 + RECEIVES)
		:: else
		fi;
		if
		:: client_a -> run client(client_a, slots_given * 1, ids_given * 1)
		:: else
		fi;
		if
		:: client_b -> run client(client_b, slots_given * 2, ids_given * 2)
		:: else
		fi;
		if
		:: client_c -> run client(client_c, slots_given * 3, ids_given * 3)
		:: else
		fi;
		if
		:: n_writers > 0 -> run writer(0)
		:: else
		fi;
		if
		:: n_writers > 1 -> run writer(1)
		:: else
		fi;
		if
		:: broker_lives -> run broker()
		:: else
		fi;
		run guardian();
		run judge()
	}
}

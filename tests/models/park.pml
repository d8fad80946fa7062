// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Leaving and coming back without losing a command: hosts that submit, wait, serve, abort and keep the worker away,
// against workers that poll, park and break, all of them behind store buffers. README.md here says which statement
// stands for which line of the source; run_models.py has the scenarios and the mutants (M_*).
//
// Memory: every agent's stores lie in a buffer of its own and become visible in any order, but for two of one word,
// which keep theirs; a release store comes after everything that its agent stored before; a fence and a
// read-modify-write wait until the buffer is empty. A load sees the agent's own newest store, else memory.

#ifndef COMMANDS
#define COMMANDS 2
#endif
#ifndef LEASES
#define LEASES 0  // how often a worker may leave for a reason that does not yield to a command
#endif

// ---- words ----
#define Q0(i) (1 + (i))                // a command: its first quads
#define Q1(i) (1 + COMMANDS + (i))     // and its last, which makes it whole
#define CP(i) (1 + 2 * COMMANDS + (i)) // its completion
#define ST (1 + 3 * COMMANDS)          // state line: generation and residency
#define AB (2 + 3 * COMMANDS)          // abort_code
#define RQ (3 + 3 * COMMANDS)          // request: 1 park, 2 exit
#define SV (4 + 3 * COMMANDS)          // Persistent: the next command's number
#define LA (5 + 3 * COMMANDS)          // launched_
#define SB (6 + 3 * COMMANDS)          // submitted_
#define SY (7 + 3 * COMMANDS)          // stays_
#define MX (8 + 3 * COMMANDS)          // submit_mutex_
#define WORDS (9 + 3 * COMMANDS)

#define PARKED 0
#define RUNNING 1
#define PARKING 2
#define BROKEN 3
#define STATE(generation, residency) ((generation) * 4 + (residency))
#define RESIDENCY(state) ((state) % 4)
#define GENERATION(state) ((state) / 4)

// ---- agents and their buffers ----
#define WORKER(g) ((g) % 2)  // two generations do not share a buffer: nothing here relies on one stream
#define APP 2
#define OTHER 3
#define SERVICE 4
#define STREAM 5
#define ABORTER 6
#define AGENTS 7
#define CAP 6

byte mem[WORDS];
byte bn[AGENTS];
byte bw[AGENTS * CAP];  // 0: empty
byte bv[AGENTS * CAP];
bool br[AGENTS * CAP];

#define AT(a, i) ((a) * CAP + (i))
#define HOLDS(a, i, w) bw[AT(a, i)] == (w) -> bv[AT(a, i)]  // one arm of the conditional below
#define LD(a, w) \
  (HOLDS(a, 5, w) : (HOLDS(a, 4, w) : (HOLDS(a, 3, w) : \
  (HOLDS(a, 2, w) : (HOLDS(a, 1, w) : (HOLDS(a, 0, w) : mem[w]))))))
#define DRAINED(a) (bn[a] == 0)

inline put(a, w, v, release) {
  d_step {
    assert(bn[a] < CAP);
    bw[AT(a, bn[a])] = w; bv[AT(a, bn[a])] = v; br[AT(a, bn[a])] = release; bn[a]++
  }
}
inline store(a, w, v) { put(a, w, v, false) }
inline store_release(a, w, v) { put(a, w, v, true) }
inline fence(a) { DRAINED(a) }

// The i-th store of `a` becomes visible: none of the same word before it, and a release only as the first.
#define DIFFER(i, k) bw[AT(a, i)] != bw[AT(a, k)]
#define FREE1 (bn[a] > 1 && !br[AT(a, 1)] && DIFFER(1, 0))
#define FREE2 (bn[a] > 2 && !br[AT(a, 2)] && DIFFER(2, 0) && DIFFER(2, 1))
#define FREE3 (bn[a] > 3 && !br[AT(a, 3)] && DIFFER(3, 0) && DIFFER(3, 1) && DIFFER(3, 2))
#define FREE4 (bn[a] > 4 && !br[AT(a, 4)] && DIFFER(4, 0) && DIFFER(4, 1) && DIFFER(4, 2) && DIFFER(4, 3))
#define FREE5 \
  (bn[a] > 5 && !br[AT(a, 5)] && DIFFER(5, 0) && DIFFER(5, 1) && DIFFER(5, 2) && DIFFER(5, 3) && DIFFER(5, 4))
hidden byte at;
inline drain(i) {
  mem[bw[AT(a, i)]] = bv[AT(a, i)];
  at = AT(a, i);
  do
  :: at < AT(a, CAP - 1) -> bw[at] = bw[at + 1]; bv[at] = bv[at + 1]; br[at] = br[at + 1]; at++
  :: else -> break
  od;
  bw[at] = 0; bv[at] = 0; br[at] = false; bn[a]--
}

proctype memory(byte a) {
end:
  do
  :: d_step { bn[a] > 0 -> drain(0) }
  :: d_step { FREE1 -> drain(1) }
  :: d_step { FREE2 -> drain(2) }
  :: d_step { FREE3 -> drain(3) }
  :: d_step { FREE4 -> drain(4) }
  :: d_step { FREE5 -> drain(5) }
  od
}

// ---- what the properties speak of; no agent looks at these ----
byte want[2];              // generation that the executor starts; 0: none
bool runs;                 // from its launch until a worker has left
bool away;                 // park_and_stay has returned and unpark has not begun
bool stopped;              // stop has returned
byte leases;               // reasons that do not yield, used up
bool executed[COMMANDS];
bool given_up[COMMANDS];   // a wait has said: this call never started and never will
bool broken;               // broken_: process memory, one compare-exchange
bool told;                 // a worker has told the peers
bool has_aborted;          // abort has returned
bool service_ends, serving;
bool on_stream;            // the stream has been given the last store of a command

// ---- worker: device/worker/loop.hpp, park.hpp ----
#define QUAD(a, word, seq) ((seq) < COMMANDS && LD(a, word((seq) % COMMANDS)) != 0)
#define WHOLE(a, seq) (QUAD(a, Q0, seq) && QUAD(a, Q1, seq))
#ifdef M_POLL_ONE_QUAD
#define THERE(a, seq) QUAD(a, Q0, seq)
#else
#define THERE WHOLE
#endif
#ifdef M_PARK_ASKS_ONE_QUAD
#define ARRIVING(a, seq) QUAD(a, Q0, seq)
#else
#define ARRIVING WHOLE
#endif

// What a worker does after its last store is nobody's concern: it counts as gone with it.
inline leave(a, residency) {
#ifndef M_PARKED_BEFORE_SAVED
  store(a, SV, next);
#endif
#ifdef M_PARKED_RELAXED
  atomic { store(a, ST, STATE(g, residency)); runs = false };
#else
  atomic { store_release(a, ST, STATE(g, residency)); runs = false };
#endif
#ifdef M_PARKED_BEFORE_SAVED
  store(a, SV, next);
#endif
  stays_here = false
}

inline leave_broken(a) {
  told = true;  // raise_abort
  leave(a, BROKEN)
}

inline try_park(a, yields) {
#ifndef M_NO_PARKING
  store(a, ST, STATE(g, PARKING));
#endif
  back = false;
  if
#ifndef M_NO_REREAD
  :: yields ->
#ifndef M_NO_WORKER_FENCE
    fence(a);
#endif
    d_step {
      back = ARRIVING(a, next);
      assert(!back || (mem[Q0(next)] != 0 && mem[Q1(next)] != 0))  // what is not ready holds up no park
    }
#endif
  :: else
  fi;
  if
  :: back -> store(a, ST, STATE(g, RUNNING))
  :: else -> leave(a, PARKED)
  fi
}

#ifdef ABORTS
inline run_operation(a) {
  if
  :: true -> store_release(a, CP(next), 1)
  :: LD(a, AB) != 0 -> store_release(a, CP(next), 2); failed = true  // a wait inside has looked around
  fi
}
#else
inline run_operation(a) { store_release(a, CP(next), 1) }
#endif

// What follows an operation: nothing, a park that yields (end of a burst), or one that does not (lease).
inline park_after_operation(a) {
  if
  :: true -> skip
#ifdef BURSTS
  :: true -> try_park(a, true)
#endif
  :: leases < LEASES -> leases++; try_park(a, false)
  fi
}

// In the poll. An empty poll comes before a look; between the two a command may come.
inline idle_look(a) {
  if
#ifdef ABORTS
  :: LD(a, AB) != 0 -> leave_broken(a)
#endif
  :: LD(a, AB) == 0 ->
    if
    :: LD(a, RQ) != 0 -> try_park(a, false)
    :: LD(a, RQ) == 0 ->
      if
      :: true -> try_park(a, true)
      :: leases < LEASES -> leases++; try_park(a, false)  // a request to park that is over when the host looks
      fi
    fi
  fi
}

proctype worker(byte me) {
  byte g, next;
  bool stays_here, back, failed;
end:
  do
  :: d_step { want[me] != 0 -> g = want[me]; want[me] = 0; next = LD(me, SV); stays_here = true };
    store(me, ST, STATE(g, RUNNING));
#ifdef ABORTS
#ifndef M_NO_START_FENCE
    fence(me);
#endif
#ifndef M_NO_START_LOOK
    if
    :: LD(me, AB) != 0 -> leave_broken(me)
    :: LD(me, AB) == 0
    fi;
#endif
#endif
    do
    :: stays_here ->
      if
      :: d_step { THERE(me, next) ->
           assert(mem[Q0(next)] != 0 && mem[Q1(next)] != 0 && !executed[next] && !given_up[next] && !told && !away);
           executed[next] = true };
        run_operation(me);
        if
        :: failed -> failed = false; leave_broken(me)
        :: else -> next++; park_after_operation(me)
        fi
      :: !THERE(me, next) -> idle_look(me)
      fi
    :: else -> break
    od;
    atomic { g = 0; next = 0; back = false }
  od
}

// ---- host: device/queue/producer.hpp, runtime/call_queue.cpp ----
// Only what tells of an abort comes into a scope.
inline start(generation, tells) {
  d_step {
    assert(!runs);  // one worker at a time
    assert((!away || tells) && !stopped);
    runs = true;
    want[WORKER(generation)] = generation
  }
}

// The caller has the right to launch.
inline launch(a) {
#ifdef STAYS
  fence(a);
  if
#ifndef M_LAUNCH_IGNORES_STAYS
  :: LD(a, SY) != 0 -> store_release(a, LA, GENERATION(s))  // give_back_launch
  :: LD(a, SY) == 0 -> start(GENERATION(s) + 1, false)
#else
  :: true -> start(GENERATION(s) + 1, false)
#endif
  fi
#else
  start(GENERATION(s) + 1, false)
#endif
}

// PARKING is read again until it resolves: a read that finds it changes nothing, so here it is not made.
#ifdef M_PARKING_IS_RUNNING
#define RESOLVED(a) true
#else
#define RESOLVED(a) (RESIDENCY(LD(a, ST)) != PARKING)
#endif

inline ensure_running(a) {
  if
#ifdef STAYS
  :: LD(a, SY) != 0
#endif
  :: d_step { LD(a, SY) == 0 && RESOLVED(a) -> s = LD(a, ST) };
    if
    :: RESIDENCY(s) != PARKED
#if defined(M_LAUNCH_WITHOUT_CAS)
    :: RESIDENCY(s) == PARKED -> store(a, LA, GENERATION(s) + 1); launch(a)
#elif defined(M_COMPARE_THEN_STORE)
    :: RESIDENCY(s) == PARKED && LD(a, LA) != GENERATION(s)
    :: RESIDENCY(s) == PARKED && LD(a, LA) == GENERATION(s) -> store(a, LA, GENERATION(s) + 1); launch(a)
#else
    :: RESIDENCY(s) == PARKED && DRAINED(a) && mem[LA] != GENERATION(s)
    :: d_step { RESIDENCY(s) == PARKED && DRAINED(a) && mem[LA] == GENERATION(s) -> mem[LA] = GENERATION(s) + 1 };
      launch(a)
#endif
    fi
  fi;
  s = 0
}

#ifdef ABORTS
// One look; a scope does not keep it from launching.
inline relay_abort(a) {
  s = LD(a, ST);
  if
  :: RESIDENCY(s) != PARKED || mem[LA] != GENERATION(s)
  :: d_step { RESIDENCY(s) == PARKED && DRAINED(a) && mem[LA] == GENERATION(s) -> mem[LA] = GENERATION(s) + 1 };
    start(GENERATION(s) + 1, true)
  fi;
  s = 0
}
#endif

// The rest of a wait or a tick looks at the state again and again. Only a look that finds PARKED and the right to
// launch free does anything.
#define RIGHT_IS_FREE(a) (RESIDENCY(mem[ST]) == PARKED && LD(a, LA) == GENERATION(mem[ST]))
#define LOOK_HELPS(a) (RIGHT_IS_FREE(a) && LD(a, SY) == 0)

#if COMMANDS > 2
#define FRONT(a) (LD(a, CP(0)) == 0 -> 0 : (LD(a, CP(1)) == 0 -> 1 : 2))
#elif COMMANDS > 1
#define FRONT(a) (LD(a, CP(0)) == 0 -> 0 : 1)
#else
#define FRONT(a) 0
#endif
#ifdef AFTER
#define FRONT_READY(a) (LD(a, CP(FRONT(a))) == 0 && LD(a, Q1(FRONT(a))) != 0)
#else
#define FRONT_READY(a) true  // nobody asks: afters_ is 0
#endif
#define OUTSTANDING(a) (LD(a, SB) > FRONT(a) && LD(a, CP(FRONT(a))) == 0 && LD(a, Q1(FRONT(a))) != 0)

inline lock(a) { d_step { DRAINED(a) && mem[MX] == 0 -> mem[MX] = 1 } }
inline unlock(a) { store_release(a, MX, 0) }

inline publish(a, seq) {
  store(a, Q0(seq), 1);
#ifdef AFTER
  if
  :: (seq) == AFTER -> on_stream = true  // write_after: stored when the stream comes to it
  :: else -> store_release(a, Q1(seq), 1)
  fi
#else
  store_release(a, Q1(seq), 1)
#endif
}

// `count` commands and one doorbell.
inline submit(a, count) {
  lock(a);
  seq = LD(a, SB);
  if
  :: broken
  :: !broken ->
    queued = true;
    publish(a, seq);
    if
    :: count == 2 -> publish(a, seq + 1)
    :: else
    fi;
    store_release(a, SB, seq + count)
  fi;
  unlock(a);
#ifndef M_NO_HOST_FENCE
  fence(a);
#endif
  if
  :: queued && FRONT_READY(a) -> ensure_running(a)
  :: !queued || !FRONT_READY(a)
  fi;
  atomic { seq = 0; queued = false }
}

// settle and, now and then, test and worker().
inline wait(a, seq) {
  do
  :: LD(a, CP(seq)) != 0 -> break
  :: broken && LD(a, SB) <= seq -> break  // never queued
#ifdef WAITS_LOOK
  :: !broken && LD(a, CP(seq)) == 0 && FRONT_READY(a) && LOOK_HELPS(a) -> ensure_running(a)
#endif
#ifdef ABORTS
#ifdef M_GONE_WITHOUT_ABORT
  :: broken && LD(a, SB) > seq && LD(a, CP(seq)) == 0 ->
#else
  :: broken && LD(a, SB) > seq && LD(a, CP(seq)) == 0 && LD(a, AB) != 0 ->
#endif
#ifndef M_NO_GONE_FENCE
    fence(a);
#endif
    if
    :: LD(a, CP(seq)) != 0 -> break
    :: RESIDENCY(LD(a, ST)) == PARKED || RESIDENCY(LD(a, ST)) == BROKEN ->  // kGone
      d_step {
#ifndef M_GONE_WITHOUT_SETTLE
        if
        :: LD(a, CP(seq)) != 0 -> skip  // it had completed just before
        :: else -> assert(!executed[seq]); given_up[seq] = true
        fi
#else
        assert(!executed[seq]); given_up[seq] = true
#endif
      };
      break
    fi
#endif
  od
}

// Waits until the newest launch is PARKED and the executor at rest. A look that finds another generation changes
// nothing, so here it waits until it would find another.
inline await_parked(a) {
  do
  :: d_step { RESIDENCY(LD(a, ST)) == PARKED || RESIDENCY(LD(a, ST)) == BROKEN -> s = LD(a, ST) };
    if
#ifdef M_AWAIT_ANY_GENERATION
    :: !runs -> break
#else
    :: !runs && (RESIDENCY(s) == BROKEN || LD(a, LA) == GENERATION(s)) -> break
#endif
    :: mem[ST] != s
    fi
  od;
  s = 0
}

inline submits(a) {
#ifdef BATCH
  submit(a, 2)
#else
  submit(a, 1);
#if COMMANDS > 1 && !defined(OTHER_SUBMITS) || COMMANDS > 2
  submit(a, 1);
#endif
#if COMMANDS > 2 && !defined(OTHER_SUBMITS)
  submit(a, 1)
#endif
#endif
}

#ifndef NO_CALLS
proctype application() {
  byte s, seq;
  bool queued;
  submits(APP);
#ifndef NO_WAITS
  wait(APP, 0);
#endif
#if COMMANDS > 1
  wait(APP, 1);
#endif
#if COMMANDS > 2
  wait(APP, 2);
#endif
#ifdef EXITS
#ifdef ABORTS
  has_aborted;  // nobody calls a communicator that is being destroyed
#endif
  atomic { !serving -> service_ends = true };  // remove_serviced
  store(APP, RQ, 2);
  await_parked(APP);
  stopped = true
#endif
}
#endif

#ifdef OTHER_SUBMITS
proctype other() {
  byte s, seq;
  bool queued;
  submit(OTHER, 1)
}
#endif

#ifdef OTHER_WAITS
proctype other() {
  byte s;
  LD(OTHER, SB) == COMMANDS;  // the ticket has been handed over
  wait(OTHER, COMMANDS - 1)
}
#endif

#ifdef ABORTS
proctype aborter() {
  byte s;
  broken = true;
  store_release(ABORTER, AB, 1);
#ifndef M_NO_ABORT_FENCE
  fence(ABORTER);
#endif
  ensure_running(ABORTER);
  has_aborted = true
}
#endif

#ifdef STAYS
proctype other() {
  byte s;
  d_step { DRAINED(OTHER) -> mem[SY] = 1 };
  store(OTHER, RQ, 1);
  await_parked(OTHER);
  away = true;
#ifdef UNTIL_TOLD
  told;
#endif
  away = false;
  d_step { DRAINED(OTHER) -> mem[SY] = 0 };
  store(OTHER, RQ, 0);
  fence(OTHER);
#ifndef M_UNPARK_WITHOUT_LOOK
  if
  :: !broken && OUTSTANDING(OTHER) -> ensure_running(OTHER)
  :: else
  fi;
  if
  :: broken -> ensure_running(OTHER)
  :: !broken
  fi
#endif
}
#endif

#ifdef M_RELAY_ASKS_STAYS
#define RELAY_MAY_LOOK(a) (LD(a, AB) != 0 && LOOK_HELPS(a))
#else
#define RELAY_MAY_LOOK(a) (LD(a, AB) != 0 && RIGHT_IS_FREE(a))
#endif

#ifdef SERVES
proctype service() {
  byte s;
end:
  do
  :: atomic { !service_ends && !broken && OUTSTANDING(SERVICE) && LOOK_HELPS(SERVICE) -> serving = true };
    ensure_running(SERVICE);
    serving = false
#if defined(ABORTS) && !defined(M_NO_RELAY)
  :: atomic { !service_ends && broken && RELAY_MAY_LOOK(SERVICE) -> serving = true };
    relay_abort(SERVICE);
    serving = false
#endif
  od
}
#endif

#ifdef AFTER
proctype stream() {
  on_stream;
  store_release(STREAM, Q1(AFTER), 1)
}
#endif

#ifdef TOLD
proctype peers() {
  broken;
  told
}
#endif

init {
  byte a;
  atomic {
    for (a : 0 .. AGENTS - 1) { run memory(a) }
    run worker(0);
    run worker(1);
#ifndef NO_CALLS
    run application();
#endif
#if defined(OTHER_SUBMITS) || defined(OTHER_WAITS) || defined(STAYS)
    run other();
#endif
#ifdef ABORTS
    run aborter();
#endif
#ifdef SERVES
    run service();
#endif
#ifdef AFTER
    run stream();
#endif
#ifdef TOLD
    run peers();
#endif
    a = 0
  }
}

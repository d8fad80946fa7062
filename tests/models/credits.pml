// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// One connection of the ring: slots, credits by free-running counters, a flag that wraps, lines that a short message
// leaves untouched, zeroing near the wrap; Simple's tail. Counters and flags are small and go round, so the search has
// no last epoch. README.md here says which statement stands for what; run_models.py has the cases and the mutants
// (M_*).
//
// Memory: each word has a queue of stores on their way; words become visible in any order. A release store becomes
// visible when no other of its agent is on its way.

#define SLOTS 2
#define WRAP 5  // flags: 1 + epoch mod WRAP. In the source 2^32 - 1, which has no divisor in common with SLOTS either
#define MODULUS (2 * SLOTS * WRAP)  // of the counters; in the source 2^64
#define NEXT(counter) ((counter + 1) % MODULUS)
#define FLAG(epoch) (1 + (epoch) % WRAP)
#define SLOT(epoch) ((epoch) % SLOTS)
#define LINES 2  // a line is a lane's; a short message has only the first

// Signed distance below SLOTS, modulo MODULUS.
#define SENT_AHEAD(sent, consumed) ((sent + MODULUS - consumed) % MODULUS)
#ifdef M_UNSIGNED_ROOM
#define HAS_ROOM(sent, consumed) (SENT_AHEAD(sent, consumed) < SLOTS)
#else
#ifdef M_ONE_SLOT_MORE
#define HAS_ROOM(sent, consumed) (SENT_AHEAD(sent, consumed) <= SLOTS)
#else
#define HAS_ROOM(sent, consumed) \
  (SENT_AHEAD(sent, consumed) < SLOTS || SENT_AHEAD(sent, consumed) >= MODULUS / 2)
#endif
#endif

#define LINE(epoch, line) (SLOT(epoch) * LINES + (line))

// ---- memory of the receiver ----
byte flag[SLOTS * LINES];    // 0: zeroed
bool fresh[SLOTS * LINES];   // holds what its reader has not read
byte tail;                   // Simple
chan data[SLOTS * LINES] = [2] of { byte };
chan zero[SLOTS * LINES] = [1] of { bit };
chan tails = [SLOTS + 1] of { byte };
// ---- memory of the sender ----
byte consumed;
chan credits = [SLOTS + 1] of { byte };

// How long the message of an epoch is: both ends know it from the command. 0: nobody has come to it; else its lines.
#ifdef SIMPLE
#define ENDS 2  // sender, receiver
#else
#define ENDS 3  // two lanes of the sender, receiver
#endif
#define RECENT (SLOTS * WRAP)  // more than the epochs that some lane and the receiver may be at
byte size[RECENT];
byte passed[RECENT];         // how many have done with that epoch
byte at_barrier;             // lanes of the sender
bool turn_of_barrier;

#define ON_THE_WAY(queue) (len(queue[0]) + len(queue[1]) + len(queue[2]) + len(queue[3]))

#define LAND(i) \
  :: d_step { data[i]?value -> assert(!fresh[i]); flag[i] = value; fresh[i] = true; value = 0 } \
  :: d_step { zero[i]?_ -> assert(!fresh[i]); flag[i] = 0 }

proctype memory() {
  byte value;
end:
  do
  LAND(0)
  LAND(1)
  LAND(2)
  LAND(3)
#ifdef SIMPLE
#ifdef M_TAIL_RELAXED
  :: tails?tail
#else
  :: atomic { ON_THE_WAY(data) == 0 && len(tails) > 0 -> tails?tail }
#endif
#endif
#ifdef M_CLEAN_CREDIT_RELAXED
  :: credits?consumed
#else
  :: atomic { ON_THE_WAY(zero) == 0 && len(credits) > 0 -> credits?consumed }
#endif
  od
}

inline know_size(epoch) {
  if
  :: size[(epoch) % RECENT] != 0
  :: atomic { size[(epoch) % RECENT] == 0 -> size[(epoch) % RECENT] = 1 }
  :: atomic { size[(epoch) % RECENT] == 0 -> size[(epoch) % RECENT] = 2 }
  fi
}
inline pass(epoch) {
  d_step {
    passed[(epoch) % RECENT]++;
    if
    :: passed[(epoch) % RECENT] == ENDS -> passed[(epoch) % RECENT] = 0; size[(epoch) % RECENT] = 0
    :: else
    fi
  }
}

// ---- sender ----
inline wait_credit() {
  if
  :: room != 0
  :: d_step { room == 0 && HAS_ROOM(sent, consumed) ->
       room = (SENT_AHEAD(sent, consumed) < MODULUS / 2 -> SLOTS - SENT_AHEAD(sent, consumed) :
                                                           SLOTS + MODULUS - SENT_AHEAD(sent, consumed)) }
  fi
}

#ifdef SIMPLE
// Lane 0 waits; barriers before and after make the lanes one.
proctype sender() {
  byte sent, room;
end:
  do
  :: wait_credit();
     atomic {
       know_size(sent);
       data[LINE(sent, 0)]!FLAG(sent);
       if
       :: size[sent % RECENT] == 2 -> data[LINE(sent, 1)]!FLAG(sent)
       :: else
       fi;
       tails!NEXT(sent);
       pass(sent);
       room--; sent = NEXT(sent)
     }
  od
}
#else
// What a lane puts into its buffer nobody sees: one step here. Each lane waits for room by itself, also for a message
// that has no line of its own. A step that only sends has no barrier: lanes meet after every second step.
proctype lane(byte me) {
  byte sent, room;
  bool turn, second;
end:
  do
  :: wait_credit();
     atomic {
       know_size(sent);
       if
       :: size[sent % RECENT] > me -> data[LINE(sent, me)]!FLAG(sent)
       :: else
       fi;
       pass(sent);
       room--; sent = NEXT(sent); second = !second;
       if
       :: second
       :: !second ->
         turn = turn_of_barrier; at_barrier++;
         if
         :: at_barrier == LINES -> at_barrier = 0; turn_of_barrier = !turn_of_barrier
         :: else
         fi;
         turn_of_barrier != turn; turn = false
       fi
     }
  od
}
#endif

// ---- receiver ----
#define MUST_CLEAN(epoch) ((epoch) % WRAP >= WRAP - SLOTS)

inline read_line(i) {
  atomic {
    assert(fresh[i]);  // what was stored for this epoch, and not what an earlier one left
    fresh[i] = false
  }
}

#ifdef SIMPLE
#define WHOLE ((tail + MODULUS - NEXT(recv)) % MODULUS < MODULUS / 2)
#define ARRIVED(i) true
#else
#define WHOLE true
#define ARRIVED(i) (flag[i] == FLAG(recv) && len(zero[i]) == 0)  // its own zero is seen first by the receiver
#endif

proctype receiver() {
  byte recv;
  bool first, second;
end:
  do
  :: atomic { know_size(recv); second = size[recv % RECENT] == 1 };
#ifdef M_CREDIT_BEFORE_READ
     credits!NEXT(recv);
#endif
     WHOLE;
     do
     :: atomic { !first && ARRIVED(LINE(recv, 0)) -> read_line(LINE(recv, 0)); first = true }
     :: atomic { !second && ARRIVED(LINE(recv, 1)) -> read_line(LINE(recv, 1)); second = true }
     :: first && second -> break
     od;
     atomic {
       first = false; second = false;
#if !defined(SIMPLE) && !defined(M_NO_CLEANING)
       if
       :: MUST_CLEAN(recv) -> zero[LINE(recv, 0)]!1; zero[LINE(recv, 1)]!1
       :: else
       fi;
#endif
#ifndef M_CREDIT_BEFORE_READ
       credits!NEXT(recv);
#endif
       pass(recv);
       recv = NEXT(recv)
     }
  od
}

init {
  atomic {
    run memory();
    run receiver();
#ifdef SIMPLE
    run sender()
#else
    run lane(0);
    run lane(1)
#endif
  }
}

// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Two slot sets in turn whose LL flag wraps: lines that a short message, or a message of another format, leaves
// untouched, and the zeroing near the wrap. Epochs are shared by all formats. Two ranks; epochs go round, so the search
// has no last one. slots.pml has the argument for the sets themselves. README.md here says which statement stands for
// what; run_models.py has the cases and the mutants (M_*).
//
// Memory: each word has a queue of stores on their way; words become visible in any order. A fence waits for the own.

#define SETS 2
#define WRAP 5  // LL's flags: 1 + epoch mod WRAP. In the source 2^32 - 1, odd as well
#define MODULUS (SETS * WRAP)  // of the epochs
#define NEXT(epoch) ((epoch + 1) % MODULUS)

// A slot: two lines of LL and one of another format, in the window of the rank that reads it.
#define WORDS 3
#define OTHER 2
#define AT(reader, epoch, word) (((reader) * SETS + (epoch) % SETS) * WORDS + (word))
// The other formats' flag carries the epoch whole, 64 bits, and matches once: here it is forgotten when it was read.
#define FLAG(epoch, word) ((word) == OTHER -> 1 + (epoch) : 1 + (epoch) % WRAP)

byte flag[2 * SETS * WORDS];   // 0: zeroed
bool fresh[2 * SETS * WORDS];  // holds what its reader has not read
chan data[2 * SETS * WORDS] = [2] of { byte };
chan zero[2 * SETS * WORDS] = [1] of { bit };

// What an epoch is for: both ranks know it from the command.
#define UNKNOWN 0
#define SHORT 1   // LL, the first line
#define LONG 2    // LL, both
#define FOREIGN 3 // another format
#define NOTHING 4 // of a mutant: no line at all
byte kind[MODULUS];
byte passed[MODULUS];
#define HAS(epoch, word) \
  (kind[epoch] == FOREIGN -> (word) == OTHER : kind[epoch] != NOTHING && (word) != OTHER && (word) < kind[epoch])

#define LAND(i) \
  :: d_step { data[reader * SETS * WORDS + i]?value -> assert(!fresh[reader * SETS * WORDS + i]); \
       flag[reader * SETS * WORDS + i] = value; fresh[reader * SETS * WORDS + i] = true; value = 0 } \
  :: d_step { zero[reader * SETS * WORDS + i]?_ -> assert(!fresh[reader * SETS * WORDS + i]); \
       flag[reader * SETS * WORDS + i] = 0 }

proctype memory(byte reader) {
  byte value;
end:
  do
  LAND(0)
  LAND(1)
  LAND(2)
  LAND(3)
  LAND(4)
  LAND(5)
  od
}

inline know_kind(epoch) {
  if
  :: kind[epoch] != UNKNOWN
  :: kind[epoch] == UNKNOWN -> kind[epoch] = SHORT
  :: kind[epoch] == UNKNOWN -> kind[epoch] = LONG
  :: kind[epoch] == UNKNOWN -> kind[epoch] = FOREIGN
#ifdef M_EPOCH_WITHOUT_LINE
  :: kind[epoch] == UNKNOWN -> kind[epoch] = NOTHING
#endif
  fi
}

inline send_word(word) {
  if
  :: HAS(e, word) -> data[AT(1 - me, e, word)]!FLAG(e, word)
  :: else
  fi
}

#define ARRIVED(word) (flag[AT(me, e, word)] == FLAG(e, word) && len(zero[AT(me, e, word)]) == 0)
#define RECEIVE(word, got) \
  :: atomic { !got && HAS(e, word) && ARRIVED(word) -> \
       assert(fresh[AT(me, e, word)]); fresh[AT(me, e, word)] = false; got = true; \
       flag[AT(me, e, word)] = ((word) == OTHER -> 0 : flag[AT(me, e, word)]) }

#ifdef M_CLEANED_BY_LL_ALONE
#define MUST_CLEAN ((e) % WRAP >= WRAP - SETS && kind[e] != FOREIGN)
#else
#define MUST_CLEAN ((e) % WRAP >= WRAP - SETS)
#endif

proctype rank(byte me) {
  byte e;
  bool got0, got1, got2;
end:
  do
  :: atomic { know_kind(e); send_word(0); send_word(1); send_word(2) };
     do
     RECEIVE(0, got0)
     RECEIVE(1, got1)
     RECEIVE(2, got2)
     :: (got0 || !HAS(e, 0)) && (got1 || !HAS(e, 1)) && (got2 || !HAS(e, 2)) -> break
     od;
     atomic {
       got0 = false; got1 = false; got2 = false;
#ifndef M_NO_CLEANING
       if
       :: MUST_CLEAN -> zero[AT(me, e, 0)]!1; zero[AT(me, e, 1)]!1
       :: else
       fi;
#endif
     };
#ifndef M_NO_FENCE_AFTER_CLEANING
     len(zero[AT(me, e, 0)]) == 0 && len(zero[AT(me, e, 1)]) == 0;
#endif
     d_step {
       passed[e]++;
       if
       :: passed[e] == 2 -> passed[e] = 0; kind[e] = UNKNOWN
       :: else
       fi;
       e = NEXT(e)
     }
  od
}

init {
  atomic {
    run memory(0);
    run memory(1);
    run rank(0);
    run rank(1)
  }
}

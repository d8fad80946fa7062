// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Two slot sets in turn, and lanes that go on by themselves: a line is sent, received and used again by one lane, and
// the lanes of a rank meet only when an operation ends. An operation has rounds; its last one may be short, and then a
// lane has no line in it. Two ranks of two lanes. README.md here says which statement stands for what;
// run_models.py has the cases.
//
// Memory: each word has a queue of stores on their way; words become visible in any order.

#define SETS 2
#define LANES 2
#define EPOCHS 5
#define AT(reader, epoch, lane) (((reader) * SETS + (epoch) % SETS) * LANES + (lane))

byte flag[2 * SETS * LANES];
bool fresh[2 * SETS * LANES];  // holds what its reader has not read
chan data[2 * SETS * LANES] = [2] of { byte };

// What an epoch is: both ranks know it from the command.
#define UNKNOWN 0
#define FULL 1        // a round with a line for every lane, and another round follows
#define FULL_LAST 2   // the same, the operation's last
#define SHORT_LAST 3  // only the first lane has a line
byte kind[EPOCHS + 1];
byte waiting[2];  // lanes of a rank at its barrier
bool turn[2];

#define LAND(i) :: d_step { data[i]?value -> assert(!fresh[i]); flag[i] = value; fresh[i] = true; value = 0 }

proctype memory() {
  byte value;
end:
  do
  LAND(0)
  LAND(1)
  LAND(2)
  LAND(3)
  LAND(4)
  LAND(5)
  LAND(6)
  LAND(7)
  od
}

inline know_kind(epoch) {
  if
  :: kind[epoch] != UNKNOWN
#ifndef ONE_ROUND
  :: kind[epoch] == UNKNOWN -> kind[epoch] = FULL
#endif
  :: kind[epoch] == UNKNOWN -> kind[epoch] = FULL_LAST
#ifndef NO_SHORT
  :: kind[epoch] == UNKNOWN -> kind[epoch] = SHORT_LAST
#endif
  fi
}

#define HAS_LINE(epoch) (lane == 0 || kind[epoch] != SHORT_LAST)

#ifdef FIX_MEET_BEFORE_SHORT
#define MEETS (kind[e] != FULL || kind[e + 1] == SHORT_LAST)
#else
#define MEETS (kind[e] != FULL)
#endif

inline send() {
  if
  :: e < EPOCHS ->
    know_kind(e);
    if
    :: HAS_LINE(e) -> data[AT(1 - me, e, lane)]!(1 + e)
    :: else
    fi
  :: else
  fi
}

// What a lane puts into its buffer nobody sees, and reading at the last moment is the worst for the line: few steps.
proctype worker(byte me; byte lane) {
  byte e;
  bool before;
  atomic { send() };
  do
  :: e == EPOCHS -> break
  :: atomic {
       e < EPOCHS && (!HAS_LINE(e) || flag[AT(me, e, lane)] == 1 + e) ->
       if
       :: HAS_LINE(e) -> assert(fresh[AT(me, e, lane)]); fresh[AT(me, e, lane)] = false
       :: else
       fi;
#ifdef FIX_MEET_BEFORE_SHORT
       know_kind(e + 1);
#endif
       if
       :: MEETS ->
         before = turn[me]; waiting[me]++;
         if
         :: waiting[me] == LANES -> waiting[me] = 0; turn[me] = !turn[me]
         :: else
         fi;
         turn[me] != before; before = false
       :: else
       fi;
       e++;
       send()
     }
  od
}

init {
  atomic {
    run memory();
    run worker(0, 0);
    run worker(0, 1);
    run worker(1, 0);
    run worker(1, 1)
  }
}

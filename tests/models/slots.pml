// SPDX-FileCopyrightText: The ringbell authors
// SPDX-License-Identifier: Apache-2.0
//
// Slot sets without credits: a rank that has received from every peer in epoch e knows that they have left e - 1, so
// the set of e - 1 is free. Direct exchange, chunks sent ahead, two-shot's two phases, header lines by parity. What
// counts slots with credits is credits.pml. README.md here says which statement stands for what; run_models.py has the
// cases and the mutants (M_*).
//
// Memory: what a rank stores becomes visible in any order, but for two stores of one word, which keep theirs. Epochs
// are stored in order, so a word's next value follows from how many have landed, and how many have been issued says
// how many may. The flag is the epoch itself: its wrap is credits.pml's.

#define RANKS 3
#ifndef SETS
#define SETS 2
#endif
#ifndef AHEAD
#define AHEAD 0  // chunks sent before the receptions of an earlier one
#endif
#ifndef EPOCHS
#define EPOCHS 5
#endif
#ifndef WORDS
#define WORDS 1  // of a line; each has its own flag
#endif
#ifdef TWO_SHOT
#define PHASES 2  // 0: reduce-scatter, 1: all-gather
#else
#define PHASES 1
#endif

#define LINK(phase, from, to) (((phase) * RANKS + (from)) * RANKS + (to))
#define WORD(link, word) ((link) * WORDS + (word))
#define SLOT(link, set, word) (((link) * SETS + (set)) * WORDS + (word))
#define LINKS (PHASES * RANKS * RANKS)

byte issued[LINKS];                 // epochs that the sender has stored
byte landed[LINKS * SETS * WORDS];  // how many of a word's values are visible
byte taken[LINKS * WORDS];          // epochs that the reader has read

// The next value of a word becomes visible: the one before has been read.
#define LAND(s, w) \
  :: d_step { s < SETS && w < WORDS && landed[SLOT(link, s % SETS, w % WORDS)] * SETS + s < issued[link] -> \
       assert(landed[SLOT(link, s % SETS, w % WORDS)] == 0 || \
              taken[WORD(link, w % WORDS)] > (landed[SLOT(link, s % SETS, w % WORDS)] - 1) * SETS + s); \
       landed[SLOT(link, s % SETS, w % WORDS)]++ }

proctype memory(byte link) {
end:
  do
  LAND(0, 0)
  LAND(1, 0)
#if SETS > 2
  LAND(2, 0)
#endif
#if SETS > 3
  LAND(3, 0)
#endif
#if SETS > 4
  LAND(4, 0)
#endif
#if SETS > 5
  LAND(5, 0)
#endif
#if WORDS > 1
  LAND(0, 1)
  LAND(1, 1)
#endif
  od
}

// Stores a phase's lines up to and with `epoch` to every peer.
inline send(phase, epoch) {
  d_step {
    peer = 0;
    do
    :: peer < RANKS && peer != me && issued[LINK(phase, me, peer)] <= epoch && epoch < EPOCHS ->
      issued[LINK(phase, me, peer)] = epoch + 1; peer++
    :: peer < RANKS && !(peer != me && issued[LINK(phase, me, peer)] <= epoch && epoch < EPOCHS) -> peer++
    :: peer == RANKS -> break
    od;
    peer = 0
  }
}

// The flag in the word is that of `e`: that many values of the word's set, and no more.
#define READY(phase, from, w) \
  (from != me && taken[WORD(LINK(phase, from, me), w)] == e && \
  landed[SLOT(LINK(phase, from, me), e % SETS, w)] == e / SETS + 1)
#define TAKE(phase, from, w) :: d_step { READY(phase, from, w) -> taken[WORD(LINK(phase, from, me), w)]++ }
#define HAS(phase, from, w) (from == me || taken[WORD(LINK(phase, from, me), w)] > e)
#define HAS_ALL(phase, w) (HAS(phase, 0, w) && HAS(phase, 1, w) && HAS(phase, 2, w))

#ifdef LATE_READS
// All reads at the last moment: an earlier one lets nobody do more, and spares a line from being overwritten unread.
#define READY_ALL(phase, w) \
  ((me == 0 || READY(phase, 0, w)) && (me == 1 || READY(phase, 1, w)) && (me == 2 || READY(phase, 2, w)))
#define TAKE_ALL(phase, w) \
  taken[WORD(LINK(phase, 0, me), w)] = e + 1; \
  taken[WORD(LINK(phase, 1, me), w)] = e + 1; \
  taken[WORD(LINK(phase, 2, me), w)] = e + 1
inline receive(phase) {
#if WORDS == 1
  d_step { READY_ALL(phase, 0) -> TAKE_ALL(phase, 0) }
#elif defined(M_NO_BARRIER)
  d_step { READY_ALL(phase, 0) -> TAKE_ALL(phase, 0) };
  send(phase, e + 1);  // one lane has read the first words and sends; the other still reads
  d_step { READY_ALL(phase, 1) -> TAKE_ALL(phase, 1) }
#else
  d_step { READY_ALL(phase, 0) && READY_ALL(phase, 1) -> TAKE_ALL(phase, 0); TAKE_ALL(phase, 1) }
#endif
}
#else
inline receive(phase) {
  do
  TAKE(phase, 0, 0)
  TAKE(phase, 1, 0)
  TAKE(phase, 2, 0)
#if WORDS > 1
  TAKE(phase, 0, 1)
  TAKE(phase, 1, 1)
  TAKE(phase, 2, 1)
#endif
#ifdef M_SEND_BEFORE_ALL
  :: (HAS(phase, 0, 0) && me != 0) || (HAS(phase, 1, 0) && me != 1) || (HAS(phase, 2, 0) && me != 2) ->
    send(phase, e + 1)
#endif
#ifdef M_ONE_PEER_UNREAD
  :: me != 0 || HAS(phase, 1, 0) -> break  // rank 0 does not look at rank 2's line
#endif
#if WORDS > 1
  :: HAS_ALL(phase, 0) && HAS_ALL(phase, 1) -> break
#else
  :: HAS_ALL(phase, 0) -> break
#endif
  od
}
#endif

proctype rank(byte me) {
  byte e, peer;
#ifdef TWO_SHOT
#ifdef EARLY
#define RS_AHEAD 1
#else
#define RS_AHEAD 0
#endif
  do
  :: e < EPOCHS ->
    send(0, e + RS_AHEAD);
    receive(0);
    send(1, e);
#ifdef M_RS_BEFORE_AG_READ
    send(0, e + 2);
#endif
    receive(1);
    e++
  :: else -> break
  od
#else
  do
  :: e < EPOCHS -> send(0, e + AHEAD); receive(0); e++
  :: else -> break
  od
#endif
}

init {
  byte from, to, phase;
  atomic {
    for (phase : 0 .. PHASES - 1) {
      for (from : 0 .. RANKS - 1) {
        for (to : 0 .. RANKS - 1) {
          if
          :: from != to -> run memory(LINK(phase, from, to))
          :: else
          fi
        }
      }
    }
    run rank(0);
    run rank(1);
    run rank(2)
  }
}

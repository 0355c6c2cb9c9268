// Package webhook sends events to receivers by HTTP: it reads deliveries from the store's outbox,
// posts them with a signature, and tries again until they are accepted or a day is over.
//
// The store puts deliveries into the outbox in the transaction of their event; app
// makes the Deliverer. It imports the vocabulary and the journal. Invariant (I-26):
// a delivery is removed from the outbox only if its receiver has accepted it, if it was given up
// and the session's log records that, or if its receiver or session no longer exists.
package webhook

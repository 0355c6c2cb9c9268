// Package webhook tells receivers of events: it takes deliveries out of the store's
// outbox, posts them signed, and tries again until they arrive or a day is over.
//
// The store puts deliveries into the outbox in the transaction of their event; app
// makes the Deliverer. It imports the vocabulary and the journal. Invariant (I-26):
// a delivery leaves the outbox only once a receiver has taken it, or the session's
// log says that it was given up.
package webhook

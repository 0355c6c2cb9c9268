// Package audit is the hash-chained record of what was decided: which events it
// holds, the exact bytes of a record, signed heads, the export and its verifier.
//
// The store appends records in the transaction of the events they are of; app
// owns the Log, which signs heads behind the commits; cmd verifies exports. It
// imports the vocabulary alone. Invariant (I-25): records are numbered 1, 2, 3, …
// over the whole server, each holds the hash of the one before, and what an export
// says can be checked from its bytes and the public key alone.
// docs/format/audit.md defines every byte.
package audit

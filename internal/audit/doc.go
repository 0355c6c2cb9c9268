// Package audit is the hash-chained record of decisions. It defines which events are recorded, the
// exact bytes of a record, and signed heads, and it has the export and its verifier.
//
// The store appends records in the transaction of the events that they record; app
// owns the Log, which signs heads after the commits; cmd verifies exports. It
// imports only the vocabulary. Invariant (I-25): records are numbered 1, 2, 3, …
// over the whole server, each contains the hash of the record before, and an export
// can be verified with only its bytes and the public key.
// docs/format/audit.md defines every byte.
package audit

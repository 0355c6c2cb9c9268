// Package audit is the hash-chained record of decisions. It defines which events are recorded, the
// exact bytes of a record, how the chains of different server starts name each other, and signed
// heads; and it has the export and its verifier.
//
// The store appends records in the transaction of the events that they record; app
// owns the Log, which signs heads after the commits; cmd verifies exports. It
// imports only the vocabulary. Invariant (I-25): each start of a server writes a chain of its own,
// whose records are numbered 1, 2, 3, … and contain the hash of the record before; the first record
// of a chain names the ends of the chains before; and an export can be verified with only its bytes
// and the public key. docs/format/audit.md defines every byte.
package audit

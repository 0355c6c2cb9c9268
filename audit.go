package holdfast

import "time"

// AuditHead is the answer of GET /v1/audit/head: the newest record of the server's audit chain,
// signed. A copy stored elsewhere proves later whether the chain was truncated or
// rewritten.
type AuditHead struct {
	// Chain is the number of the server start that wrote the chain, N the number of its newest
	// record. Hash is that record's hash: 64 hex digits.
	Chain int64     `json:"chain"`
	N     int64     `json:"n"`
	Hash  string    `json:"hash"`
	Time  time.Time `json:"time"`
	// Signature is the Ed25519 signature of the head, which PublicKey verifies; both are
	// in hexadecimal.
	Signature string `json:"signature"`
	PublicKey string `json:"public_key"`
}

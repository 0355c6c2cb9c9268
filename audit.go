package holdfast

import "time"

// AuditHead is the answer of GET /v1/audit/head: the newest place in the audit
// chain, signed. Kept elsewhere, it shows later whether the chain was cut or
// written anew.
type AuditHead struct {
	// N is the number of the newest record, 0 for none, Hash its hash: 64 hex digits.
	N    int64     `json:"n"`
	Hash string    `json:"hash"`
	Time time.Time `json:"time"`
	// Signature is Ed25519 by PublicKey, both in hexadecimal.
	Signature string `json:"signature"`
	PublicKey string `json:"public_key"`
}

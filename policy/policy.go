// Package policy decides whether a tool may run. It is pure: no I/O.
//
// In this release it knows modes and tool names only; rules, callbacks and
// approvals take the same seam. The agent loop and the engine import it; it
// imports the vocabulary. Invariant: what it does not know, it denies.
package policy

import (
	"context"

	"github.com/holdfast-run/holdfast"
)

// Request is a tool call to be decided.
type Request struct {
	Session holdfast.SessionID
	Mode    holdfast.Mode
	Tool    string
	// ReadOnly reports that the tool changes nothing.
	ReadOnly bool
	Input    []byte
}

// Verdict is a decision. The zero value denies.
type Verdict struct {
	Allow bool
	// By names what decided; Reason is for the model when denied.
	By, Reason string
}

// Decider decides tool calls. Safe for concurrent use; an error denies.
type Decider interface {
	Decide(ctx context.Context, req Request) (Verdict, error)
}

// Package tool is the contract of tools: what one is called, what it does to
// the world, and how it runs.
//
// Tools live in sub-packages (builtin) and with users of the agent SDK. It
// imports the vocabulary and package sandbox. Invariant (I-10): a tool that mutates
// in the box acts only through calls that bear the Call's id, so that running it again
// with the same id never acts twice in one life of the box. One that mutates elsewhere
// is never run again.
package tool

import (
	"context"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Effect is what a tool does to the world. The zero value is illegal.
type Effect int

// The effects.
const (
	// Read changes nothing: calls may run side by side, and again after a crash.
	Read Effect = iota + 1
	// Mutate changes something. Its intent is recorded before it runs; once its outcome is
	// unknown it never runs again.
	Mutate
)

// Where is where a tool acts. The zero value is illegal.
type Where int

// The places.
const (
	// InBox acts through Call.Box, in the session's box, which is started if need be. A
	// call that runs there survives the server.
	InBox Where = iota + 1
	// InServer acts in the process of the server and needs no box. What becomes of a
	// mutating call is unknown when the server ends while it runs.
	InServer
)

// Spec describes a tool.
type Spec struct {
	// Name is how model and rules call the tool.
	Name        string
	Description string
	// Schema is a JSON Schema of the input: an object.
	Schema json.RawMessage
	Effect Effect
	Where  Where
}

// Call is one use of a tool.
type Call struct {
	// ID is set for mutating tools only.
	ID    holdfast.CallID
	Input json.RawMessage
	// Box is set for tools that act in the box, nil for those of the server.
	Box *sandbox.Box
	// Output receives live output, stream being stdout or stderr; never nil.
	Output func(stream, text string)
	// Started is called when a process that the call runs exists; may be nil.
	Started func()
}

// Result is what a tool use came to.
type Result struct {
	// Content is what the model sees.
	Content string
	IsError bool
	// Outcome is ok unless a process or operation ended otherwise.
	Outcome  holdfast.ExitClass
	ExitCode *int
	Signal   string
	// DurationMS is how long it took where it ran; 0 leaves that to the caller's
	// clock, which goes on while nobody waits for the call.
	DurationMS float64
}

// Tool is something an agent can do.
type Tool interface {
	Spec() Spec
	// Run carries out the call. A failure that the model should see is a Result
	// with IsError; an error means that the call could not be carried out at all
	// and, when its Kind is unavailable, that its outcome may be unknown. When ctx
	// is cancelled a mutating tool kills what it started before it returns.
	Run(ctx context.Context, call Call) (Result, error)
}

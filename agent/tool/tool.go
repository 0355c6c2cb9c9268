// Package tool is the contract of tools: what one is called, what it does to
// the world, and how it runs.
//
// Tools live in sub-packages (builtin) and with users of the agent SDK. It
// imports the vocabulary and package sandbox. Invariant (I-10): a tool that mutates
// acts only through calls that bear the Call's id, so that running it again
// with the same id never acts twice in one life of the box.
package tool

import (
	"context"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Effect is what a tool does to the world.
type Effect int

// The effects. Pure tools need no box and read ones may run in parallel and
// again; a mutating one is journalled before it runs and never run again once
// its outcome is unknown. The zero value is illegal.
const (
	Pure Effect = iota + 1
	Read
	Mutate
)

// Spec describes a tool.
type Spec struct {
	// Name is one of the fixed set: Read Write Edit Bash Glob Grep LS TodoWrite …
	Name        string
	Description string
	// Schema is a JSON Schema of the input: an object.
	Schema json.RawMessage
	Effect Effect
}

// Call is one use of a tool.
type Call struct {
	// ID is set for mutating tools only.
	ID    holdfast.CallID
	Input json.RawMessage
	// Box is nil for pure tools.
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

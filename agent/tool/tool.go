// Package tool defines the interface of tools: their names, their effect on the world, and how
// they run.
//
// Tools are implemented in sub-packages (builtin) and by users of the agent SDK. This package imports
// the vocabulary and package sandbox. Invariant (I-10): a tool that changes something in the box acts
// only through box operations with the Call's id, so that running it again with the same id never
// acts twice during one boot of the box. A tool that changes something elsewhere is never run
// again.
package tool

import (
	"context"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Effect says whether a tool changes something. The zero value is invalid.
type Effect int

// The effects.
const (
	// Read is for tools that change nothing: their calls may run concurrently, and again after a
	// crash.
	Read Effect = iota + 1
	// Mutate is for tools that change something. The intent to run a call is recorded before it
	// runs; a call whose outcome is unknown is never run again.
	Mutate
)

// Where says where a tool acts. The zero value is invalid.
type Where int

// The values of Where: the places where tools act.
const (
	// InBox is for tools that act through Call.Box in the session's box, which is started if
	// necessary. A call that runs there continues if the server dies.
	InBox Where = iota + 1
	// InServer is for tools that act in the server's process and need no box. If the server ends
	// during a call that changes something, the call's outcome is unknown.
	InServer
)

// Spec describes a tool.
type Spec struct {
	// Name is the tool's name for the model and in permission rules.
	Name        string
	Description string
	// Schema is the JSON Schema of the tool's input, which is an object.
	Schema json.RawMessage
	Effect Effect
	Where  Where
}

// Unsaved returns the text of a file that the user's editor has open and has not saved. unsaved is false if no editor is
// connected, or if the editor shows the text that is on the disk. path is relative to the workspace and free of symlinks
// (see wire.ReadAnswer.Below): the tool has found the file in the box before, so that path rules hold. The text is
// untrusted. An error means that the editor could not be asked. The type is an alias, so that a package that implements
// it need not import package tool.
type Unsaved = func(ctx context.Context, path string) (text string, unsaved bool, err error)

// Call is one use of a tool.
type Call struct {
	// ID is the call's id for tools with effect Mutate; empty for others.
	ID    holdfast.CallID
	Input json.RawMessage
	// Box is the session's box for tools whose Where is InBox; nil for other tools.
	Box *sandbox.Box
	// Output is called with output while it is produced; stream is stdout or stderr. Never nil.
	Output func(stream, text string)
	// Unsaved asks the user's editor; may be nil.
	Unsaved Unsaved
	// Started is to be called once a process that the call runs exists; may be nil.
	Started func()
}

// Result is the result of a tool call.
type Result struct {
	// Content is the text that the model gets.
	Content string
	IsError bool
	// Outcome says how the call's process or operation ended; ExitOK if nothing went wrong.
	Outcome  holdfast.ExitClass
	ExitCode *int
	Signal   string
	// DurationMS is how long the call took in the box, in milliseconds. If it is 0, the caller
	// measures the time itself, which also includes time after the call had ended.
	DurationMS float64
}

// Tool is implemented by each tool that an agent can use.
type Tool interface {
	Spec() Spec
	// Run executes the call. A failure that the model should learn of is a Result with IsError. An
	// error means that the call could not be executed; if its kind is unavailable, the outcome may
	// be unknown. When ctx is canceled, a tool with effect Mutate kills everything that it started
	// before it returns.
	Run(ctx context.Context, call Call) (Result, error)
}

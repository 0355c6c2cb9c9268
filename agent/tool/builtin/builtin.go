// Package builtin holds the tools every agent has: Read, Write, Edit, Bash,
// Glob, Grep, LS and TodoWrite, by Claude Code's names and input fields.
//
// Runtimes and users of the agent SDK import it; it imports the tool contract,
// the sandbox and the vocabulary. Invariant: nothing happens that the input did
// not ask for in full: an unknown, missing or wrong-typed field is an answer to
// the model that names the field, and the box is not touched.
package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// afterCancel is how long a call of a cancelled turn may take to come to its outcome.
const afterCancel = 10 * time.Second

// All are the built-in tools in the order in which they are offered. They have
// no state and are safe for concurrent use.
func All() []tool.Tool {
	return []tool.Tool{
		&builtin{readSpec, runRead},
		&builtin{writeSpec, runWrite},
		&builtin{editSpec, runEdit},
		&builtin{bashSpec, runBash},
		&builtin{globSpec, runGlob},
		&builtin{grepSpec, runGrep},
		&builtin{lsSpec, runLS},
		&builtin{todoSpec, runTodo},
	}
}

// builtin is a tool made of a description and a function. The function returns
// any error; Run decides what the model sees of it.
type builtin struct {
	spec tool.Spec
	run  func(ctx context.Context, call tool.Call) (tool.Result, error)
}

// Spec implements tool.Tool.
func (b *builtin) Spec() tool.Spec { return b.spec }

// Run implements tool.Tool: refusals are results, a broken pipe and an ended
// context are errors.
func (b *builtin) Run(ctx context.Context, call tool.Call) (tool.Result, error) {
	if b.spec.Where == tool.InBox && call.Box == nil {
		return tool.Result{}, holdfast.Errorf(holdfast.KindUnavailable, b.spec.Name, "there is no sandbox")
	}
	if b.spec.Effect == tool.Mutate && call.ID == "" {
		return tool.Result{}, holdfast.Errorf(holdfast.KindInternal, b.spec.Name, "a mutating call without an id")
	}
	if call.Output == nil {
		call.Output = func(string, string) {}
	}
	res, err := b.run(ctx, call)
	switch {
	case err == nil:
		return res, nil
	case holdfast.IsKind(err, holdfast.KindUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return tool.Result{}, err
	}
	return refusal(err), nil
}

// refusal is an error as the model sees it.
func refusal(err error) tool.Result {
	text := reason(err)
	if hint := holdfast.HintOf(err); hint != "" {
		text += " (" + hint + ")"
	}
	return tool.Result{Content: clean(text), IsError: true, Outcome: holdfast.ExitError}
}

// reason is an error's message without the names of operations before it.
func reason(err error) string {
	text := err.Error()
	for {
		op, rest, ok := strings.Cut(text, ": ")
		if !ok || strings.ContainsAny(op, "\"\n") || !operation(op) {
			return text
		}
		text = rest
	}
}

// operation reports whether s is the name of an operation, as "box edit" or "file.edit".
func operation(s string) bool {
	for _, prefix := range []string{"box ", "boxd", "file.", "input"} {
		if strings.HasPrefix(s, prefix) && len(s) < 30 {
			return true
		}
	}
	return false
}

// clean makes text that any store and reader can hold: valid UTF-8 without NUL.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// ok is a result that went well.
func ok(content string) tool.Result {
	return tool.Result{Content: clean(content), Outcome: holdfast.ExitOK}
}

// canceled is the result of a call whose turn was interrupted.
func canceled(content string) tool.Result {
	return tool.Result{Content: content, IsError: true, Outcome: holdfast.ExitCanceled}
}

const neverRan = "interrupted before it began: nothing was done"

// once issues a short mutating call so that its outcome is known even when ctx
// ends meanwhile. With a ctx that has ended already it starts nothing: it only
// fetches the outcome of a call that the box holds from before.
func once(ctx context.Context, call tool.Call, issue func(context.Context, sandbox.Call) (string, error)) (tool.Result, error) {
	grace, cancel := outlive(ctx, afterCancel)
	defer cancel()
	if ctx.Err() != nil {
		held, err := call.Box.Calls(grace)
		if err != nil {
			return tool.Result{}, lostTrack(err)
		}
		if !holds(held, call.ID) {
			return canceled(neverRan), nil
		}
	}
	text, err := issue(grace, sandbox.Call{ID: call.ID})
	if err != nil {
		return tool.Result{}, lostTrack(err)
	}
	return ok(text), nil
}

func holds(calls []wire.CallState, id holdfast.CallID) bool {
	for _, c := range calls {
		if c.Call == id {
			return true
		}
	}
	return false
}

// lostTrack says of a call that gave no answer in time that its outcome is unknown.
func lostTrack(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return holdfast.Errorf(holdfast.KindUnavailable, "box", "no answer in time after the interrupt: %w", err)
	}
	return err
}

// outlive is a context that ends some time after ctx does.
func outlive(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(after)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-ended:
		}
	})
	return out, func() {
		stop()
		cancel()
		select {
		case <-ended:
		default:
			close(ended)
		}
	}
}

// schema marks a literal as a JSON schema.
func schema(s string) json.RawMessage { return json.RawMessage(s) }

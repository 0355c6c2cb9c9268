// Package builtin implements the tools that every agent has: Read, Write, Edit, Bash, Glob, Grep,
// LS and TodoWrite, with the names and input fields of Claude Code's tools.
//
// Package app and users of the agent SDK import it; it imports package tool, the sandbox and the
// vocabulary. Invariant: a tool acts only on a completely valid input. An unknown, missing or
// wrongly typed field makes the result an error that names the field, and the box is not used.
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

// afterCancel is how long a tool waits for the outcome of its call after the turn was canceled.
const afterCancel = 10 * time.Second

// All returns the built-in tools in the order in which the model is offered them. They have no
// state and are safe for concurrent use.
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

// builtin is a tool that consists of a description and a function. The function may return any
// error; Run converts it to a result for the model or an error.
type builtin struct {
	spec tool.Spec
	run  func(ctx context.Context, call tool.Call) (tool.Result, error)
}

// Spec implements tool.Tool.
func (b *builtin) Spec() tool.Spec { return b.spec }

// Run implements tool.Tool. A refused call is a result for the model; a broken connection to the
// box and an ended context are errors.
func (b *builtin) Run(ctx context.Context, call tool.Call) (tool.Result, error) {
	if b.spec.Where == tool.InBox && call.Box == nil {
		return tool.Result{}, holdfast.Errorf(holdfast.KindUnavailable, b.spec.Name, "tool %s needs a sandbox, but the call has none", b.spec.Name)
	}
	if b.spec.Effect == tool.Mutate && call.ID == "" {
		return tool.Result{}, holdfast.Errorf(holdfast.KindInternal, b.spec.Name, "the call of tool %s has no call id, which each call that changes something needs", b.spec.Name)
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

// refusal returns the result that reports an error to the model.
func refusal(err error) tool.Result {
	text := reason(err)
	if hint := holdfast.HintOf(err); hint != "" {
		text += " (" + hint + ")"
	}
	return tool.Result{Content: clean(text), IsError: true, Outcome: holdfast.ExitError}
}

// reason returns an error's message without the names of operations at its beginning.
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

// clean returns text that can be stored everywhere: valid UTF-8 without NUL characters.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// ok returns the result of a successful call.
func ok(content string) tool.Result {
	return tool.Result{Content: clean(content), Outcome: holdfast.ExitOK}
}

// canceled returns the result of a call whose turn was interrupted.
func canceled(content string) tool.Result {
	return tool.Result{Content: content, IsError: true, Outcome: holdfast.ExitCanceled}
}

const neverRan = "interrupted before it began: nothing was done"

// once issues a short call that changes something, in such a way that its outcome is known even if
// ctx ends meanwhile. If ctx has ended already it starts nothing, and only fetches the outcome if
// the box knows the call.
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

// lostTrack converts the error of a context that ended to unavailable: the call's outcome is unknown, because no answer
// came in time. Other errors stay as they are.
func lostTrack(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return holdfast.Errorf(holdfast.KindUnavailable, "box", "the box did not report the outcome of the interrupted call in time: %w", err)
	}
	return err
}

// outlive returns a context that ends when the time after has passed since the end of ctx.
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

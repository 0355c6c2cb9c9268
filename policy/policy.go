// Package policy decides whether a tool may run, and says why. It is pure: its only I/O
// is through the FS of a request.
//
// It owns the algebra of decisions, the permission modes, rules such as Bash(git *),
// policies and their composition, and the order in which they are asked. The agent loop
// and the engine import it; it imports the vocabulary and the sandbox checker.
// Invariant: it denies everything it does not know; an error, a panic or a timeout of a
// policy denies; no later opinion lifts a denial.
package policy

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// Request is a tool call to be decided.
type Request struct {
	Session holdfast.SessionID
	Mode    holdfast.Mode
	Tool    string
	// ReadOnly reports that the tool changes nothing. It is the tool's own word: it
	// may make a decision stricter, not milder.
	ReadOnly bool
	Input    json.RawMessage
	// CallID is the model's id of the call, Agent the child agent that made it.
	CallID, Agent string
	// Cwd and Home are the tools' directories (default /workspace, /home/agent).
	Cwd, Home string
	// FS gives the links of the tools' file system; nil gives none, so that paths are
	// taken as written. Policies look at it while they decide, and at nothing else.
	FS check.FS
	// Sandboxed says that a sandbox of the system is in force around the tool.
	Sandboxed bool
	// Hooks is what the hooks before the call came to, the strictest of them.
	Hooks Decision
	// Ready makes durable what led to the call; an approver calls it before it asks
	// anybody, so that the question outlives a crash. Nil has nothing to do.
	Ready func() error
}

// Undecided is the error of a decision that nobody took: who should have is gone,
// or was not reached. The call is neither allowed nor denied; whoever wanted the
// decision ends its run.
type Undecided struct{ Err error }

func (u *Undecided) Error() string { return "nobody decided: " + u.Err.Error() }

// Unwrap is why.
func (u *Undecided) Unwrap() error { return u.Err }

// Verdict is what an opinion comes to. The zero value is none.
type Verdict uint8

// The verdicts, from mild to strict but for the first, which is none.
const (
	NoOpinion Verdict = iota
	Allowed
	Asked
	Denied
)

var verdictNames = [...]string{"no opinion", "allow", "ask", "deny"}

func (v Verdict) String() string {
	if int(v) >= len(verdictNames) {
		return fmt.Sprintf("verdict %d", v)
	}
	return verdictNames[v]
}

// Decision is an opinion with what belongs to it. The zero value is no opinion.
type Decision struct {
	Verdict Verdict
	// By names what decided; Reason is for the model and the log; Rule is the rule
	// that matched.
	By, Reason, Rule string
	// Input is what the tool gets instead of the request's; nil leaves it.
	Input json.RawMessage
	// Updates change the rules from here on.
	Updates []Update
	// Interrupt, with a denial, ends the turn.
	Interrupt bool
	// Quiet, with a denial, leaves it out of reports; it is in the log all the same.
	Quiet bool

	// byMode: a permission mode came to it, after nobody else had an opinion.
	byMode bool
}

// Allow lets the tool run as asked.
func Allow() Decision { return Decision{Verdict: Allowed} }

// AllowInput lets the tool run with another input, which is decided upon once more.
func AllowInput(input json.RawMessage) Decision { return Decision{Verdict: Allowed, Input: input} }

// Deny refuses; the model reads the reason.
func Deny(reason string) Decision { return Decision{Verdict: Denied, Reason: reason} }

// Ask wants a person's answer; where nobody can be asked that is a denial.
func Ask(reason string) Decision { return Decision{Verdict: Asked, Reason: reason} }

// Decider decides tool calls. The verdict is Allowed or Denied, anything else
// denies, and so does an error, but for Undecided. Safe for concurrent use.
type Decider interface {
	Decide(ctx context.Context, req Request) (Decision, error)
	// Scope returns what an allowed tool may touch when it runs. The code that opens files
	// enforces it, because only there is it known where links lead. Tools that open no
	// file have an empty one. After an error the tool may touch nothing.
	Scope(ctx context.Context, req Request) (Scope, error)
}

// Scope is what a file tool may touch, by where its paths lead.
type Scope = check.Scope

// Policy is one opinion among others. Safe for concurrent use; an error denies.
type Policy interface {
	Evaluate(ctx context.Context, req Request) (Decision, error)
}

// Func is a policy as a function.
type Func func(context.Context, Request) (Decision, error)

// Evaluate implements Policy.
func (f Func) Evaluate(ctx context.Context, req Request) (Decision, error) { return f(ctx, req) }

func deny(by, format string, args ...any) Decision {
	return Decision{Verdict: Denied, By: by, Reason: fmt.Sprintf(format, args...)}
}

func ask(by, format string, args ...any) Decision {
	return Decision{Verdict: Asked, By: by, Reason: fmt.Sprintf(format, args...)}
}

// Networks are the sandbox settings' lists of domains, of the layers that have one.
func (e *Engine) Networks() [][]string {
	var out [][]string
	for _, s := range e.sandboxes {
		if n := s.settings.Network; n != nil {
			out = append(out, n.AllowedDomains)
		}
	}
	return out
}

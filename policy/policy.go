// Package policy decides whether a tool may run, and says why. It is pure: its only I/O
// is through the FS of a request.
//
// It owns the algebra of decisions, the permission modes, rules such as Bash(git *),
// policies and their composition, and the order in which they are asked. The agent loop,
// the engine and others import it; it imports the vocabulary and the sandbox checker.
// Invariant: it denies everything it does not know; an error, a panic or a timeout of a
// policy denies; no later opinion lifts a denial.
package policy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	// ReadOnly is the tool's own claim that it changes nothing. A false claim must not
	// matter: ReadOnly can make a decision stricter, never milder.
	ReadOnly bool
	Input    json.RawMessage
	// CallID is the model's id of the call, Agent the child agent that made it.
	CallID, Agent string
	// Cwd and Home are the tools' directories (default /workspace, /home/agent).
	Cwd, Home string
	// FS resolves symbolic links in the tools' file system; with nil, paths are used as
	// written. It is the only I/O of a decision.
	FS check.FS
	// Named returns the path by which rules name a file that the tools have at a clean absolute path; if Named
	// is nil, the path is the same. Tools on the host have workspace and home elsewhere than tools in a box.
	Named func(path string) string
	// Sandboxed is true if an operating-system sandbox confines the tool.
	Sandboxed bool
	// Unscoped is true if the agent's own program opens the files of the call, so that no Scope limits them.
	Unscoped bool
	// Hooks is the combined decision of the hooks that ran before the call: the strictest.
	Hooks Decision
	// Ready makes the events that led to the call durable. An approver calls it before it
	// asks a person, so that the question survives a crash. Nil means nothing to do.
	Ready func() error
}

// Undecided is the error of a call on which no decision was made, because the approver could
// not be asked or stopped waiting. The call is neither allowed nor denied; the code that
// asked for the decision has to end its run.
type Undecided struct{ Err error }

func (u *Undecided) Error() string { return "no decision on the tool call: " + u.Err.Error() }

// Unwrap returns the error because of which no decision was made.
func (u *Undecided) Unwrap() error { return u.Err }

// Verdict is the result of an opinion: no opinion (the zero value), allow, ask or deny.
type Verdict uint8

// The verdicts: no opinion, then the others from mild to strict.
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

// Decision is a verdict on a tool call with its reason and effects. The zero value is no
// opinion.
type Decision struct {
	Verdict Verdict
	// By names the stage or policy that decided; Reason is for the model and the log; Rule
	// is the rule that matched.
	By, Reason, Rule string
	// Input replaces the input of the call; nil leaves it as it is.
	Input json.RawMessage
	// Updates are changes of the permissions that apply from now on.
	Updates []Update
	// Interrupt, with a denial, ends the turn.
	Interrupt bool
	// Quiet, with a denial, leaves the denial out of reports; it is recorded in the log.
	Quiet bool

	// byMode is true if the permission mode decided, because no other stage had an opinion.
	byMode bool
}

// Allow returns a decision that lets the tool run with the requested input.
func Allow() Decision { return Decision{Verdict: Allowed} }

// AllowInput returns a decision that lets the tool run with another input, unless the rules
// or the sandbox settings refuse that input.
func AllowInput(input json.RawMessage) Decision { return Decision{Verdict: Allowed, Input: input} }

// Deny returns a decision that refuses the call; the model gets the reason.
func Deny(reason string) Decision { return Decision{Verdict: Denied, Reason: reason} }

// Ask returns a decision that requires a person's answer; if no person can be asked, the
// call is denied.
func Ask(reason string) Decision { return Decision{Verdict: Asked, Reason: reason} }

// Decider decides tool calls. The verdict of Decide is Allowed or Denied; callers treat any
// other verdict, and any error except Undecided, as a denial. Safe for concurrent use.
type Decider interface {
	Decide(ctx context.Context, req Request) (Decision, error)
	// Scope returns which files an allowed tool may access when it runs. The code that opens
	// the files enforces it, because only that code knows where symbolic links lead. The
	// scope of tools that open no files is empty. After an error the tool may access nothing.
	Scope(ctx context.Context, req Request) (Scope, error)
}

// Scope says which files a tool may access, after symbolic links in paths are resolved.
type Scope = check.Scope

// Policy gives an opinion on tool calls, which can be combined with the opinions of other
// policies. It is safe for concurrent use. An error denies the call.
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

// Networks returns the allowed domains in the sandbox settings: one list for each layer that
// has network settings. A destination has to be in every list.
func (e *Engine) Networks() [][]string {
	var out [][]string
	for _, s := range e.sandboxes {
		if n := s.settings.Network; n != nil {
			out = append(out, n.AllowedDomains)
		}
	}
	return out
}

// InputHash returns the SHA-256 of a tool's input, byte for byte as recorded, in hexadecimal.
func InputHash(input json.RawMessage) string {
	sum := sha256.Sum256(input)
	return hex.EncodeToString(sum[:])
}

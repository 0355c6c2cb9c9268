package journal

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
)

// maxStateData is the largest Data of an agent state, in bytes.
const maxStateData = 256 << 10

// Check returns an error for a change that every store must refuse, whatever the store contains: too_large for
// an agent state that is too large, internal if events and payloads do not match in number, else invalid. Texts must be
// UTF-8 without NUL. Only in the session's error text, which can come from a box, invalid bytes are replaced.
func (c *Encoded) Check() error {
	if c.Session == "" {
		return holdfast.Errorf(holdfast.KindInvalid, opCommit, "the change to commit names no session")
	}
	if len(c.Data) != len(c.Events) {
		return holdfast.Errorf(holdfast.KindInternal, opCommit, "the change has %d events but %d payloads",
			len(c.Events), len(c.Data))
	}
	for i, e := range c.Events {
		if e.Type == "" {
			return holdfast.Errorf(holdfast.KindInvalid, opCommit, "event %d of the change has no type", i+1)
		}
		if !c.json && !json.Valid(c.Data[i]) || !utf8.Valid(c.Data[i]) {
			return holdfast.Errorf(holdfast.KindInvalid, opCommit, "the payload of event type %s is not valid JSON: %s",
				holdfast.Quote(string(e.Type)), holdfast.Quote(string(c.Data[i])))
		}
		if err := CheckText("event", string(e.Type), string(e.Turn)); err != nil {
			return err
		}
		if err := checkChild(e); err != nil {
			return err
		}
	}
	if r := c.Create; r != nil {
		if _, err := holdfast.Parse[holdfast.Status](string(r.Status)); err != nil {
			return err
		}
		if r.ID != "" && r.ID != c.Session {
			return holdfast.Errorf(holdfast.KindInvalid, opCommit, "the session row has the id %s, but the change is for session %s",
				holdfast.Quote(string(r.ID)), c.Session)
		}
		if err := CheckText("session", string(c.Session), string(r.Agent), string(r.AgentVersion), string(r.Trust),
			r.Runtime, r.Model, string(r.Mode), r.Title); err != nil {
			return err
		}
		if err := CheckText("tag", r.Tags...); err != nil {
			return err
		}
		for name := range r.Env {
			if err := CheckText("environment", name); err != nil {
				return err
			}
		}
	}
	return checkParts(c)
}

// checkChild refuses an event of a child agent that has an invalid child id or a type of turn.* or
// session.*: those belong to the session's own agent.
func checkChild(e Draft) error {
	if e.Agent == "" {
		return nil
	}
	if of, _, _ := strings.Cut(string(e.Type), "."); of == "turn" || of == "session" {
		return holdfast.Errorf(holdfast.KindInvalid, opCommit, "an event of type %s cannot belong to the child agent %s", e.Type, holdfast.Quote(string(e.Agent)))
	}
	_, err := holdfast.Parse[holdfast.ChildID](string(e.Agent))
	return err
}

func checkParts(c *Encoded) error {
	for _, st := range c.Status {
		if _, err := holdfast.Parse[holdfast.Status](string(st)); err != nil {
			return err
		}
	}
	if p := c.Set; p != nil {
		if err := CheckText("title", deref(p.Title)); err != nil {
			return err
		}
		if err := CheckText("session", deref(p.Runtime), deref(p.Model), string(deref(p.Mode)), string(deref(p.Trust))); err != nil {
			return err
		}
		if err := CheckText("tag", deref(p.Tags)...); err != nil {
			return err
		}
	}
	for _, tc := range c.Turns {
		if tc.ID == "" {
			return holdfast.Errorf(holdfast.KindInvalid, opCommit, "a turn of the change has no id")
		}
		if err := CheckText("turn", string(tc.ID)); err != nil {
			return err
		}
	}
	if err := checkStates(c); err != nil {
		return err
	}
	if err := checkApprovals(c); err != nil {
		return err
	}
	if err := c.Files.check(c.Session); err != nil {
		return err
	}
	if k := c.Key; k != nil {
		if k.Scope == "" || k.Value == "" || k.Ref == "" {
			return holdfast.Errorf(holdfast.KindInvalid, opCommit, "the idempotency key %s is incomplete: it needs a scope, a value and a reference",
				holdfast.Quote(k.Value))
		}
		return CheckText("idempotency key", k.Scope, k.Value, k.Hash, k.Ref)
	}
	return nil
}

// CheckText returns invalid if a text is not UTF-8 or has a NUL byte, which some databases cannot
// store. what names the kind of text in the error.
func CheckText(what string, texts ...string) error {
	for _, s := range texts {
		if strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) {
			return holdfast.Errorf(holdfast.KindInvalid, what, "the %s value %s is not UTF-8 text without NUL", what, holdfast.Quote(s)).
				WithHint("leave out the bytes that are not text, or put them into a file: holdfast files put")
		}
	}
	return nil
}

// maxWhy is the largest length of a reason or error text in the log, in bytes; it can come from a
// box.
const maxWhy = 4 << 10

// Plain makes a text that every store accepts from the first maxWhy bytes of s: in it, bytes that are not UTF-8
// and NUL bytes are replaced.
func Plain(s string) string { return cleanText(s[:min(len(s), maxWhy)]) }

func cleanText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// checkApprovals refuses a change whose approval questions or permission rules are incomplete or invalid.
func checkApprovals(c *Encoded) error {
	seen := map[holdfast.ApprovalID]bool{}
	for _, ac := range c.Approvals {
		id := ac.ID
		switch a := ac.Ask; {
		case a != nil:
			id = a.ID
			if a.Turn == "" || a.ToolUseID == "" || a.Tool == "" || !json.Valid(a.Input) || !utf8.Valid(a.Input) {
				return holdfast.Errorf(holdfast.KindInvalid, opCommit, "the approval question for tool %s is incomplete: it needs a turn, a tool use, a tool and JSON input", holdfast.Quote(a.Tool))
			}
			texts := append([]string{string(a.Turn), a.ToolUseID, a.Tool, a.InputHash, a.By, a.Rule, a.Reason}, a.Suggestions...)
			if err := CheckText("approval", texts...); err != nil {
				return err
			}
		case !slices.Contains(holdfast.Words[holdfast.ApprovalState]()[1:], ac.To):
			return holdfast.Errorf(holdfast.KindInvalid, opCommit, "an approval cannot end in the state %s", holdfast.Quote(string(ac.To)))
		}
		switch {
		case id == "":
			return holdfast.Errorf(holdfast.KindInvalid, opCommit, "an approval of the change has no id")
		case seen[id]:
			return holdfast.Errorf(holdfast.KindInvalid, opCommit, "the change names approval %s twice", holdfast.Quote(string(id)))
		}
		seen[id] = true
		if err := CheckText("approval", string(id), ac.By, string(ac.Scope), ac.Answer); err != nil {
			return err
		}
	}
	for _, r := range c.Rules {
		if r.Key == "" || r.Rule == "" || r.Scope != holdfast.ScopeSession && r.Scope != holdfast.ScopeWorkspace ||
			!slices.Contains([]string{"allow", "ask", "deny", "grant"}, r.Behavior) {
			return holdfast.Errorf(holdfast.KindInvalid, opCommit, "permission rule %s with key %s is incomplete: it needs a rule, a key, a scope and a behavior", holdfast.Quote(r.Rule), holdfast.Quote(r.Key))
		}
		if err := CheckText("rule", r.Key, r.Rule, r.Source); err != nil {
			return err
		}
	}
	return nil
}

// checkStates refuses agent states that are incomplete, too large or not JSON.
func checkStates(c *Encoded) error {
	for _, s := range c.States {
		switch {
		case s.Generation < 1, s.Runtime == "", s.AgentID == "",
			!slices.Contains([]holdfast.AgentHealth{holdfast.HealthCurrent, holdfast.HealthQuarantined, holdfast.HealthLeft}, s.Health):
			return holdfast.Errorf(holdfast.KindInvalid, opCommit, "agent state %d of runtime %s is incomplete: it needs a generation, a runtime, an agent id and a health", s.Generation, holdfast.Quote(s.Runtime))
		case len(s.Data) > maxStateData:
			return holdfast.Errorf(holdfast.KindTooLarge, opCommit, "the data of agent state %d has %d bytes, more than the limit of %d bytes", s.Generation, len(s.Data), maxStateData)
		case len(s.Data) > 0 && (!json.Valid(s.Data) || !utf8.Valid(s.Data)):
			return holdfast.Errorf(holdfast.KindInvalid, opCommit, "the data of agent state %d is not JSON", s.Generation)
		}
		if err := CheckText("agent state", s.Runtime, s.AgentID, s.Version, string(s.Call), string(s.Box), s.Boot); err != nil {
			return err
		}
	}
	return nil
}

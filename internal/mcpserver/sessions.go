package mcpserver

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
)

type createIn struct {
	Title   string   `json:"title,omitempty" jsonschema:"what the session is about"`
	Agent   string   `json:"agent,omitempty" jsonschema:"the deployed agent; the server's default when absent"`
	Runtime string   `json:"runtime,omitempty" jsonschema:"how the agent runs, such as native or claude"`
	Model   string   `json:"model,omitempty" jsonschema:"the model"`
	Mode    string   `json:"mode,omitempty" jsonschema:"permission mode: default, acceptEdits, plan, bypassPermissions, dontAsk or auto"`
	Trust   string   `json:"trust,omitempty" jsonschema:"untrusted: tools run in a box. trusted: on the host, where that is allowed"`
	Tags    []string `json:"tags,omitempty" jsonschema:"tags to find it by"`
	Key     string   `json:"key,omitempty" jsonschema:"makes a repeated call answer with the first one's session"`
}

// sessionOut holds the fields of a session that a caller needs.
type sessionOut struct {
	ID             string   `json:"id"`
	Status         string   `json:"status"`
	Title          string   `json:"title,omitempty"`
	Agent          string   `json:"agent"`
	Runtime        string   `json:"runtime"`
	Model          string   `json:"model"`
	Mode           string   `json:"mode"`
	Trust          string   `json:"trust"`
	Tags           []string `json:"tags,omitempty"`
	CompletedTurns int64    `json:"completed_turns"`
	// LastSeq is the number of the newest event: read_events after it returns later ones.
	LastSeq          int64  `json:"last_seq"`
	PendingApprovals int    `json:"pending_approvals,omitempty"`
	Error            string `json:"error,omitempty"`
	LastActiveAt     string `json:"last_active_at"`
}

func wire(one holdfast.Session) sessionOut {
	return sessionOut{
		ID: string(one.ID), Status: string(one.Status), Title: one.Title, Agent: string(one.Agent), Runtime: one.Runtime,
		Model: one.Model, Mode: string(one.Mode), Trust: string(one.Trust), Tags: one.Tags, CompletedTurns: one.CompletedTurns,
		LastSeq: one.LastSeq, PendingApprovals: one.PendingApprovals, Error: clip.Counted(one.Error, maxField), LastActiveAt: one.LastActiveAt.UTC().Format(time.RFC3339),
	}
}

func (s *server) create(ctx context.Context, _ progress, in createIn) (sessionOut, error) {
	trust, err := s.trust(in.Trust)
	if err != nil {
		return sessionOut{}, err
	}
	key, err := s.key(in.Key)
	if err != nil {
		return sessionOut{}, err
	}
	one, err := s.cfg.API.CreateSession(ctx, holdfast.CreateSession{
		Agent: in.Agent, Runtime: in.Runtime, Model: in.Model, Mode: in.Mode, Trust: trust, Title: in.Title, Tags: append([]string{"mcp"}, in.Tags...),
	}, key)
	return wire(one), err
}

// trust returns the trust to create a session with. It refuses a request above the maximum. Without a
// request it returns the maximum if that is below trusted, else "", which is the server's default.
func (s *server) trust(asked string) (string, error) {
	if asked == "" {
		if holdfast.Trusted.Exceeds(s.cfg.MaxTrust) {
			return string(s.cfg.MaxTrust), nil
		}
		return "", nil
	}
	t, err := holdfast.Parse[holdfast.Trust](asked)
	if err != nil {
		return "", err
	}
	if t.Exceeds(s.cfg.MaxTrust) {
		return "", s.tooMuch(t)
	}
	return string(t), nil
}

func (s *server) tooMuch(t holdfast.Trust) error {
	return holdfast.Errorf(holdfast.KindDenied, "mcp", "trust %s is above the maximum trust of this MCP connection, which is %s", t, s.cfg.MaxTrust).
		WithHint("work in an untrusted session; only a person may allow more, by starting holdfast mcp with --max-trust %s", t)
}

// within returns a session if the connection may use it.
func (s *server) within(ctx context.Context, id string) (holdfast.Session, error) {
	full, err := holdfast.Parse[holdfast.SessionID](id)
	if err != nil {
		return holdfast.Session{}, err
	}
	one, err := s.cfg.API.Session(ctx, full)
	if err == nil && one.Trust.Exceeds(s.cfg.MaxTrust) {
		err = s.tooMuch(one.Trust)
	}
	return one, err
}

type listIn struct {
	Status string `json:"status,omitempty" jsonschema:"only this status: active, paused, error or ended"`
	Agent  string `json:"agent,omitempty" jsonschema:"only this agent"`
	Tag    string `json:"tag,omitempty" jsonschema:"only with this tag"`
	Query  string `json:"query,omitempty" jsonschema:"words that all occur in the title or the conversation"`
	Cursor string `json:"cursor,omitempty" jsonschema:"the next of the page before"`
	Limit  int    `json:"limit,omitempty" jsonschema:"page size, 1-50; 20 when absent"`
}

type listOut struct {
	Sessions []sessionOut `json:"sessions"`
	Next     string       `json:"next,omitempty"`
}

func (s *server) list(ctx context.Context, _ progress, in listIn) (listOut, error) {
	if in.Limit <= 0 {
		in.Limit = 20
	}
	page, err := s.cfg.API.Sessions(ctx, holdfast.SessionFilter{
		Status: in.Status, Agent: in.Agent, Tag: in.Tag, Query: in.Query, Cursor: in.Cursor, Limit: min(in.Limit, 50),
	})
	out := listOut{Sessions: []sessionOut{}, Next: page.Next}
	for _, one := range page.Sessions {
		out.Sessions = append(out.Sessions, wire(one))
	}
	return out, err
}

type interruptIn struct {
	Session string `json:"session" jsonschema:"the session's id"`
	Turn    string `json:"turn,omitempty" jsonschema:"only if this turn runs: makes a repeated call harmless"`
}

type interruptOut struct {
	Interrupted bool       `json:"interrupted"`
	Session     sessionOut `json:"session"`
}

func (s *server) interrupt(ctx context.Context, _ progress, in interruptIn) (interruptOut, error) {
	one, err := s.within(ctx, in.Session)
	if err != nil {
		return interruptOut{}, err
	}
	if in.Turn != "" {
		turn, err := holdfast.Parse[holdfast.TurnID](in.Turn)
		if err != nil {
			return interruptOut{}, err
		}
		now, err := s.cfg.API.Turn(ctx, one.ID, turn)
		if err != nil || now.Status != holdfast.TurnRunning {
			return interruptOut{Session: wire(one)}, err
		}
	}
	after, err := s.cfg.API.Interrupt(ctx, one.ID)
	if holdfast.IsKind(err, holdfast.KindConflict) { // there is no running turn to interrupt
		return interruptOut{Session: wire(one)}, nil
	}
	return interruptOut{Interrupted: err == nil, Session: wire(after)}, err
}

type endIn struct {
	Session   string `json:"session" jsonschema:"the session's id"`
	Interrupt bool   `json:"interrupt,omitempty" jsonschema:"end a running turn first"`
	Reason    string `json:"reason,omitempty" jsonschema:"why, for the log"`
}

func (s *server) end(ctx context.Context, _ progress, in endIn) (sessionOut, error) {
	one, err := s.within(ctx, in.Session)
	if err != nil {
		return sessionOut{}, err
	}
	ended, err := s.cfg.API.EndSession(ctx, one.ID, holdfast.EndSession{Interrupt: in.Interrupt, Reason: in.Reason})
	return wire(ended), err
}

type approveIn struct {
	ID       string   `json:"id" jsonschema:"the approval's id"`
	Decision string   `json:"decision" jsonschema:"allow or deny"`
	Scope    string   `json:"scope,omitempty" jsonschema:"for allow: once (default), session or workspace"`
	Rules    []string `json:"rules,omitempty" jsonschema:"for a scope beyond once, instead of the suggested rules"`
	Reason   string   `json:"reason,omitempty" jsonschema:"kept, and on a denial read by the model"`
}

type approveOut struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Scope string `json:"scope,omitempty"`
}

func (s *server) approve(ctx context.Context, _ progress, in approveIn) (approveOut, error) {
	id, err := holdfast.Parse[holdfast.ApprovalID](in.ID)
	if err != nil {
		return approveOut{}, err
	}
	asked, err := s.cfg.Approvals.Approval(ctx, id)
	if err == nil {
		_, err = s.within(ctx, string(asked.Session))
	}
	if err != nil {
		return approveOut{}, err
	}
	a, err := s.cfg.Approvals.AnswerApproval(ctx, id, holdfast.AnswerApproval{
		Decision: in.Decision, Scope: holdfast.ApprovalScope(in.Scope), Rules: in.Rules, Reason: in.Reason,
	})
	return approveOut{ID: string(a.ID), State: string(a.State), Scope: string(a.Scope)}, err
}

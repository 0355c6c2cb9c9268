package httpapi

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

func (f *fakeEngine) PruneContainers(_ context.Context, dryRun bool) (holdfast.PrunedContainers, error) {
	f.last = dryRun
	return holdfast.PrunedContainers{DryRun: dryRun, Pruned: []holdfast.Pruned{{Name: "s-x", Reason: "gone"}}}, nil
}

func (f *fakeEngine) StopContainers(_ context.Context, req holdfast.StopContainers) ([]holdfast.Container, error) {
	return f.boxes, f.see(req)
}

const (
	questionSession = "01890a5d-ac96-774b-bcce-b302099a8057"
	questionTurn    = "01890a5d-b21f-7c40-9d2e-5f6a7b8c9d0e"
)

// question is pending in a session that may run commands.
func question() holdfast.Approval {
	input := json.RawMessage(`{"command":"git push origin main"}`)
	return holdfast.Approval{
		ID: "01890a5d-c0de-7a11-8b1e-9f2a3b4c5d6e", Session: questionSession, Turn: questionTurn, ToolUseID: "toolu_1", Tool: "Bash",
		Input: input, InputHash: policy.InputHash(input), By: "ask rule", Rule: "Bash(git push *)", State: holdfast.ApprovalPending,
		AskedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

// asked is the one question of the fake: of a trusted session, pending until it
// is answered.
func (f *fakeEngine) asked() *holdfast.Approval {
	if f.approval == nil {
		a := question()
		f.approval = &a
	}
	return f.approval
}

func (f *fakeEngine) Approvals(_ context.Context, q holdfast.ApprovalFilter) (holdfast.ApprovalPage, error) {
	if err := f.see(q); err != nil {
		return holdfast.ApprovalPage{}, err
	}
	if q.State != "" && q.State != "all" {
		if !slices.Contains(holdfast.Words[holdfast.ApprovalState](), holdfast.ApprovalState(q.State)) {
			return holdfast.ApprovalPage{}, holdfast.Errorf(holdfast.KindInvalid, "test", "state %s", q.State)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if q.State == "denied" {
		return holdfast.ApprovalPage{}, nil
	}
	return holdfast.ApprovalPage{Approvals: []holdfast.Approval{*f.asked()}}, nil
}

func (f *fakeEngine) Approval(_ context.Context, id holdfast.ApprovalID) (holdfast.Approval, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := *f.asked()
	if id != a.ID {
		return a, holdfast.Errorf(holdfast.KindNotFound, "approval", "there is no approval %s", holdfast.Quote(string(id)))
	}
	return a, nil
}

func (f *fakeEngine) AnswerApproval(_ context.Context, _ holdfast.ApprovalID, req holdfast.AnswerApproval, by string) (holdfast.Approval, error) {
	if err := f.see(req); err != nil {
		return holdfast.Approval{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.asked()
	if a.State != holdfast.ApprovalPending {
		return *a, holdfast.Errorf(holdfast.KindConflict, "approval", "approval %s is %s already by %q", a.ID, a.State, a.AnsweredBy)
	}
	a.State, a.AnsweredBy = holdfast.ApprovalState(map[string]string{"allow": "allowed", "deny": "denied"}[req.Decision]), by
	return *a, nil
}

func (f *fakeEngine) AddedRules(_ context.Context, id holdfast.SessionID) ([]holdfast.Rule, error) {
	return []holdfast.Rule{{Scope: holdfast.ScopeSession, Behavior: "grant", Rule: "Bash(make *)"}}, f.see(id)
}

func (f *fakeEngine) RevokeRule(_ context.Context, _ holdfast.SessionID, scope holdfast.ApprovalScope, rule, by string) ([]holdfast.Rule, error) {
	return []holdfast.Rule{{Scope: scope, Behavior: "grant", Rule: rule, By: by}}, f.see(rule)
}

// fakeSecrets keeps nothing.
type fakeSecrets struct{}

func (fakeSecrets) Set(_ context.Context, name holdfast.SecretName, _ []byte) (holdfast.Secret, error) {
	return holdfast.Secret{Name: name}, nil
}
func (fakeSecrets) List(context.Context) ([]holdfast.Secret, error)   { return nil, nil }
func (fakeSecrets) Remove(context.Context, holdfast.SecretName) error { return nil }
func (fakeSecrets) Rotate(context.Context) ([]holdfast.Secret, error) { return nil, nil }

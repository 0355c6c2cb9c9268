// Package storetest is a test suite for stores: it checks, the same way for every database, the
// behaviour that the journal, the engine and other users of a store rely on.
//
// Only the tests of store adapters may import it; they call Run. Invariant: it depends on no
// particular database, so a failing case means that the adapter breaks the contract.
package storetest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/approvals"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/boots"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/keys"
	"github.com/holdfast-run/holdfast/internal/trash"
	"github.com/holdfast-run/holdfast/internal/views"
	"github.com/holdfast-run/holdfast/internal/webhook"
	"github.com/holdfast-run/holdfast/internal/workspaces"
)

// Store is the set of methods that a store must have.
type Store interface {
	journal.Store
	journal.Leases
	Reads
	// Epoch returns the fencing token of this server, higher than that of every earlier opening.
	Epoch() uint64
	Admin
	audit.Store
	webhook.Store
	Snapshots
	// Healthy returns nil while all writes are accepted, otherwise the reason.
	Healthy() error
	// Counts returns the numbers of sessions by status, of open turns and of pending approvals. It must be
	// fast for any number of sessions.
	Counts(ctx context.Context) (journal.Counts, error)
}

// Reads joins the interfaces by which the engine and other packages read sessions, delete them and keep facts.
type Reads interface {
	engine.Sessions
	trash.Store
	engine.Rules
	views.Store
	views.Search
	approvals.Store
	boots.Sessions
	boots.Facts
}

// Admin joins the stores of the data that administrators manage.
type Admin interface {
	Agents
	keys.Store
	workspaces.Store
}

// Agents is the store of deployed agents.
type Agents interface {
	// PutAgentVersion records a deployment as the agent's newest version.
	PutAgentVersion(ctx context.Context, v holdfast.AgentVersion) (holdfast.Agent, error)
	// Agent returns a deployed agent; not_found for an unknown or deleted one.
	Agent(ctx context.Context, name holdfast.AgentName) (holdfast.Agent, error)
	// Agents lists the deployed agents, ordered by name.
	Agents(ctx context.Context) ([]holdfast.Agent, error)
	// UpdateAgent sets values that override the settings of the agent's versions.
	UpdateAgent(ctx context.Context, name holdfast.AgentName, req holdfast.UpdateAgent) (holdfast.Agent, error)
	// AgentVersion returns a version by its number or id, also of a deleted agent.
	AgentVersion(ctx context.Context, name holdfast.AgentName, ref string) (holdfast.AgentVersion, error)
	// AgentVersions lists the versions of an agent, newest first.
	AgentVersions(ctx context.Context, name holdfast.AgentName) ([]holdfast.AgentVersion, error)
	// DeleteAgent removes an agent from the list of agents; its versions stay.
	DeleteAgent(ctx context.Context, name holdfast.AgentName) error
}

// Backend is a fresh database under test.
type Backend struct {
	Store Store
	// Reopen closes the store and returns a new one over the same data.
	Reopen func(t *testing.T) Store
	// Usurp raises the epoch in the database without the store, as a second server would.
	Usurp func(t *testing.T)
}

// Deliver returns the webhooks that receive events of a type; every store under test is opened with
// it. The webhook "one" receives errors of sessions; "one" and "two" receive box.oom events.
func Deliver(t holdfast.EventType) []string {
	switch t {
	case holdfast.EventSessionError:
		return []string{"one"}
	case holdfast.EventBoxOOM:
		return []string{"one", "two"}
	}
	return nil
}

// Run runs the suite. open creates an empty database for each case and cleans up after it.
func Run(t *testing.T, open func(t *testing.T) Backend) {
	for _, group := range []struct {
		name  string
		cases []testCase
	}{
		{"create", createCases},
		{"commit", commitCases},
		{"key", keyCases},
		{"turn", turnCases},
		{"usage", usageCases},
		{"approval", approvalCases},
		{"agent state", stateCases},
		{"checkpoint", checkpointCases},
		{"rewind", rewindCases},
		{"restore", restoreCases},
		{"keeping", keepingCases},
		{"fence", fenceCases},
		{"read", readCases},
		{"list", listCases},
		{"text", textCases},
		{"search", searchCases},
		{"delete", deleteCases},
		{"agent", agentCases},
		{"api key", apiKeyCases},
		{"workspace", workspaceCases},
		{"audit", auditCases},
		{"outbox", outboxCases},
		{"concurrent", concurrentCases},
		{"model", modelCases},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) {
					b := open(t)
					c.run(&env{T: t, Backend: b, ctx: t.Context()})
				})
			}
		})
	}
}

type testCase struct {
	name string
	run  func(*env)
}

// env is the database of one test case, with helper methods that fail the test on an error.
type env struct {
	*testing.T
	Backend
	ctx context.Context
}

// newID returns a new UUIDv7. Like the ids that a server makes, such ids sort by time.
func (e *env) newID() string {
	e.Helper()
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		e.Fatal(err)
	}
	return id
}

// row returns the row of a new session with the usual fields set.
func row() *journal.Row {
	return &journal.Row{Session: holdfast.Session{
		Status: holdfast.StatusActive, Agent: holdfast.DefaultAgent,
		AgentVersion: holdfast.VersionID("sha256:" + strings.Repeat("a", 64)), Trust: holdfast.Untrusted,
		Runtime: "native", Model: "scripted", Mode: holdfast.ModeBypassPermissions, Title: "a title",
		Tags:      []string{"one", "two"},
		CreatedAt: time.UnixMilli(1_700_000_000_123).UTC(), LastActiveAt: time.UnixMilli(1_700_000_000_456).UTC(),
	}}
}

// creation returns the change that creates the session id with the row that row returns, and with one event.
func creation(id holdfast.SessionID) journal.Change {
	c := journal.NewChange(id)
	c.Create = row()
	c.Events = events(1)
	return c
}

// events returns n event drafts with different data.
func events(n int) []journal.Draft {
	out := make([]journal.Draft, n)
	for i := range out {
		out[i] = journal.Draft{Type: holdfast.EventNotice, Data: map[string]int{"i": i}}
	}
	return out
}

func encode(t testing.TB, c journal.Change) journal.Encoded {
	t.Helper()
	e := journal.Encoded{Change: c}
	for _, d := range c.Events {
		if d.Data == nil {
			d.Data = struct{}{}
		}
		b, err := json.Marshal(d.Data)
		if err != nil {
			t.Fatal(err)
		}
		e.Data = append(e.Data, b)
	}
	return e
}

// try commits a change under the lease of the session's scope.
func (e *env) try(c journal.Change) (journal.Committed, error) {
	e.Helper()
	return e.Store.Commit(e.ctx, e.leased(c))
}

// leased encodes a change with the token of its session's scope.
func (e *env) leased(c journal.Change) journal.Encoded {
	e.Helper()
	c.Token = e.token(c.Session)
	return encode(e.T, c)
}

// token acquires the lease of a session's scope.
func (e *env) token(id holdfast.SessionID) journal.Token {
	e.Helper()
	token, err := e.Store.Acquire(e.ctx, id.Box())
	e.ok(err)
	return token
}

func (e *env) commit(c journal.Change) journal.Committed {
	e.Helper()
	done, err := e.try(c)
	if err != nil {
		e.Fatalf("commit: %v", err)
	}
	return done
}

// refuse commits a change and checks that it fails with an error of the kind, that the message
// contains each of want, and that the session stays as it was.
func (e *env) refuse(c journal.Change, kind holdfast.Kind, want ...string) {
	e.Helper()
	before := e.snapshot(c.Session)
	_, err := e.try(c)
	e.isKind(err, kind, want...)
	if after := e.snapshot(c.Session); after != before {
		e.Fatalf("a refused change left a trace\nbefore %s\nafter  %s", before, after)
	}
}

func (e *env) isKind(err error, kind holdfast.Kind, want ...string) {
	e.Helper()
	if !holdfast.IsKind(err, kind) {
		e.Fatalf("got %v (%s), want %s", err, holdfast.KindOf(err), kind)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			e.Fatalf("the message %q does not name %q", err, w)
		}
	}
}

// snapshot returns the row, the turns, the log, the approvals and the rules of a session, as text.
func (e *env) snapshot(id holdfast.SessionID) string {
	e.Helper()
	r, err := e.Store.Row(e.ctx, id)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		return "none"
	}
	e.ok(err)
	turns, err := e.Store.Turns(e.ctx, id, 0, 1000)
	e.ok(err)
	asked, err := e.Store.Approvals(e.ctx, journal.ApprovalQuery{Session: id, Limit: 1000})
	e.ok(err)
	rules, err := e.Store.Rules(e.ctx, string(id))
	e.ok(err)
	b, err := json.Marshal([]any{r, turns, e.log(id), asked, rules})
	e.ok(err)
	return string(b)
}

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// ok2 fails the test if the error of a commit is not nil. It ignores the commit's other result.
func (e *env) ok2(_ journal.Committed, err error) {
	e.Helper()
	e.ok(err)
}

func (e *env) newSession() holdfast.SessionID {
	e.Helper()
	id := holdfast.SessionID(e.newID())
	e.commit(creation(id))
	return id
}

func (e *env) row(id holdfast.SessionID) journal.Row {
	e.Helper()
	r, err := e.Store.Row(e.ctx, id)
	e.ok(err)
	return r
}

// log returns the whole log of a session and checks that its sequence numbers run from 1 to the head
// without a gap.
func (e *env) log(id holdfast.SessionID) []holdfast.Event {
	e.Helper()
	var out []holdfast.Event
	for {
		evs, err := e.Store.Events(e.ctx, id, int64(len(out)), 7)
		e.ok(err)
		if len(evs) == 0 {
			break
		}
		for _, ev := range evs {
			if ev.Seq != int64(len(out))+1 || ev.Session != id {
				e.Fatalf("event %d of %s where #%d of %s was expected", ev.Seq, ev.Session, len(out)+1, id)
			}
			out = append(out, ev)
		}
	}
	head, err := e.Store.Head(e.ctx, id)
	e.ok(err)
	if head != int64(len(out)) {
		e.Fatalf("head %d, %d events", head, len(out))
	}
	return out
}

// move commits a change of the session's status, through each status of walk in turn.
func (e *env) move(id holdfast.SessionID, walk ...holdfast.Status) {
	e.Helper()
	c := journal.NewChange(id)
	c.Status = walk
	e.commit(c)
}

func equal[T comparable](e *env, what string, got, want T) {
	e.Helper()
	if got != want {
		e.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func num(n int) string { return strconv.Itoa(n) }

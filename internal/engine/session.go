package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/direct"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// Limits on what a session may carry.
const (
	maxTitle  = 500
	maxReason = 2000
	maxTags   = 50
	maxTag    = 100
	maxEnv    = 200
	maxValue  = 32 << 10
)

// Create makes an active session in one transaction; no box is started. The
// same key gives the same session again.
func (e *Engine) Create(ctx context.Context, req holdfast.CreateSession, key string) (s holdfast.Session, replayed bool, err error) {
	var k *journal.Key
	if key != "" {
		k = &journal.Key{Scope: "session.create", Value: key, Hash: hashOf(req)}
	}
	row, err := e.newRow(ctx, req)
	if err != nil {
		return e.createdBefore(ctx, k, err)
	}
	c := journal.NewChange(row.ID)
	c.Create = &row
	s = row.Session
	c.Events = []journal.Draft{{Type: holdfast.EventSessionCreated, Data: holdfast.SessionCreated{
		Agent: s.Agent, AgentVersion: s.AgentVersion, Trust: s.Trust, Runtime: s.Runtime, Model: s.Model, Mode: s.Mode, Title: s.Title,
		Budget: s.Budget, TurnBudget: s.TurnBudget, Network: s.Network,
	}}}
	if lowered := e.lowered(req); lowered != nil {
		c.Events = append(c.Events, *lowered)
	}
	if c.Events, err = e.unwalled(ctx, row, c.Events); err != nil {
		return e.createdBefore(ctx, k, err)
	}
	if c.Key = k; k != nil {
		k.Ref = string(row.ID)
	}
	done, err := e.cfg.Journal.Commit(ctx, c)
	if err != nil {
		return holdfast.Session{}, false, err
	}
	if done.Duplicate != "" {
		s, err = e.Session(ctx, holdfast.SessionID(done.Duplicate))
		return s, true, err
	}
	e.tellOf(ctx, done.Row, hook.Input{Event: hook.Setup, Trigger: "created"})
	u := e.lock(row.ID)
	defer e.unlock(u)
	e.warm(u, done.Row)
	return done.Row.Session, false, nil
}

// createdBefore is the session that an earlier request with the key made, when
// the same one could not be made any more: its agent may be deleted since.
func (e *Engine) createdBefore(ctx context.Context, k *journal.Key, refusal error) (s holdfast.Session, replayed bool, err error) {
	if k == nil {
		return s, false, refusal
	}
	ref, err := e.cfg.Store.KeyRef(ctx, *k)
	if err != nil {
		return s, false, err
	}
	if ref == "" {
		return s, false, refusal
	}
	s, err = e.Session(ctx, holdfast.SessionID(ref))
	return s, true, err
}

func (e *Engine) newRow(ctx context.Context, req holdfast.CreateSession) (journal.Row, error) {
	var row journal.Row
	now := e.cfg.Clock().UTC()
	row.Session = holdfast.Session{
		Status: holdfast.StatusActive, Runtime: req.Runtime, Model: req.Model, Title: req.Title,
		Tags: req.Tags, CreatedAt: now, LastActiveAt: now,
	}
	name := holdfast.DefaultAgent
	var err error
	if req.Agent != "" {
		if name, err = holdfast.ParseAgentName(req.Agent); err != nil {
			return row, err
		}
	}
	agent, err := e.cfg.Agents.Get(ctx, name)
	if err != nil {
		return row, err
	}
	row.Agent, row.AgentVersion = agent.Name, agent.VersionID
	if err := e.fillChoices(ctx, &row.Session, req, agent); err != nil {
		return row, err
	}
	if req.ID != "" {
		row.ID, err = holdfast.ParseSessionID(req.ID)
	} else {
		var id string
		id, err = e.uuid()
		row.ID = holdfast.SessionID(id)
	}
	if err != nil {
		return row, err
	}
	return row, e.sealEnv(&row, req.Env)
}

// fillChoices checks what the request names and fills in the agent's choices and
// the defaults. The agent has a say in mode, model and runtime, never in trust.
func (e *Engine) fillChoices(ctx context.Context, s *holdfast.Session, req holdfast.CreateSession, agent holdfast.Agent) error {
	var err error
	asked := &req.Trust
	if req.Trust == "" {
		asked = nil
	}
	if s.Trust, err = decideTrust("session.create", asked, e.cfg.DefaultTrust, req.MaxTrust); err != nil {
		return err
	}
	if s.Mode, err = holdfast.ParseMode(cmp.Or(req.Mode, string(agent.Mode), string(s.Trust.DefaultMode()))); err != nil {
		return err
	}
	s.Runtime = cmp.Or(s.Runtime, agent.Runtime, e.cfg.DefaultRuntime)
	if err := e.require(s.Runtime, s.Trust); err != nil {
		return err
	}
	if s.Model = cmp.Or(s.Model, agent.Model); s.Model == "" {
		if s.Model, err = e.cfg.DefaultModel(ctx); err != nil {
			return err
		}
	}
	if err := e.cfg.CheckModel(s.Model); err != nil {
		return err
	}
	if s.Budget, err = budgetOr("budget", req.Budget, e.cfg.Budget); err != nil {
		return err
	}
	if s.TurnBudget, err = budgetOr("turn_budget", req.TurnBudget, e.cfg.TurnBudget); err != nil {
		return err
	}
	s.Network = slices.Clone(req.Network)
	if err := checkNetwork(s.Network); err != nil {
		return err
	}
	if err := e.network.grants(s.Network, s.Trust); err != nil {
		return err
	}
	if req.Source != "" {
		s.Source = &holdfast.Source{From: req.Source}
	}
	if err := checkSource(req.Source); err != nil {
		return err
	}
	if s.Tags == nil {
		s.Tags = []string{}
	}
	return checkLabels(s.Title, s.Tags)
}

// CheckRuntime refuses what is no runtime of this server: invalid.
func (e *Engine) CheckRuntime(name string) error {
	if e.runtimes[name] != nil {
		return nil
	}
	return holdfast.Errorf(holdfast.KindInvalid, "session", "%s is not a runtime of this server", holdfast.Quote(name)).
		WithHint("use one of: %s", strings.Join(slices.Sorted(maps.Keys(e.runtimes)), ", "))
}

// Runtimes are those of this server, by name, each with the reason why untrusted sessions
// cannot use it.
func (e *Engine) Runtimes() []holdfast.Runtime {
	var out []holdfast.Runtime
	for _, name := range slices.Sorted(maps.Keys(e.runtimes)) {
		r := holdfast.Runtime{Name: name}
		if err := e.require(name, holdfast.Untrusted); err != nil {
			r.Problem = strings.TrimSuffix(err.Error()+"; "+holdfast.HintOf(err), "; ")
		}
		out = append(out, r)
	}
	return out
}

// require refuses a session whose runtime is not there or cannot work with its trust.
func (e *Engine) require(name string, trust holdfast.Trust) error {
	if err := e.CheckRuntime(name); err != nil {
		return err
	}
	if r, ok := e.runtimes[name].(runtime.Requirer); ok {
		return r.Require(trust)
	}
	return nil
}

// budgetOr is the budget that a request names, or the server's; nil bounds nothing.
func budgetOr(name string, b *holdfast.Budget, server holdfast.Budget) (*holdfast.Budget, error) {
	if b == nil {
		b = &server
	}
	if *b == (holdfast.Budget{}) {
		return nil, nil
	}
	c := *b
	return &c, c.Check(name)
}

// checkReason checks why a caller says it does something: it goes into the log.
func checkReason(reason string) error {
	if len(reason) > maxReason {
		return holdfast.Errorf(holdfast.KindInvalid, "session", "reason %s is over %d bytes", holdfast.Quote(reason), maxReason).
			WithHint("give a shorter reason")
	}
	return validText("reason", reason)
}

func checkLabels(title string, tags []string) error {
	if len(title) > maxTitle {
		return holdfast.Errorf(holdfast.KindInvalid, "session", "title %s is over %d bytes", holdfast.Quote(title), maxTitle).
			WithHint("give a shorter title")
	}
	if err := validText("title", title); err != nil {
		return err
	}
	if len(tags) > maxTags {
		return holdfast.Errorf(holdfast.KindInvalid, "session", "%d tags are over %d", len(tags), maxTags).
			WithHint("a session has at most %d tags", maxTags)
	}
	for _, t := range tags {
		if t == "" || len(t) > maxTag {
			return holdfast.Errorf(holdfast.KindInvalid, "session", "%s is not a tag", holdfast.Quote(t)).
				WithHint("a tag has 1-%d bytes", maxTag)
		}
		if err := validText("tag", t); err != nil {
			return err
		}
	}
	return nil
}

// sealEnv checks and encrypts the session's environment.
func (e *Engine) sealEnv(row *journal.Row, env map[string]string) error {
	if len(env) == 0 {
		return nil
	}
	if len(env) > maxEnv {
		return holdfast.Errorf(holdfast.KindInvalid, "session.create", "%d environment values are over %d", len(env), maxEnv).
			WithHint("put them into a file: holdfast files put")
	}
	shown := map[string]string{}
	for k, v := range env {
		if !direct.ValidEnvName(k) {
			return holdfast.Errorf(holdfast.KindInvalid, "session.create", "%s is not an environment name", holdfast.Quote(k)).
				WithHint("use letters, digits and _, not starting with a digit")
		}
		if strings.HasPrefix(k, "HOLDFAST_") {
			return holdfast.Errorf(holdfast.KindDenied, "session.create", "%s is reserved", holdfast.Quote(k)).
				WithHint("use a name that does not begin with HOLDFAST_")
		}
		if len(v) > maxValue || strings.ContainsRune(v, 0) {
			return holdfast.Errorf(holdfast.KindInvalid, "session.create", "the value of %s is not usable", holdfast.Quote(k)).
				WithHint("values have at most %d bytes and no NUL", maxValue)
		}
		shown[k] = "***"
	}
	plain, err := json.Marshal(env)
	if err != nil {
		return err
	}
	if row.SealedEnv, err = e.cfg.Sealer.Seal("session "+string(row.ID), plain); err != nil {
		return err
	}
	row.Env = shown
	return nil
}

func (e *Engine) openEnv(row journal.Row) ([]string, error) {
	if row.SealedEnv == nil {
		return nil, nil
	}
	plain, err := e.cfg.Sealer.Open("session "+string(row.ID), row.SealedEnv)
	if err != nil {
		return nil, err
	}
	var env map[string]string
	if err := json.Unmarshal(plain, &env); err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "session.env", "the sealed environment does not decode: %w", err)
	}
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out, nil
}

// Session is one session.
func (e *Engine) Session(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error) {
	row, err := e.cfg.Store.Row(ctx, id)
	return e.shown(row.Session), err
}

// List is a page of sessions, newest first.
func (e *Engine) List(ctx context.Context, f holdfast.SessionFilter) (holdfast.SessionPage, error) {
	q := journal.Query{Tag: f.Tag, Text: f.Text, Words: f.Query, Cursor: f.Cursor, Limit: f.Limit}
	var err error
	if f.Status != "" {
		if q.Status, err = holdfast.ParseStatus(f.Status); err != nil {
			return holdfast.SessionPage{}, err
		}
	}
	if f.Agent != "" {
		if q.Agent, err = holdfast.ParseAgentName(f.Agent); err != nil {
			return holdfast.SessionPage{}, err
		}
	}
	if f.Limit < 0 || f.Limit > 500 {
		return holdfast.SessionPage{}, holdfast.Errorf(holdfast.KindInvalid, "session.list", "limit %d is not within 1-500", f.Limit)
	}
	page, err := e.named(ctx, q, f.Name)
	if err != nil {
		return holdfast.SessionPage{}, err
	}
	out := holdfast.SessionPage{Sessions: make([]holdfast.Session, len(page.Rows)), Next: page.Next}
	for i, r := range page.Rows {
		out.Sessions[i] = e.shown(r.Session)
	}
	return out, nil
}

// named runs a query for the sessions that a name means, as holdfast.SessionFilter says.
// An empty name adds no condition.
func (e *Engine) named(ctx context.Context, q journal.Query, name string) (journal.Page, error) {
	if name == "" {
		return e.cfg.Store.Rows(ctx, q)
	}
	if q.Cursor != "" {
		return journal.Page{}, holdfast.Errorf(holdfast.KindInvalid, "session.list", "a name and a cursor are given").
			WithHint("a name selects few sessions: take a larger limit")
	}
	if err := validText("name", name); err != nil {
		return journal.Page{}, err
	}
	byPart, byTitle, byBeginning := q, q, q
	byPart.IDPart, byTitle.Title, byBeginning.TitlePrefix = name, name, name
	var first journal.Page
	for _, q := range []journal.Query{byPart, byTitle, byBeginning} {
		p, err := e.cfg.Store.Rows(ctx, q)
		if err != nil || len(p.Rows) == 1 && p.Next == "" {
			return p, err
		}
		if len(first.Rows) == 0 {
			first = p
		}
	}
	first.Next = "" // there is no cursor with a name
	return first, nil
}

// liveRow is the row of a session that has not ended.
func (e *Engine) liveRow(ctx context.Context, id holdfast.SessionID) (journal.Row, error) {
	row, err := e.cfg.Store.Row(ctx, id)
	if err == nil && row.Status == holdfast.StatusEnded {
		err = ended(id)
	}
	return row, err
}

func ended(id holdfast.SessionID) error {
	return holdfast.Errorf(holdfast.KindGone, "session", "session %s has ended", id).
		WithHint("its log stays readable: holdfast session events %s", id)
}

func hashOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Package choices decides the settings of a new session and the changes of an update: agent, trust,
// mode, runtime, model, budgets, destinations, labels and environment. Each comes from the first
// of these that may set it and does: the request, the workspace, the agent, the server's defaults.
//
// The engine owns one Choices. It writes nothing itself, but Defaults.Workspace may make a workspace. Invariant: only
// this package turns a request into a trust level; a value that it cannot parse is refused, never replaced.
package choices

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/direct"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/network"
)

// Defaults are the settings of sessions for which neither the request nor the workspace nor the agent names them.
type Defaults struct {
	Trust holdfast.Trust
	// Runtime is the name of the default runtime.
	Runtime string
	// Model returns the default model; it is called for each session.
	Model func(ctx context.Context) (string, error)
	// CheckModel returns an error for a model name that this server cannot use.
	CheckModel func(name string) error
	// Budget and TurnBudget limit a session and each of its turns.
	Budget, TurnBudget holdfast.Budget
	// Workspace returns the workspace that a request names by slug or directory; nil if the request names none. For a
	// directory that is not a workspace yet it makes one.
	Workspace func(ctx context.Context, slug, dir, umask string) (*holdfast.Workspace, error)
	// Environment returns the environment variables that new sessions of a workspace get; it is called only for workspaces
	// that have some.
	Environment func(ctx context.Context, id holdfast.Slug) (map[string]string, error)
	// Mount returns the mount scope of a new session. asked is the one that its request names, or empty. A session
	// without a workspace passes a workspace with an empty id.
	Mount func(space *holdfast.Workspace, asked string, trust holdfast.Trust) (string, error)
	// Bounds returns the restrictions that a fork of a session gets from the session's workspace. If it is nil, forks have
	// none.
	Bounds func(ctx context.Context, from journal.Row) (*journal.Bounds, error)
}

// Sealer encrypts and decrypts the environments of sessions, which must not be readable at rest.
type Sealer interface {
	// Hold prevents a new root key from replacing the present one until release is called. The caller
	// of New holds it until the session is stored.
	Hold() (release func())
	SealEnvironment(id holdfast.SessionID, plain []byte) ([]byte, error)
	OpenEnvironment(id holdfast.SessionID, sealed []byte) ([]byte, error)
}

// Runtimes checks the runtimes of the server.
type Runtimes interface {
	// Require returns an error for a runtime that this server does not have or that cannot run
	// sessions of a trust level.
	Require(name string, trust holdfast.Trust) error
}

// Config configures Choices. All fields but Root must be set.
type Config struct {
	Defaults Defaults
	// Agent returns a deployed agent; not_found for an unknown name.
	Agent    func(ctx context.Context, name holdfast.AgentName) (holdfast.Agent, error)
	Runtimes Runtimes
	Network  *network.Network
	Sealer   Sealer
	// Root is true if the server runs as root, so that the files of trusted sessions without a workspace belong to root.
	Root  bool
	NewID func() (string, error)
	Clock func() time.Time
}

// Choices decides the settings of all sessions. Safe for concurrent use.
type Choices struct{ cfg Config }

// New returns the Choices of a server.
func New(cfg Config) *Choices { return &Choices{cfg: cfg} }

// Limits of a session's labels, reasons and environment: lengths in bytes, and numbers of entries.
const (
	maxTitle  = 500
	maxReason = 2000
	maxTags   = 50
	maxTag    = 100
	maxEnv    = 200
	maxValue  = 32 << 10
	// maxSource is the longest name of a source, in bytes.
	maxSource = 5000
)

// New returns the row of a new session. It also returns a notice if the session's trust is below the default of its
// workspace or server because the caller may use no higher one; nil otherwise.
func (c *Choices) New(ctx context.Context, req holdfast.CreateSession) (journal.Row, *journal.Draft, error) {
	space, err := c.cfg.Defaults.Workspace(ctx, req.Workspace, req.Dir, req.Umask)
	if err != nil {
		return journal.Row{}, nil, err
	}
	if space == nil {
		space = &holdfast.Workspace{}
	}
	inherited := cmp.Or(space.DefaultTrust, c.cfg.Defaults.Trust)
	row, err := c.row(ctx, req, space, inherited)
	return row, lowered(req, inherited), err
}

// row returns the row of a new session. space is its workspace, with an empty id for none; inherited is its trust
// unless the request names one or the caller may only use a lower one.
func (c *Choices) row(ctx context.Context, req holdfast.CreateSession, space *holdfast.Workspace, inherited holdfast.Trust) (journal.Row, error) {
	var row journal.Row
	now := c.cfg.Clock().UTC()
	row.Session = holdfast.Session{
		Status: holdfast.StatusActive, Workspace: space.ID, Trust: inherited, Runtime: cmp.Or(req.Runtime, space.Runtime),
		Model: cmp.Or(req.Model, space.Model), Title: req.Title, Tags: req.Tags, CreatedAt: now, LastActiveAt: now,
	}
	name := holdfast.DefaultAgent
	var err error
	if req.Agent != "" {
		if name, err = holdfast.Parse[holdfast.AgentName](req.Agent); err != nil {
			return row, err
		}
	}
	agent, err := c.cfg.Agent(ctx, name)
	if err != nil {
		return row, err
	}
	row.Agent, row.AgentVersion = agent.Name, agent.VersionID
	if req.Network == nil {
		req.Network = space.Network
	}
	if space.Dir != "" {
		// In a directory of the user's own the mode is the default one, in which a person is asked, unless the request names
		// a mode.
		req.Mode = cmp.Or(req.Mode, string(holdfast.ModeDefault))
	}
	if err := c.fill(ctx, &row.Session, req, agent); err != nil {
		return row, err
	}
	if req.Mount != "" || space.Mount != "" {
		if row.Mount, err = c.cfg.Defaults.Mount(space, req.Mount, row.Trust); err != nil {
			return row, err
		}
	}
	if req.ID != "" {
		row.ID, err = holdfast.Parse[holdfast.SessionID](req.ID)
	} else {
		var id string
		id, err = c.cfg.NewID()
		row.ID = holdfast.SessionID(id)
	}
	if err != nil {
		return row, err
	}
	env, err := c.environment(ctx, space, req.Env)
	if err != nil {
		return row, err
	}
	return row, c.sealEnv(&row, env)
}

// environment returns the environment of a new session: its own variables, and those of its workspace with other names.
func (c *Choices) environment(ctx context.Context, space *holdfast.Workspace, own map[string]string) (map[string]string, error) {
	if len(space.Env) == 0 {
		return own, nil
	}
	env, err := c.cfg.Defaults.Environment(ctx, space.ID)
	if err != nil {
		return nil, err
	}
	out := maps.Clone(env)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, own)
	return out, nil
}

// fill checks the settings of a request, and fills in those of the agent and the defaults. When fill is called, s has
// the inherited trust, and the runtime and model of the request or workspace. The agent may set mode, model and
// runtime, but not trust.
func (c *Choices) fill(ctx context.Context, s *holdfast.Session, req holdfast.CreateSession, agent holdfast.Agent) error {
	var err error
	asked := &req.Trust
	if req.Trust == "" {
		asked = nil
	}
	if s.Trust, err = decideTrust("session.create", asked, s.Trust, req.MaxTrust); err != nil {
		return err
	}
	if s.Mode, err = holdfast.Parse[holdfast.Mode](cmp.Or(req.Mode, string(agent.Mode), string(s.Trust.DefaultMode()))); err != nil {
		return err
	}
	s.Runtime = cmp.Or(s.Runtime, agent.Runtime, c.cfg.Defaults.Runtime)
	if err := c.cfg.Runtimes.Require(s.Runtime, s.Trust); err != nil {
		return err
	}
	if s.Model = cmp.Or(s.Model, agent.Model); s.Model == "" {
		if s.Model, err = c.cfg.Defaults.Model(ctx); err != nil {
			return err
		}
	}
	if err := c.cfg.Defaults.CheckModel(s.Model); err != nil {
		return err
	}
	if s.Budget, err = budgetOr("budget", req.Budget, c.cfg.Defaults.Budget); err != nil {
		return err
	}
	if s.TurnBudget, err = budgetOr("turn_budget", req.TurnBudget, c.cfg.Defaults.TurnBudget); err != nil {
		return err
	}
	s.Network = slices.Clone(req.Network)
	if err := network.Check(s.Network); err != nil {
		return err
	}
	if err := cmp.Or(c.cfg.Network.Grants(s.Network, s.Trust), c.cfg.Network.Within(s.Workspace, s.Network)); err != nil {
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

// Fork returns the row of a new session with the settings of another one. The caller calls Hold of
// the Sealer first, and releases it once the session is stored.
func (c *Choices) Fork(ctx context.Context, from journal.Row, req holdfast.ForkSession) (journal.Row, error) {
	now := c.cfg.Clock().UTC()
	row := journal.Row{Session: from.Session}
	row.Status, row.Error, row.Title = holdfast.StatusActive, "", cmp.Or(req.Title, from.Title)
	row.Workspace, row.Mount = "", "" // a fork has files of its own, outside of any workspace
	var err error
	if bounds := c.cfg.Defaults.Bounds; bounds != nil {
		if row.Given.Bounds, err = bounds(ctx, from); err != nil {
			return row, err
		}
	}
	row.CreatedAt, row.LastActiveAt = now, now
	if err := checkLabels(row.Title, row.Tags); err != nil {
		return row, err
	}
	id, err := holdfast.Parse[holdfast.SessionID](string(req.ID))
	if req.ID == "" {
		var made string
		made, err = c.cfg.NewID()
		id = holdfast.SessionID(made)
	}
	if err != nil {
		return row, err
	}
	row.ID = id
	if from.Given.SealedEnv == nil {
		return row, nil
	}
	plain, err := c.cfg.Sealer.OpenEnvironment(from.ID, from.Given.SealedEnv)
	if err != nil {
		return row, err
	}
	row.Given.SealedEnv, err = c.cfg.Sealer.SealEnvironment(row.ID, plain)
	return row, err
}

// budgetOr returns a copy of the request's budget, or else of the server's; nil if the chosen budget has no limit.
func budgetOr(name string, b *holdfast.Budget, server holdfast.Budget) (*holdfast.Budget, error) {
	if b == nil {
		b = &server
	}
	if *b == (holdfast.Budget{}) {
		return nil, nil
	}
	own := *b
	return &own, own.Check(name)
}

// CheckReason returns invalid for a reason of a caller that is too long or cannot be stored.
func CheckReason(reason string) error {
	if len(reason) > maxReason {
		return holdfast.Errorf(holdfast.KindInvalid, "session", "the reason %s is longer than %d bytes", holdfast.Quote(reason), maxReason).
			WithHint("shorten the reason to at most %d bytes", maxReason)
	}
	return journal.CheckText("reason", reason)
}

func checkLabels(title string, tags []string) error {
	if len(title) > maxTitle {
		return holdfast.Errorf(holdfast.KindInvalid, "session", "the title %s is longer than %d bytes", holdfast.Quote(title), maxTitle).
			WithHint("shorten the title to at most %d bytes", maxTitle)
	}
	if err := journal.CheckText("title", title); err != nil {
		return err
	}
	if len(tags) > maxTags {
		return holdfast.Errorf(holdfast.KindInvalid, "session", "a session with %d tags exceeds the limit of %d tags", len(tags), maxTags).
			WithHint("remove tags until at most %d are left", maxTags)
	}
	for _, t := range tags {
		if t == "" || len(t) > maxTag {
			return holdfast.Errorf(holdfast.KindInvalid, "session", "the tag %s is empty or too long", holdfast.Quote(t)).
				WithHint("use a tag of 1 to %d bytes", maxTag)
		}
		if err := journal.CheckText("tag", t); err != nil {
			return err
		}
	}
	return nil
}

// CheckEnv refuses an environment that no session can have. Its errors contain no value.
func CheckEnv(op string, env map[string]string) error {
	if len(env) > maxEnv {
		return holdfast.Errorf(holdfast.KindInvalid, op, "%d environment variables exceed the limit of %d for a session", len(env), maxEnv).
			WithHint("put the values into a file of the session: holdfast files put")
	}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		if !direct.ValidEnvName(k) {
			return holdfast.Errorf(holdfast.KindInvalid, op, "%s is not a valid name of an environment variable", holdfast.Quote(k)).
				WithHint("use letters, digits and _, not starting with a digit")
		}
		if strings.HasPrefix(k, "HOLDFAST_") {
			return holdfast.Errorf(holdfast.KindDenied, op, "the environment variable %s is reserved for the server", holdfast.Quote(k)).
				WithHint("use a name that does not begin with HOLDFAST_")
		}
		if v := env[k]; len(v) > maxValue || strings.ContainsRune(v, 0) {
			return holdfast.Errorf(holdfast.KindInvalid, op, "the value of the environment variable %s is too long or contains NUL", holdfast.Quote(k)).
				WithHint("use a value of at most %d bytes without NUL", maxValue)
		}
	}
	return nil
}

// sealEnv checks and encrypts the session's environment.
func (c *Choices) sealEnv(row *journal.Row, env map[string]string) error {
	if len(env) == 0 {
		return nil
	}
	if err := CheckEnv("session.create", env); err != nil {
		return err
	}
	shown := map[string]string{}
	for k := range env {
		shown[k] = "***"
	}
	plain, err := json.Marshal(env)
	if err != nil {
		return err
	}
	if row.Given.SealedEnv, err = c.cfg.Sealer.SealEnvironment(row.ID, plain); err != nil {
		return err
	}
	row.Env = shown
	return nil
}

// Env returns a session's environment variables, decrypted, as sorted NAME=VALUE texts.
func (c *Choices) Env(row journal.Row) ([]string, error) {
	if row.Given.SealedEnv == nil {
		return nil, nil
	}
	plain, err := c.cfg.Sealer.OpenEnvironment(row.ID, row.Given.SealedEnv)
	if err != nil {
		return nil, err
	}
	var env map[string]string
	if err := json.Unmarshal(plain, &env); err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "session.env", "the decrypted environment of session %s is not valid JSON: %w", row.ID, err)
	}
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out, nil
}

// lowered returns the notice that a new session's trust is below the inherited trust because the caller's API key
// allows no higher one; nil if the trust is not below, or the request names a trust.
func lowered(req holdfast.CreateSession, inherited holdfast.Trust) *journal.Draft {
	if req.Trust != "" || !inherited.Exceeds(req.MaxTrust) {
		return nil
	}
	return &journal.Draft{Type: holdfast.EventNotice, Data: holdfast.Notice{
		Code: "trust.lowered",
		Text: "the session is " + string(req.MaxTrust) + ", not " + string(inherited) + " as the default of its workspace or server: the API key that created it allows no higher trust",
	}}
}

func checkSource(s string) error {
	if len(s) > maxSource || journal.CheckText("source", s) != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "session.create", "the name %s of the import's source is longer than %d bytes or is not UTF-8 text without NUL", holdfast.Quote(s), maxSource)
	}
	return nil
}

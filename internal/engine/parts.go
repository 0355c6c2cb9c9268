package engine

import (
	"context"
	"errors"
	"iter"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/approvals"
	"github.com/holdfast-run/holdfast/internal/boots"
	"github.com/holdfast-run/holdfast/internal/choices"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/hooked"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/judging"
	"github.com/holdfast-run/holdfast/internal/lifetime"
	"github.com/holdfast-run/holdfast/internal/network"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/resume"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/settings"
	"github.com/holdfast-run/holdfast/internal/views"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/check"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// parts holds the parts of the server that the engine connects. Each of them owns its own data, and they use each other
// through interfaces only. The methods are those that several types of the engine call.
type parts struct {
	cfg      Config
	life     *lifetime.Life
	units    units
	runtimes runtime.Set
	boxes    *place.Boxes
	hooks    *hooked.Hooks
	policies *permit.Policies
	views    *views.Views
	// questions are the approval questions to people.
	questions *approvals.Questions
	choices   *choices.Choices
	network   *network.Network
	resumes   *resume.Resumes
	// conversations caches the conversations of recently active sessions.
	conversations *conversation.Kept
	// judging records on disk which calls are being judged, so that a restart knows; nil before Start.
	judging *judging.File
	// guard detects power cuts and records their effects; nil before Start.
	guard *boots.Guard
}

func (p *parts) uuid() (string, error) { return holdfast.NewUUID(p.cfg.Clock(), p.cfg.Rand) }

func (p *parts) newCall() (holdfast.CallID, error) {
	id, err := p.uuid()
	return holdfast.CallID(id), err
}

func (p *parts) row(ctx context.Context, id holdfast.SessionID) (journal.Row, error) {
	return p.cfg.Stores.Sessions.Row(ctx, id)
}

// conversation calls use with the conversation that a session's log describes.
func (p *parts) conversation(ctx context.Context, id holdfast.SessionID, use func(*conversation.Conversation) error) error {
	return p.conversations.Read(id, func(after int64) iter.Seq2[holdfast.Event, error] { return p.cfg.Journal.Read(ctx, id, after) }, use)
}

// liveRow returns the row of a session, or gone if the session has ended.
func (p *parts) liveRow(ctx context.Context, id holdfast.SessionID) (journal.Row, error) {
	row, err := p.row(ctx, id)
	if err == nil && row.Status == holdfast.StatusEnded {
		err = ended(id)
	}
	return row, err
}

func ended(id holdfast.SessionID) error {
	return holdfast.Errorf(holdfast.KindGone, "session", "session %s has ended", id).
		WithHint("the session's log stays readable: holdfast session events %s", id)
}

// rulesOf returns the current policy of a session.
type rulesOf func(context.Context) (*policy.Engine, error)

// acquire claims a session's box. rules returns the policy that decides the box's walls (its mounts
// and path rules); if it is nil, acquire reads the policy itself. The caller has claimed u.
func (p *parts) acquire(ctx context.Context, u *unit, c place.Claim, rules rulesOf) (*pool.Hold, error) {
	c.Session = u.id
	c.Walls = func(ctx context.Context, row journal.Row) (wire.Walls, error) {
		if rules == nil {
			return p.policies.Layers(permit.Session{Row: row}).Walls(ctx)
		}
		policy, err := rules(ctx)
		if err != nil {
			return wire.Walls{}, err
		}
		return permit.Walls(row, policy), nil
	}
	return p.boxes.Acquire(ctx, c)
}

// box claims a session's box like acquire. If the session's files are gone, it first restores them from their newest
// checkpoint. If that fails because there is none, and no turn runs, an active session moves to error; a resume can accept
// the loss. The caller does not hold u.mu.
func (p *parts) box(ctx context.Context, u *unit, c place.Claim, rules rulesOf) (*pool.Hold, error) {
	hold, err := p.acquire(ctx, u, c, rules)
	if !resume.AreFilesGone(err) {
		return hold, err
	}
	u.mu.Lock()
	row, err := p.row(ctx, u.id)
	if err == nil && !p.boxes.Workspace(u.id).Exists(ctx) {
		_, err = p.resumes.Resume(ctx, row, holdfast.ResumeSession{})
	}
	if resume.AreFilesGone(err) && row.Status == holdfast.StatusActive && u.running == nil {
		_, cerr := p.cfg.Journal.Commit(ctx, resume.Failed(u.id, err))
		err = errors.Join(err, cerr)
	}
	u.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return p.acquire(ctx, u, c, rules)
}

// files returns the state of a session's files and box for a resume.
func (p *parts) files(ctx context.Context, row journal.Row) (resume.Files, error) {
	owner, err := p.boxes.Files(ctx, row)
	return resume.Files{
		Workspace: p.boxes.Workspace(row.ID).Exists(ctx), HadFiles: owner.HadFiles, BoxLive: p.boxes.Running(row) != nil,
	}, err
}

// resume makes a session active again. The caller holds the unit's lock, and afterwards starts the next queued turn.
func (p *parts) resume(ctx context.Context, u *unit, row journal.Row, req holdfast.ResumeSession) (holdfast.Resumed, error) {
	out, err := p.resumes.Resume(ctx, row, req)
	if err == nil {
		u.ask = true
		row.Session = out.Session
		p.hooks.TellOf(ctx, row, hook.Input{Event: hook.SessionResumed, Trigger: string(out.Receipt.Tier), Message: string(out.Receipt.From)})
	}
	return out, err
}

// reach returns the destinations that the box of a session may reach at this moment.
func (p *parts) reach(ctx context.Context, row journal.Row) (check.Reach, error) {
	agent := func() (*check.Settings, error) {
		s, err := p.cfg.Agents.Settings(ctx, row.AgentVersion)
		return s.Sandbox, err
	}
	return p.network.Reach(row, agent, func() (*policy.Engine, error) {
		rules, fault, err := p.policies.Layers(permit.Session{Row: row}).Policy(ctx)
		if err == nil && fault != "" {
			err = holdfast.Errorf(holdfast.KindDenied, "network", "%s", fault)
		}
		return rules, err
	})
}

// warning is a notice that something did not work as it should.
func warning(turn holdfast.TurnID, code, text string) journal.Draft {
	return journal.Draft{Type: holdfast.EventNotice, Turn: turn, Data: holdfast.Notice{Code: code, Level: "warning", Text: journal.Plain(text)}}
}

// connect sets a session's environment in a box, and opens a proxy there if the session may reach
// at least one destination. If the proxy cannot open, for example because its port is taken in the
// box, the box works without network access, and a notice says so.
func (p *parts) connect(ctx context.Context, row journal.Row, box *sandbox.Box, env []string) error {
	reach, err := p.reach(ctx, row)
	if err != nil && !holdfast.IsKind(err, holdfast.KindDenied) {
		return err
	}
	if err == nil && !reach.None() {
		proxy, err := p.network.Open(ctx, box, row.ID, p.boxes.Scope(row.ID).Shared)
		if err != nil && ctx.Err() != nil {
			return err
		} else if err != nil {
			p.cfg.Journal.Note(ctx, p.cfg.Log, row.ID, warning("", "network.unavailable", "the box has no network access, because its port to the proxy could not be opened: "+err.Error()))
		}
		env = append(proxy, env...) // values of the session's own --env override those of the proxy
	}
	box.SetEnv(append([]string{"HOLDFAST_SESSION=" + string(row.ID), "HOLDFAST_RUNTIME=" + row.Runtime}, env...))
	return nil
}

// links returns the resolver of symlinks among a session's files. It asks the given box, or if box is nil, the running box
// that the session has used.
func (p *parts) links(ctx context.Context, row journal.Row, box *sandbox.Box) *permit.Links {
	if box == nil {
		box = p.boxes.Entered(row)
	}
	return permit.NewLinks(ctx, box, p.boxes.Workspace(row.ID), p.cfg.Clock).On(p.boxes.Scope(row.ID).Place(row.Trust))
}

// reconnect applies a change of the destinations that a session may reach: new processes in its box
// get the new environment, and connections that are open are affected at once.
func (p *parts) reconnect(ctx context.Context, row journal.Row) error {
	var err error
	if box := p.boxes.Running(row); box != nil {
		var env []string
		if env, err = p.choices.Env(row); err == nil {
			err = p.connect(ctx, row, box, env)
		}
	}
	p.network.Changed(ctx, row.ID)
	return err
}

// brief returns a turn of a session with the instructions and folder of its agent version. The workspace's own
// instructions are added if the settings of the agent version allow it.
func (p *parts) brief(ctx context.Context, row journal.Row) (runtime.Turn, error) {
	scope, onHost, at := p.boxes.Scope(row.ID), row.Trust == holdfast.Trusted, policy.Cwd+"/"
	t, err := runtime.Turn{Session: row.Session, Place: runtime.Box, PortKey: p.network.Key(row.ID, scope.Shared || onHost)}, error(nil)
	if onHost {
		t.Place.Workspace, t.Place.Home = scope.Place(row.Trust)
		t.Place.Temp, t.Place.Sockets, at = scope.Dir+"/tmp", scope.Dir+"/tmp", ""
		if t.Place.Agent, err = (sessions{p}).Plugin(ctx, row); err != nil {
			return t, err
		}
	}
	if t.Instructions, err = p.cfg.Agents.Instructions(ctx, row.AgentVersion); err != nil {
		return t, err
	}
	if t.Folder, err = p.cfg.Agents.Folder(ctx, row.AgentVersion); err != nil {
		return t, err
	}
	s, err := p.cfg.Agents.Settings(ctx, row.AgentVersion)
	if err == nil && s.WorkspaceInstructions {
		t.Instructions += folder.Workspace(ctx, p.boxes.Workspace(row.ID), at, t.Folder, settings.Keys)
	}
	return t, err
}

// at calls the crash tests' hook for a named point in a session's turn.
func (p *parts) at(id holdfast.SessionID, point string) {
	if p.cfg.At != nil {
		p.cfg.At(id, point)
	}
}

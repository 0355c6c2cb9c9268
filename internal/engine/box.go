package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func (e *Engine) dir(id holdfast.SessionID) string { return filepath.Join(e.cfg.Dir, string(id)) }

// pool is where sessions of a trust level have their boxes; without one they get
// an error, never another place (I-15).
func (e *Engine) pool(t holdfast.Trust) (*sandbox.Pool, error) {
	if p := e.cfg.Pools[t]; p != nil {
		return p, nil
	}
	return nil, holdfast.Errorf(holdfast.KindUnavailable, "box", "no driver runs %s sessions on this server", t).
		WithHint("holdfast serve --driver local, or as yourself: holdfast session create --trust trusted")
}

// spec is the box of a session.
func (e *Engine) spec(ctx context.Context, row journal.Row) (sandbox.Spec, error) {
	env, err := e.openEnv(row)
	if err != nil {
		return sandbox.Spec{}, err
	}
	brought := ""
	if row.Trust == holdfast.Untrusted && row.Runtime != nativeRuntime {
		if brought, err = e.cfg.Agents.Plugin(ctx, row.AgentVersion); err != nil {
			return sandbox.Spec{}, err
		}
	}
	s := sandbox.Spec{
		Box: holdfast.SessionBox(row.ID), Dir: e.dir(row.ID), Env: env,
		Limits: e.cfg.Box.Limits, LimitsMode: e.cfg.Box.LimitsMode, Landlock: e.cfg.Box.Landlock, OrphanAfter: e.cfg.Box.OrphanAfter,
		SpoolBytes: e.cfg.Box.SpoolBytes, Agent: brought,
	}
	if row.Number >= MaxNumber {
		return s, holdfast.Errorf(holdfast.KindUnavailable, "box", "session %s is number %d of this data directory: there are no ids for its box", row.ID, row.Number)
	}
	if s.BoxdUID = e.derivedUID(row); row.BoxUID != 0 {
		s.BoxdUID = row.BoxUID
	}
	if s.BoxdUID != 0 {
		s.ToolUID = s.BoxdUID + 1
	}
	return s, nil
}

// derivedUID is the first of a session's two host ids unless its row has others;
// 0 without any to allocate.
func (e *Engine) derivedUID(row journal.Row) uint32 {
	if e.cfg.Box.UIDBase == 0 {
		return 0
	}
	return e.cfg.Box.UIDBase + 2*uint32(row.Number)
}

// MaxNumber is how many sessions of a data directory have ids for their boxes: two
// for each from BoxConfig.UIDBase on. Ready boots may have those that follow.
const MaxNumber = 1 << 29

// acquire claims the session's box, seeding its workspace the first time. The caller
// has claimed u. rules gives the policy that its walls are made from; nil reads it.
func (e *Engine) acquire(ctx context.Context, u *unit, turn bool, rules rulesOf, queued func(int)) (*sandbox.Hold, error) {
	for {
		moved := u.moved.Load()
		hold, pool, err := e.acquireOnce(ctx, u, turn, rules, queued)
		if u.moved.Load() == moved {
			return hold, err
		}
		// The session ended, was deleted, or changed its trust meanwhile: nobody
		// else will end this box or remove its files.
		if hold != nil {
			hold.Release()
			rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
			err = pool.Remove(rctx, hold.Box.ID())
			cancel()
			if err != nil {
				return nil, err
			}
		}
		if _, rerr := e.cfg.Store.Row(ctx, u.id); rerr != nil {
			if holdfast.IsKind(rerr, holdfast.KindNotFound) {
				rerr = errors.Join(rerr, rooted.RemoveAll(e.dir(u.id)))
			}
			return nil, rerr
		}
	}
}

func (e *Engine) acquireOnce(ctx context.Context, u *unit, turn bool, rules rulesOf, queued func(int)) (*sandbox.Hold, *sandbox.Pool, error) {
	row, err := e.liveRow(ctx, u.id)
	if err != nil {
		return nil, nil, err
	}
	pool, err := e.pool(row.Trust)
	if err != nil {
		return nil, nil, err
	}
	spec, err := e.spec(ctx, row)
	if err != nil {
		return nil, nil, err
	}
	if rules == nil {
		rules = e.rulesNow(u, row)
	}
	if row.Trust == holdfast.Untrusted {
		p, err := rules(ctx)
		if err != nil {
			return nil, nil, err
		}
		spec.Walls = wallsOf(row, p)
	}
	switch {
	case !row.FilesSeeded || !row.HadFiles:
		if spec, err = e.seed(ctx, u, pool, spec); err != nil {
			return nil, nil, err
		}
	case !e.hasWorkspace(u.id):
		// Never a new, empty one in its place without being told to.
		return nil, nil, filesGone(u.id)
	}
	if queued == nil {
		queued = func(int) {}
	}
	hold, err := pool.Acquire(ctx, spec, turn, queued)
	if err != nil {
		return nil, nil, err
	}
	err = hold.Box.Adopt(func(held []wire.CallState) error { return e.releaseSettled(ctx, u, hold.Box, held) })
	if err == nil && len(e.network.allow.List) > 0 {
		err = e.connect(ctx, u, row, hold.Box)
	}
	if err != nil {
		hold.Release()
		return nil, nil, err
	}
	return hold, pool, nil
}

// removeTimeout bounds the end of a box that nobody waits for.
const removeTimeout = 30 * time.Second

func (e *Engine) hasWorkspace(id holdfast.SessionID) bool {
	info, err := os.Lstat(filepath.Join(e.dir(id), "workspace"))
	return err == nil && info.IsDir()
}

// seed makes the private workspace and copies the agent's files into it, once:
// they are durable before the row says so, and existing files are never
// overwritten. A workspace whose loss was accepted is made in the same way. A box that
// stands ready is reserved; the row keeps the ids that its files have, and the
// answer is spec with them.
func (e *Engine) seed(ctx context.Context, u *unit, pool *sandbox.Pool, spec sandbox.Spec) (sandbox.Spec, error) {
	u.seed.Lock()
	defer u.seed.Unlock()
	row, err := e.cfg.Store.Row(ctx, u.id)
	if err != nil {
		return spec, err
	}
	if row.FilesSeeded && row.HadFiles {
		now, err := e.spec(ctx, row)
		now.Walls = spec.Walls
		return now, err
	}
	c := journal.NewChange(u.id)
	yes := true
	c.Set = &journal.RowPatch{FilesSeeded: &yes, HadFiles: &yes}
	var files []rooted.File
	if !row.FilesSeeded {
		if files, err = e.cfg.Agents.Files(ctx, row.AgentVersion); err != nil {
			return spec, err
		}
	}
	if !row.FilesSeeded && !row.HadFiles {
		if spec = e.reserve(pool, spec); spec.BoxdUID != e.derivedUID(row) {
			c.Set.BoxUID = &spec.BoxdUID
		}
	}
	uid, gid := os.Getuid(), os.Getgid()
	if e.cfg.Box.UIDBase != 0 && row.Trust == holdfast.Untrusted {
		uid, gid = int(spec.ToolUID), int(spec.ToolUID)
	}
	if err := rooted.Seed(filepath.Join(spec.Dir, "workspace"), files, uid, gid); err != nil {
		return spec, err
	}
	_, err = e.cfg.Journal.Commit(ctx, c)
	return spec, err
}

// reserve gives a session whose box never ran one that stands ready, if there is
// one. A reservation that was cut off before its commit left its directory, whose
// ids remain: only this server has written to it.
func (e *Engine) reserve(pool *sandbox.Pool, spec sandbox.Spec) sandbox.Spec {
	reserved, ok := pool.Reserve(spec)
	if ok || e.cfg.Box.UIDBase == 0 {
		return reserved
	}
	info, err := os.Lstat(filepath.Join(spec.Dir, "state"))
	if err != nil {
		return spec
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid >= e.cfg.Box.UIDBase+2*MaxNumber {
		spec.BoxdUID, spec.ToolUID = st.Uid, st.Uid+1
	}
	return spec
}

// releaseSettled lets a box forget what a former connection left held and the
// log needs no more: all finished calls but those whose intent has no outcome.
func (e *Engine) releaseSettled(ctx context.Context, u *unit, box *sandbox.Box, held []wire.CallState) error {
	id, turn := u.id, holdfast.TurnID("")
	if h := u.host.Load(); h != nil {
		turn = h.r.id
	}
	open, ran := map[holdfast.CallID]bool{}, map[holdfast.CallID]bool{}
	for ev, err := range e.cfg.Journal.Read(ctx, id, 0) {
		if err != nil {
			return err
		}
		switch ev.Type {
		case holdfast.EventToolStarted:
			var d holdfast.ToolStarted
			if err := ev.Decode(&d); err != nil {
				return err
			}
			open[d.Call] = true
		case holdfast.EventToolFinished, holdfast.EventToolUnknown:
			var d holdfast.ToolFinished
			if err := ev.Decode(&d); err != nil {
				return err
			}
			delete(open, d.Call)
		case holdfast.EventHookRan:
			var d holdfast.HookRan
			if err := ev.Decode(&d); err != nil {
				return err
			}
			ran[d.Call] = true
		}
	}
	states, err := e.cfg.Store.AgentStates(ctx, id)
	if err != nil {
		return err
	}
	for _, s := range states {
		// What an agent said to its end is not all accounted for.
		open[s.Call] = open[s.Call] || s.Health == holdfast.HealthCurrent
	}
	var done []holdfast.CallID
	for _, c := range held {
		// A hook's run of the running turn is held until it is recorded.
		if _, mine := hookOf(c.Call, turn); mine && !ran[c.Call] {
			continue
		}
		if !open[c.Call] {
			done = append(done, c.Call)
		}
	}
	box.Release(done...)
	return nil
}

// Resting are the calls of a box that run agents of a session of which no turn is
// open; it is the pools' Resting.
func (e *Engine) Resting(ctx context.Context, box holdfast.BoxID) []holdfast.CallID {
	id, ok := boxSession(box)
	if !ok {
		return nil
	}
	open, err := e.cfg.Store.OpenTurns(ctx, id)
	if err != nil || len(open) > 0 {
		return nil
	}
	states, err := e.cfg.Store.AgentStates(ctx, id)
	if err != nil {
		return nil
	}
	var calls []holdfast.CallID
	for _, s := range states {
		if s.Call != "" && s.Box == box {
			calls = append(calls, s.Call)
		}
	}
	return calls
}

func (e *Engine) stopBox(ctx context.Context, row journal.Row, reason string) error {
	pool := e.cfg.Pools[row.Trust]
	if pool == nil {
		return nil
	}
	return pool.Stop(ctx, holdfast.SessionBox(row.ID), reason, time.Second)
}

// removeBoxes ends the boxes of a session that has ended, also those of a trust
// it had before. The caller going away does not keep them.
func (e *Engine) removeBoxes(ctx context.Context, row journal.Row) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	var errs []error
	// The pool that has it comes first, so that the end is told as one.
	for _, trust := range []holdfast.Trust{row.Trust, holdfast.Untrusted, holdfast.Trusted} {
		if pool := e.cfg.Pools[trust]; pool != nil {
			errs = append(errs, pool.Remove(ctx, holdfast.SessionBox(row.ID)))
		}
	}
	return errors.Join(errs...)
}

// BoxEvent writes what happened to a box into its session's log; it is the
// pools' OnEvent.
func (e *Engine) BoxEvent(ev sandbox.BoxEvent) {
	id, ok := boxSession(ev.Box)
	if !ok {
		return
	}
	c := journal.NewChange(id)
	var data any = ev.Ended
	if ev.Type == holdfast.EventBoxStarted {
		data = ev.Started
	}
	c.Events = []journal.Draft{{Type: ev.Type, Data: data}}
	if _, err := e.cfg.Journal.Commit(context.WithoutCancel(e.base), c); err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
		e.cfg.Log.Warn("box event not recorded", "box_id", ev.Box, "type", ev.Type, "error", err)
	}
	switch ev.Type {
	case holdfast.EventBoxStarted:
		e.tell(id, hook.Input{Event: hook.SandboxStarted, Trigger: ev.Started.Driver})
	case holdfast.EventBoxStopped, holdfast.EventBoxLost:
		e.tell(id, hook.Input{Event: hook.SandboxStopped, Trigger: string(ev.Type), Message: ev.Ended.Reason})
	}
}

// BoxDisk measures what the trees of a session's box take; it is the pools'
// measure.
func (e *Engine) BoxDisk(ctx context.Context, box holdfast.BoxID) (sandbox.DiskUsage, error) {
	id, ok := boxSession(box)
	if !ok {
		return sandbox.DiskUsage{}, holdfast.Errorf(holdfast.KindNotFound, "box.disk", "no session has box %s", holdfast.Quote(string(box)))
	}
	u, err := rooted.DiskUsage(ctx, e.dir(id), 0)
	return sandbox.DiskUsage{Bytes: u.Bytes, Files: int64(u.Entries), Hidden: u.Partial}, err
}

// Containers lists the boxes of every driver.
func (e *Engine) Containers(ctx context.Context) ([]holdfast.Container, error) {
	list, err := e.pooled(ctx)
	out := make([]holdfast.Container, len(list))
	for i, p := range list {
		out[i] = p.Container
	}
	return out, err
}

// pooled is a box and the pool that has it.
type pooled struct {
	holdfast.Container
	pool *sandbox.Pool
}

func (e *Engine) pooled(ctx context.Context) ([]pooled, error) {
	type key struct {
		driver string
		box    holdfast.BoxID
	}
	at := map[key]int{}
	var out []pooled
	for _, t := range []holdfast.Trust{holdfast.Untrusted, holdfast.Trusted} {
		pool := e.cfg.Pools[t]
		if pool == nil {
			continue
		}
		list, err := pool.List(ctx)
		if err != nil {
			return nil, err
		}
		for _, c := range list {
			c.Session, _ = boxSession(c.ID)
			p := pooled{c, pool}
			// One driver may serve both pools: the one that is connected knows more.
			if i, ok := at[key{c.Driver, c.ID}]; !ok {
				at[key{c.Driver, c.ID}] = len(out)
				out = append(out, p)
			} else if pool.Live(c.ID) != nil {
				out[i] = p
			}
		}
	}
	return out, nil
}

// mostAtOnce bounds how many boxes are worked on at once. One that stands still takes
// seconds of waiting and no work.
const mostAtOnce = 32

// sideBySide calls do for each box; a failure does not keep it from the others. done says
// for which boxes do returned true, err is the first failure in the order of the boxes.
func sideBySide[T any](boxes []T, do func(T) (bool, error)) (done []bool, err error) {
	done, errs := make([]bool, len(boxes)), make([]error, len(boxes))
	var g errgroup.Group
	g.SetLimit(mostAtOnce)
	for i, b := range boxes {
		g.Go(func() error {
			did, err := do(b)
			done[i], errs[i] = did && err == nil, err
			return nil
		})
	}
	_ = g.Wait()
	for _, err := range errs {
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// StopContainers ends boxes by id, or all of them; sessions, files and logs stay.
func (e *Engine) StopContainers(ctx context.Context, req holdfast.StopContainers) ([]holdfast.Container, error) {
	if req.All == (len(req.IDs) > 0) {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "containers.stop", "name boxes or all of them").
			WithHint("holdfast containers stop NAME, or --all")
	}
	want := map[holdfast.BoxID]bool{}
	for _, s := range req.IDs {
		id, err := holdfast.ParseBoxID(s)
		if err != nil {
			return nil, err
		}
		want[id] = true
	}
	list, err := e.pooled(ctx)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(c pooled) bool { return !req.All && !want[c.ID] })
	for _, c := range list {
		delete(want, c.ID)
	}
	done, err := sideBySide(list, func(c pooled) (bool, error) {
		return true, c.pool.Stop(ctx, c.ID, "asked", 2*time.Second)
	})
	stopped := []holdfast.Container{}
	for i, c := range list {
		if done[i] {
			stopped = append(stopped, c.Container)
		}
	}
	if err != nil {
		return stopped, err
	}
	for id := range want {
		return stopped, holdfast.Errorf(holdfast.KindNotFound, "containers.stop", "no box %s", holdfast.Quote(string(id))).
			WithHint("holdfast containers list")
	}
	return stopped, nil
}

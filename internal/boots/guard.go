package boots

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

const (
	// cutTail is how many of a session's newest events are examined at least.
	cutTail = 64
	// forgetEvery is the interval at which old sessions are removed from the list of those with
	// commands outside of turns.
	forgetEvery = 30 * time.Second
)

// Sessions gives a Guard read access to sessions.
type Sessions interface {
	// Row returns one session; not_found for an unknown id.
	Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error)
	// Turns lists a session's turns after a number, in order, at most limit.
	Turns(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]journal.TurnRow, error)
	// NewestEvent returns the time of the newest event of all sessions, or the zero time if there are
	// no events. ActiveSince returns the sessions whose newest event is at or after a time.
	NewestEvent(ctx context.Context) (time.Time, error)
	ActiveSince(ctx context.Context, since time.Time) ([]holdfast.SessionID, error)
}

// GuardConfig configures a Guard. All fields but Boot must be set; without Boot, power cuts are not
// detected.
type GuardConfig struct {
	Facts    Facts
	Sessions Sessions
	Journal  *journal.Journal
	// Boot is used as Config.Boot.
	Boot string
	// InServer reports whether a runtime's tools run in the server, so that its Write and Edit sync
	// their files.
	InServer func(runtime string) bool
	// Sync returns when every file of the sessions is on the disk.
	Sync  func(ctx context.Context) error
	Clock func() time.Time
	Log   *slog.Logger
}

// Guard records a notice in every session whose files a power cut may have taken. Safe for
// concurrent use.
type Guard struct {
	cfg GuardConfig
	rec *Record
}

// Watch records the current boot of the machine. If the last boot ended with a power cut, it
// records a notice in every session whose files may be lost (I-34). It must run before any command.
func Watch(ctx context.Context, cfg GuardConfig) (*Guard, error) {
	g := &Guard{cfg: cfg}
	if cfg.Boot == "" {
		return g, nil
	}
	var err error
	g.rec, err = Open(ctx, Config{Facts: cfg.Facts, Boot: cfg.Boot, Newest: cfg.Sessions.NewestEvent, Clock: cfg.Clock})
	if err != nil {
		return nil, err
	}
	return g, g.notice(ctx)
}

// Direct must be called before a command outside of turns runs, and the function that it returns
// when the command has ended.
func (g *Guard) Direct(ctx context.Context, id holdfast.SessionID) (func(), error) {
	return g.rec.Direct(ctx, id)
}

// notice records the notices of a pending cut in the sessions that it affects.
func (g *Guard) notice(ctx context.Context) error {
	cut := g.rec.Pending()
	if cut == nil {
		return nil
	}
	ids, err := g.cfg.Sessions.ActiveSince(ctx, cut.Since())
	if err != nil {
		return err
	}
	for _, id := range cut.Direct {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, id := range g.rec.Told() {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	var told []holdfast.SessionID
	for _, id := range ids {
		risk, err := g.noticeCut(ctx, id, *cut)
		switch {
		case holdfast.IsKind(err, holdfast.KindNotFound):
		case err != nil:
			return err
		case risk:
			told = append(told, id)
		}
	}
	g.cfg.Log.Warn("the machine went down without a shutdown: files of commands in the minute before may be lost",
		"last_event", cut.Last, "sessions", len(told))
	return g.rec.Settled(ctx, told)
}

// noticeCut records a notice of a cut in a session, unless none of its files is at risk or it
// already has the notice. It returns whether a notice of this or an earlier cut is valid now.
// Nothing else writes to the session yet.
func (g *Guard) noticeCut(ctx context.Context, id holdfast.SessionID, cut Cut) (bool, error) {
	row, err := g.cfg.Sessions.Row(ctx, id)
	if err != nil {
		return false, err
	}
	turns, err := g.turnsSince(ctx, row, cut.Since())
	if err != nil {
		return false, err
	}
	from := row.LastSeq - cutTail
	var running holdfast.TurnID
	for _, t := range turns {
		from = min(from, t.MessageSeq-1)
		if t.Status == holdfast.TurnRunning {
			running = t.ID
		}
	}
	f := Fold{Since: cut.Since(), Agent: !g.cfg.InServer(row.Runtime)}
	for ev, err := range g.cfg.Journal.Read(ctx, id, max(from, 0)) {
		if err == nil {
			err = f.Add(ev)
		}
		if err != nil {
			return false, err
		}
	}
	risk := holdfast.FilesAtRisk{
		Turns: []holdfast.TurnAtRisk{}, Direct: f.Direct || slices.Contains(cut.Direct, id), LastEvent: cut.Last.UTC(), Since: cut.Since().UTC(),
	}
	for _, t := range turns {
		if slices.Contains(f.Turns(), t.ID) {
			risk.Turns = append(risk.Turns, holdfast.TurnAtRisk{ID: t.ID, Number: t.Number})
		}
	}
	if f.Told != nil && f.Told.LastEvent.Equal(risk.LastEvent) || len(risk.Turns) == 0 && !risk.Direct {
		counts, err := g.readRisk(ctx, row)
		return counts != nil, err
	}
	c := journal.NewChange(id)
	c.Events = []journal.Draft{{Type: holdfast.EventNotice, Turn: running, Data: holdfast.Notice{
		Code: holdfast.NoticeFilesAtRisk, Level: "warning", Text: Text(risk), AtRisk: &risk,
	}}}
	_, err = g.cfg.Journal.Commit(ctx, c)
	return true, err
}

// turnsSince returns the turns of a session that ended at or after a time or have not ended, by
// number.
func (g *Guard) turnsSince(ctx context.Context, row journal.Row, since time.Time) ([]journal.TurnRow, error) {
	const page = 100
	var out []journal.TurnRow
	for to := row.LastTurn; to > 0; to -= page {
		part, err := g.cfg.Sessions.Turns(ctx, row.ID, max(to-page, 0), int(min(to, page)))
		if err != nil {
			return nil, err
		}
		late := slices.DeleteFunc(slices.Clone(part), func(t journal.TurnRow) bool { return t.EndedAt != nil && t.EndedAt.Before(since) })
		out = append(late, out...)
		if len(late) < len(part) {
			break
		}
	}
	return out, nil
}

// LastCut returns when the machine last lost power, as far as is known, and whether commands outside of turns ran
// in the session shortly before. The time is zero if the machine never lost power.
func (g *Guard) LastCut(id holdfast.SessionID) (at time.Time, direct bool) {
	cut := g.rec.Last()
	if cut == nil {
		return at, false
	}
	return cut.Last, slices.Contains(cut.Direct, id)
}

// AtRisk returns the files of a session that a power cut may have taken; nil for none. It reads the log
// only of sessions with a notice, because reading the log would take most of the time of a warm resume.
func (g *Guard) AtRisk(ctx context.Context, row journal.Row) (*holdfast.FilesAtRisk, error) {
	if !slices.Contains(g.rec.Told(), row.ID) {
		return nil, nil
	}
	return g.readRisk(ctx, row)
}

// readRisk returns the content of the newest notice of a cut; nil if since then the session was
// resumed, or a turn ended other than the one that the notice belongs to.
func (g *Guard) readRisk(ctx context.Context, row journal.Row) (*holdfast.FilesAtRisk, error) {
	var risk *holdfast.FilesAtRisk
	var in holdfast.TurnID
	for ev, err := range g.cfg.Journal.Read(ctx, row.ID, max(row.LastSeq-cutTail, 0)) {
		if err != nil {
			return nil, err
		}
		switch {
		case ev.EndsTurn() && ev.Turn != in, ev.Type == holdfast.EventSessionResumed:
			risk = nil
		case ev.Type == holdfast.EventNotice:
			var n holdfast.Notice
			if err := ev.Decode(&n); err != nil {
				return nil, err
			}
			if n.Code == holdfast.NoticeFilesAtRisk {
				risk, in = n.AtRisk, ev.Turn
			}
		}
	}
	return risk, nil
}

// Forget removes old sessions from the list of those with commands outside of turns, at intervals,
// until ctx ends or leaving is closed.
func (g *Guard) Forget(ctx context.Context, leaving <-chan struct{}) {
	t := time.NewTicker(forgetEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := g.rec.Forget(ctx); err != nil {
				g.cfg.Log.Debug("the list of sessions with commands outside of turns was not shortened", "error", err)
			}
		case <-leaving:
			return
		case <-ctx.Done():
			return
		}
	}
}

// End records an orderly shutdown once every file is on the disk. If a step fails or takes longer
// than ctx, nothing is recorded, and an end of the machine counts as a power cut.
func (g *Guard) End(ctx context.Context) {
	if g.rec == nil {
		return
	}
	synced := make(chan error, 1)
	go func() { synced <- g.cfg.Sync(ctx) }()
	var err error
	select {
	case err = <-synced:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil {
		err = g.rec.Ended(ctx)
	}
	if err != nil {
		g.cfg.Log.Warn("the shutdown did not sync all files of sessions to the disk", "error", err)
	}
}

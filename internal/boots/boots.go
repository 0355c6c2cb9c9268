// Package boots records in which boot of the machine, and mount of its disk, a data directory was last in use, and
// finds after a power cut the turns and commands whose files may be lost.
//
// A command writes into the page cache. The kernel writes that to disk up to half a minute later,
// long after the command's result and its turn are recorded. Events are synced, so after a power
// cut the log may describe files that never reached the disk.
//
// The engine and app import it; it imports the vocabulary and journal. Invariant (I-34): the boot is
// recorded before any command runs. A cut stays recorded until every affected session has its
// notice, so that a crash in between delays a notice but loses none.
package boots

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Window is how long before a power cut a command may have written files that were still only in
// the page cache. Linux writes back after 30 s at the latest, plus the time that writing takes.
const Window = time.Minute

const op = "boots"

// The keys of the two facts that are stored: the record of the boot, and the sessions with commands
// outside of turns.
const (
	bootKey   = "boot"
	directKey = "direct"
)

// Facts is a durable key-value map. SetFact returns once the value is synced.
type Facts interface {
	Fact(ctx context.Context, key string) (value string, ok bool, err error)
	SetFact(ctx context.Context, key, value string) error
}

// Config configures Open. Every field must be set.
type Config struct {
	Facts Facts
	// Boot is a text that changes with each start of the machine and, if possible, with each mount of
	// the data directory's disk. Here returns it.
	Boot string
	// Newest returns the time of the newest event of all sessions, or the zero time if there are no
	// events.
	Newest func(context.Context) (time.Time, error)
	Clock  func() time.Time
}

// Cut is an end of the machine without a shutdown: a power cut, a reset, a kernel crash; or the loss of its disk.
type Cut struct {
	// Last is the time of the log's last event before the power cut, as an estimate of when the cut happened. If the log
	// has no event, it is the time of the next start.
	Last time.Time `json:"last"`
	// Direct lists the sessions that may have had commands outside of turns in the Window before the cut.
	Direct []holdfast.SessionID `json:"direct,omitempty"`
}

// Since returns the time from which on written files may be lost.
func (c Cut) Since() time.Time { return c.Last.Add(-Window) }

// record is the fact under bootKey.
type record struct {
	Boot string `json:"boot"`
	// Clean is true if the server shut down in order, after everything was synced.
	Clean bool `json:"clean,omitempty"`
	// Cut is the power cut that some sessions still lack a notice of; nil if none do.
	Cut *Cut `json:"cut,omitempty"`
	// Last is the newest power cut, whether or not the sessions have their notices.
	Last *Cut `json:"last_cut,omitempty"`
	// Told lists the sessions with a notice of a cut, which the receipt of their next resume repeats.
	Told []holdfast.SessionID `json:"told,omitempty"`
}

// Record tracks the boot in which a data directory is in use. Safe for concurrent use; a nil Record
// records nothing.
type Record struct {
	cfg Config

	mu  sync.Mutex
	now record
	// durable are the sessions in the stored fact under directKey. used is when a session's last
	// command outside of a turn ended, open the number of such commands that run now.
	durable []holdfast.SessionID
	used    map[holdfast.SessionID]time.Time
	open    map[holdfast.SessionID]int
}

// Open compares the current boot with the recorded one, and records it before any command runs.
func Open(ctx context.Context, cfg Config) (*Record, error) {
	r := &Record{cfg: cfg, used: map[holdfast.SessionID]time.Time{}, open: map[holdfast.SessionID]int{}}
	if err := read(ctx, cfg.Facts, bootKey, &r.now); err != nil {
		return nil, err
	}
	if err := read(ctx, cfg.Facts, directKey, &r.durable); err != nil {
		return nil, err
	}
	was := r.now
	if was.Boot != "" && was.Boot != cfg.Boot && !was.Clean {
		last, err := cfg.Newest(ctx)
		if err != nil {
			return nil, err
		}
		if last.IsZero() {
			last = cfg.Clock()
		}
		r.now.Last = &Cut{Last: last, Direct: r.durable}
		if was.Cut == nil {
			r.now.Cut = r.now.Last
		}
	}
	r.now.Boot, r.now.Clean = cfg.Boot, false
	if r.now.Last != was.Last || r.now.Boot != was.Boot || was.Clean {
		if err := r.keep(ctx); err != nil {
			return nil, err
		}
	}
	for _, id := range r.durable {
		r.used[id] = cfg.Clock()
	}
	return r, nil
}

func read(ctx context.Context, f Facts, key string, to any) error {
	value, ok, err := f.Fact(ctx, key)
	if err != nil || !ok {
		return err
	}
	if err := json.Unmarshal([]byte(value), to); err != nil {
		return holdfast.Errorf(holdfast.KindInternal, op, "the fact %s in the server's database has the invalid value %s: %w", key, holdfast.Quote(value), err).
			WithHint("check the server's database: holdfast doctor --verify")
	}
	return nil
}

func write(ctx context.Context, f Facts, key string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return holdfast.Errorf(holdfast.KindInternal, op, "the fact %s cannot be encoded for the server's database: %w", key, err)
	}
	return f.SetFact(ctx, key, string(raw))
}

func (r *Record) keep(ctx context.Context) error { return write(ctx, r.cfg.Facts, bootKey, r.now) }

// Pending returns the cut that some sessions still need a notice of; nil if there is none.
func (r *Record) Pending() *Cut {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.Cut
}

// Last returns the newest power cut; nil if there was none.
func (r *Record) Last() *Cut {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.Last
}

// Settled records that every session has its notice of the pending cut. told lists all sessions
// that have a valid notice of this cut or an earlier one.
func (r *Record) Settled(ctx context.Context, told []holdfast.SessionID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Cut, r.now.Told = nil, told
	return r.keep(ctx)
}

// Told returns the sessions whose notice of a cut may still be valid.
func (r *Record) Told() []holdfast.SessionID {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.Told
}

// Ended records an orderly shutdown. The caller has stopped every box and synced the file system,
// so that every file that the log describes is on the disk.
func (r *Record) Ended(ctx context.Context) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Clean = true
	return r.keep(ctx)
}

// Direct records, durably on return, that a session runs a command outside of a turn, which its log
// does not show. A further such command of the session costs no commit until Forget has removed the
// session. done must be called when the command ends.
func (r *Record) Direct(ctx context.Context, id holdfast.SessionID) (done func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.durable, id) {
		next := append(slices.Clone(r.durable), id)
		if err := write(ctx, r.cfg.Facts, directKey, next); err != nil {
			return nil, err
		}
		r.durable = next
	}
	r.open[id]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.used[id] = r.cfg.Clock()
		if r.open[id]--; r.open[id] == 0 {
			delete(r.open, id)
		}
	}, nil
}

// Forget removes the sessions whose last command outside of a turn ended more than Window ago. It
// must be called regularly.
func (r *Record) Forget(ctx context.Context) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.cfg.Clock().Add(-Window)
	next := slices.DeleteFunc(slices.Clone(r.durable), func(id holdfast.SessionID) bool {
		return r.open[id] == 0 && r.used[id].Before(from)
	})
	if len(next) == len(r.durable) {
		return nil
	}
	if err := write(ctx, r.cfg.Facts, directKey, next); err != nil {
		return err
	}
	r.durable = next
	for id := range r.used {
		if !slices.Contains(next, id) {
			delete(r.used, id)
		}
	}
	return nil
}

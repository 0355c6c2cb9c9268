// Package workspaces keeps the workspaces of a server: trees of files in which several sessions work, made by
// the server or lent by the user, and which sessions work in which.
//
// The database is the truth. Each workspace has a copy of its settings in the data directory, config.yaml, which is
// written after each change and imported after a person changed it.
//
// The app makes the one Workspaces of a server. Its store is internal/store/sqlite/admin; place asks it for the
// files of a session, choices for the defaults of a new one. Invariant (I-47): a directory of the user's own is
// never made, removed, renamed or given another owner, and a session touches it only while it is the same
// directory as when the workspace was made.
package workspaces

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Record is a workspace as it is stored: the API's Workspace and the fields that only the server uses.
type Record struct {
	holdfast.Workspace
	// Number is the workspace's number in this store, from 1, never used again. The store assigns it.
	Number int64
	// Device and Inode identify a directory of the user's own. UID and GID own it, and own the files that sessions
	// make in it. All are 0 for a tree that the server made.
	Device, Inode uint64
	UID, GID      uint32
	// Sealed is the encrypted environment; nil if it has none. Reseal is true if a change is to store it: otherwise the
	// stored one stays, which may have been wrapped with another root key since the record was read.
	Sealed []byte
	Reseal bool
	// Mask is the umask with which sessions make files in a directory of the user's own: Umask as a number.
	Mask uint32
	// Deleting is true once the deletion has begun: the workspace gets no session any more.
	Deleting bool
}

// Store is the database of workspaces. Safe for concurrent use.
type Store interface {
	// AddWorkspace stores a new workspace, with a number and revision 1. It fails with conflict if the slug is taken.
	AddWorkspace(ctx context.Context, r Record) (Record, error)
	// Workspace returns one workspace; not_found if there is none. Workspaces returns all, ordered by slug.
	Workspace(ctx context.Context, id holdfast.Slug) (Record, error)
	Workspaces(ctx context.Context) ([]Record, error)
	// ChangeWorkspace replaces a workspace whose stored number and revision are those of r, and raises the revision. It
	// fails with not_found, or with conflict if number or revision is another one. Directory and times of creation stay.
	ChangeWorkspace(ctx context.Context, r Record) (Record, error)
	// RemoveWorkspace removes a workspace. It fails with conflict if a session still uses it, and with not_found if no
	// workspace has that name.
	RemoveWorkspace(ctx context.Context, id holdfast.Slug) error
	// Members returns the workspaces of all sessions that have one, those that have ended included.
	Members(ctx context.Context) (map[holdfast.SessionID]Member, error)
}

// Member is the workspace of a session, with the session's trust and mount scope.
type Member struct {
	Workspace holdfast.Slug
	Trust     holdfast.Trust
	Mount     string
}

// HasTree reports whether the session may read the server's directory tree_root in its box. A trusted session has no
// mounts.
func (m Member) HasTree() bool { return m.Mount == holdfast.MountTree && m.Trust == holdfast.Untrusted }

// Config configures Workspaces. All fields but TreeRoot must be set. Store and functions are safe for concurrent use.
type Config struct {
	Store Store
	// Data is the data directory of the server. The workspaces that the server makes are in its directory "workspaces".
	// Data is clean, as filepath.Clean makes it.
	Data string
	// TreeRoot is the directory that sessions with the mount scope tree-ro may read; empty: none may.
	TreeRoot string
	// Make makes the directory tree of the workspace with the given number, and sets its owner; the directory may exist.
	Make func(tree string, number int64) error
	// RootTrees allows workspaces in directories that belong to root. In this case TryRootTree returns nil if sessions of
	// this server, which runs as root, can work in the given directory.
	RootTrees   bool
	TryRootTree func(ctx context.Context, dir string, inode uint64, gid uint32) error
	// CheckModel, CheckNetwork and CheckRuntime return an error for values that no session of this server can have.
	CheckModel   func(name string) error
	CheckNetwork func(destinations []string) error
	CheckRuntime func(name string, trust holdfast.Trust) error
	CheckRule    func(rule string) error
	// CheckEnv returns an error, without any value, for an environment that no session can have. Sealer encrypts it.
	CheckEnv func(env map[string]string) error
	Sealer   Sealer
	// CheckLimits returns an error for limits of boxes, by their keys, that no session can have, and returns valid limits
	// in their usual form.
	CheckLimits func(limits map[string]string) (map[string]string, error)
	// LimitKeys are the keys that limits of boxes may have.
	LimitKeys []string
	// Engine, Boxes, Save and Leave take sessions out of a workspace. They are called only by Delete, Resume and Complete.
	// Save takes a checkpoint of each session that rows lists, if its newest checkpoint does not have its newest files. It
	// returns the sessions for which that is not possible. It ignores sessions that have ended. Leave commits the change c
	// that takes a session out, and gives the session the rules and limits that the workspace had.
	Engine func() Engine
	Boxes  func() Boxes
	Save   func(ctx context.Context, rows List) (unsaved []holdfast.SessionID, err error)
	Leave  func(ctx context.Context, row journal.Row, c journal.Change) error
	// Running reports whether a turn of a session runs or waits.
	Running func(ctx context.Context, id holdfast.SessionID) (bool, error)
	Clock   func() time.Time
	Log     *slog.Logger
}

// List returns a page of sessions, like the method Rows of a store.
type List = func(ctx context.Context, q journal.Query) (journal.Page, error)

// Sealer encrypts and decrypts the environments of workspaces.
type Sealer interface {
	// Hold keeps the root key from being replaced until release is called, so that what was encrypted meanwhile can be
	// stored. It must not be called again before release is called.
	Hold() (release func())
	SealWorkspace(id holdfast.Slug, plain []byte) ([]byte, error)
	OpenWorkspace(id holdfast.Slug, sealed []byte) ([]byte, error)
}

// Engine pauses sessions.
type Engine interface {
	// Pause pauses an active session; conflict if it is not active, or if a turn runs and the request does not
	// interrupt it.
	Pause(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error)
	// Settle waits until no snapshot of the files of a session is under way or due, or until ctx ends.
	Settle(ctx context.Context, id holdfast.SessionID) error
	// Alone calls work with the row of a session while nothing else changes the session.
	Alone(ctx context.Context, id holdfast.SessionID, work func(journal.Row) error) error
}

// Boxes ends the boxes of sessions and removes their directories.
type Boxes interface {
	Leave(ctx context.Context, row journal.Row) error
	Moved(id holdfast.SessionID)
	RemoveFiles(ctx context.Context, id holdfast.SessionID) error
}

// Workspaces are the workspaces of a server. Safe for concurrent use.
type Workspaces struct {
	cfg Config
	// Mounts decides which sessions can read the server's directory tree_root.
	Mounts Mounts

	mu countedLock
	// records holds every workspace, members the workspace of each session that has one, sessions those of each
	// workspace in the order of their ids.
	records  map[holdfast.Slug]Record
	members  map[holdfast.SessionID]Member
	sessions map[holdfast.Slug][]holdfast.SessionID
	// unmade has the number of each workspace in records whose files are not made yet: its settings are in force, and it
	// gets no session.
	unmade map[holdfast.Slug]int64
	// closed counts for each workspace the running calls of Delete, without dry runs: its sessions accept no message.
	closed map[holdfast.Slug]int

	// making is held while a workspace is made, so that two requests for one directory make one.
	making sync.Mutex
	// ends has a lock for each workspace. It is held while the workspace's deletion is completed, so that no two calls do
	// it at once.
	ends locks

	config configFiles
}

// countedLock is a lock that counts how often it was held for writing.
type countedLock struct {
	sync.RWMutex
	writes atomic.Int64
}

// Unlock releases the lock after a write.
func (l *countedLock) Unlock() {
	l.writes.Add(1)
	l.RWMutex.Unlock()
}

// Changes returns a number that grows when what Of, Tree, BoxDir or Member return for any session may have changed.
func Changes(w *Workspaces) int64 { return w.mu.writes.Load() }

// Open reads the workspaces of a server, and makes the trees that a former server did not get to make.
func Open(ctx context.Context, cfg Config) (*Workspaces, error) {
	w := &Workspaces{
		cfg: cfg, records: map[holdfast.Slug]Record{}, sessions: map[holdfast.Slug][]holdfast.SessionID{},
		unmade: map[holdfast.Slug]int64{}, closed: map[holdfast.Slug]int{},
	}
	w.Mounts = Mounts{&w.cfg}
	w.config = configFiles{w: w, files: map[holdfast.Slug]*file{}}
	list, err := cfg.Store.Workspaces(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		w.records[r.ID] = r
	}
	if w.members, err = cfg.Store.Members(ctx); err != nil {
		return w, err
	}
	for _, id := range slices.Sorted(maps.Keys(w.members)) {
		slug := w.members[id].Workspace
		w.sessions[slug] = append(w.sessions[slug], id)
	}
	for _, r := range list {
		// A former server may have ended before it made the tree. A tree that sessions had is never made again.
		if r.Dir == "" && !r.Deleting && len(w.sessions[r.ID]) == 0 {
			err = errors.Join(err, cfg.Make(w.Tree(r), r.Number))
		}
	}
	return w, err
}

// Of returns the workspace of a session; ok is false if the session is in none, but has files of its own.
func (w *Workspaces) Of(id holdfast.SessionID) (r Record, ok bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	r, ok = w.records[w.members[id].Workspace]
	return r, ok
}

// Tree returns the path of a workspace's files.
func (w *Workspaces) Tree(r Record) string {
	if r.Dir != "" {
		return r.Dir
	}
	return w.cfg.dir(r.ID) + "/files"
}

// BoxDir returns the directory of the box that the sessions of a workspace with a mount scope share.
func (w *Workspaces) BoxDir(r Record, mount string) string {
	if mount == holdfast.MountTree {
		return w.cfg.dir(r.ID) + "/tree-box"
	}
	return w.cfg.dir(r.ID) + "/box"
}

// Intact fails with conflict if the path of a user's own directory does not lead to the directory that was lent, and
// with denied if it belongs to root and the configuration does not allow that any more.
func (w *Workspaces) Intact(r Record) error {
	return intact(w, r, same)
}

func intact(w *Workspaces, r Record, same func(Record) error) error {
	if r.Dir == "" {
		return nil
	}
	if r.UID == 0 && !w.cfg.RootTrees {
		return ofRoot(r.Dir)
	}
	return same(r)
}

// IntactAs does what Intact does for a file that is already open: isDir, inode and uid are what was found at the
// workspace's path.
func IntactAs(w *Workspaces, r Record, isDir bool, inode uint64, uid uint32) error {
	return intact(w, r, func(r Record) error { return sameAs(r, isDir, inode, uid) })
}

// Member returns what is known of a session that has a workspace; the zero Member for any other.
func (w *Workspaces) Member(id holdfast.SessionID) Member {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.members[id]
}

// stored notes the workspace and the trust of a session that was just stored.
func (w *Workspaces) stored(s *holdfast.Session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if was := w.members[s.ID].Workspace; was != s.Workspace {
		if i, had := slices.BinarySearch(w.sessions[was], s.ID); had {
			w.sessions[was] = slices.Delete(w.sessions[was], i, i+1)
		}
		if s.Workspace != "" {
			i, _ := slices.BinarySearch(w.sessions[s.Workspace], s.ID)
			w.sessions[s.Workspace] = slices.Insert(w.sessions[s.Workspace], i, s.ID)
		}
	}
	if s.Workspace == "" {
		delete(w.members, s.ID)
	} else {
		w.members[s.ID] = Member{s.Workspace, s.Trust, s.Mount}
	}
}

// Following is a journal store that also tells Workspaces when a session joins or leaves a workspace, or changes its
// trust.
type Following struct {
	journal.Store
	To *Workspaces
}

// Commit implements journal.Store.
func (f Following) Commit(ctx context.Context, c journal.Encoded) (journal.Committed, error) {
	done, err := f.Store.Commit(ctx, c)
	if err != nil || done.Duplicate != "" {
		return done, err
	}
	if c.Create != nil && c.Create.Workspace != "" || c.Set != nil && (c.Set.Workspace != nil || c.Set.Trust != nil) {
		f.To.stored(&done.Row.Session)
	}
	return done, nil
}

// Sessions is a store that lists sessions and removes them for good.
type Sessions interface {
	Rows(ctx context.Context, q journal.Query) (journal.Page, error)
	DeleteSession(ctx context.Context, id holdfast.SessionID) error
}

// Purging is a store of sessions that also tells Workspaces which sessions are removed for good, and so leave their
// workspaces.
type Purging struct {
	Sessions
	To *Workspaces
}

// DeleteSession implements Sessions.
func (p Purging) DeleteSession(ctx context.Context, id holdfast.SessionID) error {
	err := p.Sessions.DeleteSession(ctx, id)
	if err == nil {
		p.To.stored(&holdfast.Session{ID: id})
	}
	return err
}

// RuleStore is the store of the permission rules that answers and hooks added.
type RuleStore interface {
	// Rules returns the rules that are stored under a key.
	Rules(ctx context.Context, key string) ([]journal.Rule, error)
	// Changes returns a number that grows whenever the rules of any key may have changed.
	Changes() int64
}

// Ruled is a store of permission rules that returns the rules in the settings of workspaces as well as the stored rules.
type Ruled struct {
	Stored RuleStore
	Of     *Workspaces
}

// Rules implements RuleStore.
func (r Ruled) Rules(ctx context.Context, key string) ([]journal.Rule, error) {
	stored, err := r.Stored.Rules(ctx, key)
	slug, ok := strings.CutPrefix(key, journal.WorkspaceKey(""))
	if err != nil || !ok {
		return stored, err
	}
	r.Of.mu.RLock()
	set := r.Of.records[holdfast.Slug(slug)].Permissions
	r.Of.mu.RUnlock()
	var out []journal.Rule
	for _, behavior := range behaviors {
		for _, rule := range set[behavior] {
			out = append(out, journal.Rule{Scope: journal.SettingsScope, Key: key, Behavior: behavior, Rule: rule, Source: "settings"})
		}
	}
	return append(out, stored...), nil
}

// Changes implements RuleStore.
func (r Ruled) Changes() int64 { return r.Stored.Changes() + Changes(r.Of) }

// Networks returns a function that returns the network destinations which a workspace allows; nil if the workspace
// sets none.
func Networks(w *Workspaces) func(id holdfast.Slug) []string {
	return func(id holdfast.Slug) []string {
		w.mu.RLock()
		defer w.mu.RUnlock()
		return w.records[id].Network
	}
}

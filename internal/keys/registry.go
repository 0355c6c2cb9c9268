package keys

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
)

// Prefix is the beginning of every key's secret, so that people and scanners recognise a leaked one.
// A secret consists of the prefix, the key's id, an underscore and 256 random bits in base64.
const Prefix = "hfk_"

const (
	idBytes  = 8
	keyBytes = 32
	maxName  = 100
	// coarse is how old the stored time of a key's last use may become: to store it at each
	// request would turn every read into a commit.
	coarse = 5 * time.Minute
)

// Config configures a Registry. Store, Now, Rand and Log are required.
type Config struct {
	Store Store
	Now   func() time.Time
	Rand  io.Reader
	// Log gets a warning if the time of a key's last use could not be stored.
	Log *slog.Logger
	// KeepLast makes Revoke refuse to revoke the last valid key. It is set if other machines can
	// reach the server, which would then have only the owner token.
	KeepLast bool
}

// Registry has the API keys of one server in memory, which is enough because no other server writes
// to its store. Safe for concurrent use.
type Registry struct {
	cfg Config
	// change is locked while a key is created or revoked.
	change sync.Mutex
	mu     sync.RWMutex
	byID   map[holdfast.KeyID]*entry
}

// entry is a key in memory. The key is never changed in place.
type entry struct {
	key     atomic.Pointer[holdfast.Key]
	hash    [sha256.Size]byte
	used    atomic.Int64 // the time of the newest use, in Unix milliseconds
	written atomic.Int64 // the time of the newest use that the store has, in Unix milliseconds
}

// Open returns a registry with all keys in the store.
func Open(ctx context.Context, cfg Config) (*Registry, error) {
	records, err := cfg.Store.Keys(ctx)
	if err != nil {
		return nil, err
	}
	r := &Registry{cfg: cfg, byID: map[holdfast.KeyID]*entry{}}
	for _, rec := range records {
		if len(rec.Hash) != sha256.Size {
			return nil, holdfast.Errorf(holdfast.KindInternal, "keys", "the stored API key %s is damaged", rec.ID).
				WithHint("restore holdfast.db from a backup")
		}
		r.byID[rec.ID] = newEntry(rec)
	}
	return r, nil
}

func newEntry(rec Record) *entry {
	e := &entry{hash: [sha256.Size]byte(rec.Hash)}
	e.key.Store(&rec.Key)
	if rec.LastUsedAt != nil {
		e.used.Store(rec.LastUsedAt.UnixMilli())
		e.written.Store(rec.LastUsedAt.UnixMilli())
	}
	return e
}

// Create makes a key and returns it with its secret, which cannot be read again later.
func (r *Registry) Create(ctx context.Context, req holdfast.CreateKey) (holdfast.Key, string, error) {
	k := holdfast.Key{Name: req.Name, MaxTrust: holdfast.Untrusted, CreatedAt: r.cfg.Now().UTC().Truncate(time.Millisecond)}
	if err := fill(&k, req); err != nil {
		return holdfast.Key{}, "", err
	}
	var random [idBytes + keyBytes]byte
	if _, err := io.ReadFull(r.cfg.Rand, random[:]); err != nil {
		return holdfast.Key{}, "", holdfast.Errorf(holdfast.KindInternal, "key.create", "cannot read random bytes for a new key: %w", err)
	}
	k.ID = holdfast.KeyID(hex.EncodeToString(random[:idBytes]))
	secret := Prefix + string(k.ID) + "_" + base64.RawURLEncoding.EncodeToString(random[idBytes:])
	hash := sha256.Sum256([]byte(secret))
	rec := Record{Key: k, Hash: hash[:]}

	r.change.Lock()
	defer r.change.Unlock()
	if err := r.cfg.Store.PutKey(ctx, rec); err != nil {
		return holdfast.Key{}, "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[k.ID] = newEntry(rec)
	return k, secret, nil
}

// fill sets the scopes and the maximum trust of a new key from a request, or the defaults; invalid if
// the request is not valid.
func fill(k *holdfast.Key, req holdfast.CreateKey) error {
	if len(req.Name) > maxName || !utf8.ValidString(req.Name) || strings.ContainsRune(req.Name, 0) {
		return holdfast.Errorf(holdfast.KindInvalid, "key.create", "%s is not a valid name of an API key", holdfast.Quote(req.Name)).
			WithHint("use a name of at most %d bytes of valid text", maxName)
	}
	names := req.Scopes
	if len(names) == 0 {
		names = []string{string(holdfast.ScopeWrite)}
	}
	for _, n := range names {
		s, err := holdfast.Parse[holdfast.Scope](n)
		if err != nil {
			return err
		}
		if !slices.Contains(k.Scopes, s) {
			k.Scopes = append(k.Scopes, s)
		}
	}
	if req.MaxTrust != "" {
		t, err := holdfast.Parse[holdfast.Trust](req.MaxTrust)
		if err != nil {
			return err
		}
		k.MaxTrust = t
	}
	return nil
}

// Check returns the key that a secret belongs to and records its use; unauthenticated if no valid
// key has this secret. The comparison takes the same time for every secret, also for one with an
// unknown id.
func (r *Registry) Check(ctx context.Context, secret string) (holdfast.Key, error) {
	hash := sha256.Sum256([]byte(secret))
	e := r.find(idOf(secret))
	var nobody [sha256.Size]byte
	want := &nobody
	if e != nil {
		want = &e.hash
	}
	same := subtle.ConstantTimeCompare(hash[:], want[:]) == 1
	if e == nil || !same || e.key.Load().RevokedAt != nil {
		return holdfast.Key{}, holdfast.Errorf(holdfast.KindUnauthenticated, "request", "the token is not valid here")
	}
	r.touch(ctx, e)
	return *e.key.Load(), nil
}

// idOf returns the key id that a secret contains, empty if the secret is malformed.
func idOf(secret string) holdfast.KeyID {
	rest, ok := strings.CutPrefix(secret, Prefix)
	id, _, found := strings.Cut(rest, "_")
	if !ok || !found || len(id) != 2*idBytes {
		return ""
	}
	return holdfast.KeyID(id)
}

func (r *Registry) find(id holdfast.KeyID) *entry {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byID[id]
}

// touch sets the time of a key's last use in memory, and stores it if the stored time is too old.
func (r *Registry) touch(ctx context.Context, e *entry) {
	now := r.cfg.Now()
	e.used.Store(now.UnixMilli())
	last := e.written.Load()
	if now.Sub(time.UnixMilli(last)) < coarse || !e.written.CompareAndSwap(last, now.UnixMilli()) {
		return
	}
	// The key is valid whether or not its use can be stored.
	if err := r.cfg.Store.TouchKey(ctx, e.key.Load().ID, now); err != nil {
		r.cfg.Log.Warn("the last use of an API key was not stored", "key", e.key.Load().ID, "error", err)
	}
}

// Revoked reports whether a key was revoked or does not exist.
func (r *Registry) Revoked(id holdfast.KeyID) bool {
	e := r.find(id)
	return e == nil || e.key.Load().RevokedAt != nil
}

// Revoke revokes a key for good. Revoking it again changes nothing. It returns conflict for the last
// valid key if KeepLast is set.
func (r *Registry) Revoke(ctx context.Context, id holdfast.KeyID) (holdfast.Key, error) {
	r.change.Lock()
	defer r.change.Unlock()
	e := r.find(id)
	if e == nil {
		return holdfast.Key{}, holdfast.Errorf(holdfast.KindNotFound, "key.revoke", "there is no API key %s", holdfast.Quote(string(id))).
			WithHint("holdfast key list shows all keys")
	}
	if e.key.Load().RevokedAt == nil {
		if r.cfg.KeepLast && r.Active() == 1 {
			return holdfast.Key{}, holdfast.Errorf(holdfast.KindConflict, "key.revoke", "API key %s is the last valid key of a server that other machines can reach", id).
				WithHint("holdfast key create makes another key, then revoke this one; or start the server with --listen 127.0.0.1:4100")
		}
		now := r.cfg.Now().UTC().Truncate(time.Millisecond)
		if err := r.cfg.Store.RevokeKey(ctx, id, now); err != nil {
			return holdfast.Key{}, err
		}
		k := *e.key.Load()
		k.RevokedAt = &now
		e.key.Store(&k)
	}
	return e.shown(), nil
}

// shown returns the key as the API shows it, with the time of its last use.
func (e *entry) shown() holdfast.Key {
	k := *e.key.Load()
	if ms := e.used.Load(); ms != 0 {
		t := time.UnixMilli(ms).UTC()
		k.LastUsedAt = &t
	}
	return k
}

// List returns all keys including revoked ones, oldest first.
func (r *Registry) List(context.Context) ([]holdfast.Key, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]holdfast.Key, 0, len(r.byID))
	for _, e := range r.byID {
		out = append(out, e.shown())
	}
	slices.SortFunc(out, func(a, b holdfast.Key) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

// Active returns the number of keys that are not revoked.
func (r *Registry) Active() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := 0
	for _, e := range r.byID {
		if e.key.Load().RevokedAt == nil {
			n++
		}
	}
	return n
}

package keys

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// memory is a Store whose failures can be chosen.
type memory struct {
	mu      sync.Mutex
	list    []Record
	touches []time.Time
	fail    error
}

func (m *memory) PutKey(_ context.Context, r Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail == nil {
		m.list = append(m.list, r)
	}
	return m.fail
}

func (m *memory) Keys(context.Context) ([]Record, error) { return m.list, m.fail }

func (m *memory) RevokeKey(_ context.Context, id holdfast.KeyID, at time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.list {
		if m.list[i].ID == id && m.fail == nil {
			m.list[i].RevokedAt = &at
		}
	}
	return m.fail
}

func (m *memory) TouchKey(_ context.Context, _ holdfast.KeyID, at time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.touches = append(m.touches, at)
	return m.fail
}

func open(t *testing.T, m *memory, now func() time.Time) *Registry {
	t.Helper()
	r, err := Open(t.Context(), Config{Store: m, Now: now, Rand: rand.Reader, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSecretIsKeptNowhere(t *testing.T) {
	m := &memory{}
	r := open(t, m, time.Now)
	k, secret, err := r.Create(t.Context(), holdfast.CreateKey{Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	random := secret[len(Prefix)+len(k.ID)+1:]
	list, err := r.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for what, v := range map[string]any{"the store": m.list, "the list": list, "the registry": r.byID[k.ID].shown()} {
		if s := fmt.Sprintf("%+v %s", v, m.list[0].Hash); strings.Contains(s, random) || strings.Contains(s, secret) {
			t.Errorf("%s holds the secret: %s", what, s)
		}
	}
	// Another server on the same data takes it, and nothing but it.
	r = open(t, m, time.Now)
	if got, err := r.Check(t.Context(), secret); err != nil || got.ID != k.ID {
		t.Errorf("after a restart: %+v %v", got, err)
	}
	for _, s := range []string{"", secret[:len(secret)-1], secret + " ", strings.ToLower(secret), Prefix + string(k.ID) + "_"} {
		if _, err := r.Check(t.Context(), s); !holdfast.IsKind(err, holdfast.KindUnauthenticated) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestRevocationHoldsAtOnceAndAfterARestart(t *testing.T) {
	m := &memory{}
	r := open(t, m, time.Now)
	k, secret, err := r.Create(t.Context(), holdfast.CreateKey{})
	if err != nil {
		t.Fatal(err)
	}
	m.fail = holdfast.Errorf(holdfast.KindUnavailable, "store", "read-only")
	if _, err := r.Revoke(t.Context(), k.ID); err == nil || r.Revoked(k.ID) || r.Active() != 1 {
		t.Errorf("a revocation that is not durable: %v", err)
	}
	m.fail = nil
	first, err := r.Revoke(t.Context(), k.ID)
	if err != nil || first.RevokedAt == nil {
		t.Fatalf("%+v %v", first, err)
	}
	again, err := r.Revoke(t.Context(), k.ID)
	if err != nil || !again.RevokedAt.Equal(*first.RevokedAt) {
		t.Errorf("%+v %v", again, err)
	}
	for _, r := range []*Registry{r, open(t, m, time.Now)} {
		if _, err := r.Check(t.Context(), secret); !holdfast.IsKind(err, holdfast.KindUnauthenticated) || !r.Revoked(k.ID) || r.Active() != 0 {
			t.Errorf("it still opens: %v", err)
		}
	}
	if _, err := r.Revoke(t.Context(), "0000000000000000"); !holdfast.IsKind(err, holdfast.KindNotFound) || holdfast.HintOf(err) == "" {
		t.Error(err)
	}
	if !r.Revoked("0000000000000000") {
		t.Error("an unknown key is not revoked")
	}
}

// TestTheLastKeyStays where other machines are let in, until there is another.
func TestTheLastKeyStays(t *testing.T) {
	m := &memory{}
	r, err := Open(t.Context(), Config{Store: m, Now: time.Now, Rand: rand.Reader, Log: slog.New(slog.DiscardHandler), KeepLast: true})
	if err != nil {
		t.Fatal(err)
	}
	var made [2]holdfast.Key
	for i := range made {
		if made[i], _, err = r.Create(t.Context(), holdfast.CreateKey{}); err != nil {
			t.Fatal(err)
		}
	}
	// Two at once: one of them is the last.
	errs := make(chan error, len(made))
	for _, k := range made {
		go func() { _, err := r.Revoke(t.Context(), k.ID); errs <- err }()
	}
	refused := 0
	for range made {
		if err := <-errs; err != nil {
			if refused++; !holdfast.IsKind(err, holdfast.KindConflict) || holdfast.HintOf(err) == "" {
				t.Error(err)
			}
		}
	}
	if refused != 1 || r.Active() != 1 {
		t.Errorf("%d refused, %d active", refused, r.Active())
	}
	for _, k := range made { // the one that is gone stays no error
		if _, err := r.Revoke(t.Context(), k.ID); (err == nil) != r.Revoked(k.ID) {
			t.Error(k.ID, err)
		}
	}
}

func TestLastUseIsCoarse(t *testing.T) {
	m := &memory{}
	now := time.UnixMilli(1_700_000_000_000)
	r := open(t, m, func() time.Time { return now })
	k, secret, err := r.Create(t.Context(), holdfast.CreateKey{})
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		if _, err := r.Check(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		check()
		now = now.Add(time.Second)
	}
	if len(m.touches) != 1 {
		t.Errorf("%d writes for 100 uses within %s", len(m.touches), coarse)
	}
	now = now.Add(coarse)
	m.fail = holdfast.Errorf(holdfast.KindUnavailable, "store", "read-only")
	check() // the key is good all the same
	if len(m.touches) != 2 {
		t.Errorf("%d writes", len(m.touches))
	}
	list, err := r.List(t.Context())
	if err != nil || list[0].ID != k.ID || !list[0].LastUsedAt.Equal(now) {
		t.Errorf("%+v %v", list, err)
	}
}

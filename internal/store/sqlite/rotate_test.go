package sqlite

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/seal"
	"github.com/holdfast-run/holdfast/internal/secrets"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/schema"
	"github.com/holdfast-run/holdfast/internal/workspaces"
)

// openVault returns the credential store over a database, with the root keys that lie beside it.
func openVault(s *opened) (*secrets.Vault, error) {
	ring, err := seal.OpenKeyring(filepath.Join(filepath.Dir(s.path), "secrets.key"), nil, rand.Reader)
	if err != nil {
		return nil, err
	}
	return secrets.New(s.all.Secrets, ring, time.Now), nil
}

// environed creates a session whose environment is sealed, as the engine does.
func environed(ctx context.Context, s *opened, v *secrets.Vault, n int) error {
	defer v.Hold()()
	id := testID(n)
	sealed, err := v.SealEnvironment(id, []byte(environmentOf(n)))
	if err != nil {
		return err
	}
	c := creation(id)
	c.Create.Given.SealedEnv = sealed
	_, err = s.Commit(ctx, c)
	return err
}

// environmentOf is long enough that a page of environments takes several pages of the database.
func environmentOf(n int) string { return strings.Repeat(fmt.Sprintf("environment of %d;", n), 200) }

// childRotates rotates for ever, while it creates sessions with environments. It prints "made N" for
// each that was acknowledged, and "rotated" for each rotation.
func childRotates(ctx context.Context, s *opened) {
	v, err := openVault(s)
	if err != nil {
		childFails(err)
	}
	if _, err := v.Set(ctx, "kept", []byte("a value")); err != nil {
		childFails(err)
	}
	go func() {
		for n := s.sessions(ctx) + 1; n < 200; n++ {
			if err := environed(ctx, s, v, n); err != nil {
				childFails(err)
			}
			fmt.Println("made", n)
		}
	}()
	for {
		if _, err := v.Rotate(ctx); err != nil {
			childFails(err)
		}
		fmt.Println("rotated")
	}
}

func (s *opened) sessions(ctx context.Context) int {
	c, err := s.all.Counts(ctx)
	if err != nil {
		childFails(err)
	}
	return int(c.Sessions[holdfast.StatusActive])
}

// allOpen checks that every sealed value opens with the root keys on disk.
func allOpen(t *testing.T, s *opened, made int) {
	t.Helper()
	v, err := openVault(s)
	if err != nil {
		t.Fatal(err)
	}
	if value, err := v.Value(t.Context(), "kept"); err != nil || string(value) != "a value" {
		t.Errorf("the secret is %q: %v", value, err)
	}
	for n := 1; n <= made; n++ {
		row, err := s.Row(t.Context(), testID(n))
		if err != nil {
			t.Fatal(err)
		}
		if env, err := v.OpenEnvironment(row.ID, row.Given.SealedEnv); err != nil || string(env) != environmentOf(n) {
			t.Errorf("the environment of session %d is %.20q: %v", n, env, err)
		}
	}
}

// TestRotationsThatAreKilledLoseNothing kills a process that rotates the root key, again and again on
// the same data. Every value opens with the keys on disk, and the next rotation leaves one key.
func TestRotationsThatAreKilledLoseNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := mathrand.New(mathrand.NewPCG(seed, 0))
	made := 0
	for round := range 8 {
		p := startChild(t, "rotate", path)
		after, within := 1+rnd.IntN(20), time.Duration(rnd.IntN(5_000_000))
		rotations := 0
		for line := p.line(); line != ""; line = p.line() {
			_, _ = fmt.Sscanf(line, "made %d", &made)
			if line != "rotated" {
				continue
			}
			if rotations++; rotations == after {
				time.AfterFunc(within, func() { _ = p.Process.Kill() })
			}
		}
		_ = p.Wait()
		if p.err.Len() > 0 {
			t.Fatalf("round %d: the child said %s", round, &p.err)
		}
		s := openAt(t, Config{Path: path})
		allOpen(t, s, made)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := openAt(t, Config{Path: path})
	v, err := openVault(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys, err := os.ReadFile(filepath.Join(filepath.Dir(path), "secrets.key"))
	if err != nil || strings.Count(string(keys), "\n") != 1 {
		t.Errorf("%d root keys are left: %v", strings.Count(string(keys), "\n"), err)
	}
	allOpen(t, s, made)
}

// TestRewrappedEnvironmentsReplaceOnlyWhatWasRead: an environment that is no longer the one that was
// wrapped stays.
func TestRewrappedEnvironmentsReplaceOnlyWhatWasRead(t *testing.T) {
	s, ctx := openNew(t, Config{}), t.Context()
	for n, env := range [][]byte{[]byte("one"), nil, []byte("three")} {
		c := creation(testID(n + 1))
		c.Create.Given.SealedEnv = env
		if _, err := s.Commit(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	for _, slug := range []holdfast.Slug{"a", "b", "none"} {
		r := workspaces.Record{Workspace: holdfast.Workspace{ID: slug}}
		if slug != "none" {
			r.Env, r.Sealed, r.Reseal = map[string]string{"X": "***"}, []byte(slug), true
		}
		if _, err := s.all.Workspaces.AddWorkspace(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	err := s.all.Secrets.RewrapEnvironments(ctx, []secrets.Environment{
		{Workspace: "a", Sealed: []byte("new a"), Was: []byte("a")},
		{Workspace: "b", Sealed: []byte("new b"), Was: []byte("another")},
		{Session: testID(1), Sealed: []byte("new one"), Was: []byte("one")},
		{Session: testID(2), Sealed: []byte("new two"), Was: nil},
		{Session: testID(3), Sealed: []byte("new three"), Was: []byte("another")},
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.all.Secrets.Environments(ctx, secrets.Environment{})
	if err != nil || len(list) != 2 || string(list[0].Sealed) != "new one" || string(list[1].Sealed) != "three" || list[1].Session != testID(3) {
		t.Errorf("%q %v", list, err)
	}
	list, err = s.all.Secrets.Environments(ctx, list[1])
	if err != nil || len(list) != 2 || list[0].Workspace != "a" || string(list[0].Sealed) != "new a" || string(list[1].Sealed) != "b" {
		t.Fatalf("of workspaces: %q %v", list, err)
	}
	if list, err = s.all.Secrets.Environments(ctx, list[1]); err != nil || len(list) != 0 {
		t.Errorf("after the last: %q %v", list, err)
	}
	// A change of the workspace leaves what was wrapped meanwhile.
	r, err := s.all.Workspaces.Workspace(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	r.Sealed, r.Title = []byte("a"), "x"
	if _, err := s.all.Workspaces.ChangeWorkspace(ctx, r); err != nil {
		t.Fatal(err)
	}
	if r, err = s.all.Workspaces.Workspace(ctx, "a"); err != nil || string(r.Sealed) != "new a" || r.Title != "x" || r.Env["X"] != "***" {
		t.Errorf("after a change: %+v, %v", r, err)
	}
	if n, _, err := s.all.Sealed(ctx); err != nil || n != 4 {
		t.Errorf("%d sealed values, %v", n, err)
	}
}

// TestEnvironmentsOfTheOldSchemaAreRefused: before schema 19 environments were sealed with another key.
func TestEnvironmentsOfTheOldSchemaAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	s := openAt(t, Config{Path: path})
	c := creation(testID(1))
	c.Create.Given.SealedEnv = []byte("\x01sealed")
	if _, err := s.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := plain(t, path)
	p, err := schema.Of(db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.DownTo(t.Context(), 18); err != nil {
		t.Fatal(err)
	}
	_, err = open(t.Context(), Config{Path: path})
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), string(testID(1))) ||
		!strings.Contains(err.Error(), "secret.key") || !strings.Contains(holdfast.HintOf(err), "holdfast session end "+string(testID(1))) {
		t.Errorf("%v, hint %q", err, holdfast.HintOf(err))
	}
	if have, _, err := p.GetVersions(t.Context()); err != nil || have != 18 {
		t.Errorf("the refused database has schema %d: %v", have, err)
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE sessions SET status = 'ended'`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, Config{Path: path})
	if row, err := s.Row(t.Context(), testID(1)); err != nil || row.Given.SealedEnv != nil {
		t.Errorf("%q %v", row.Given.SealedEnv, err)
	}
}

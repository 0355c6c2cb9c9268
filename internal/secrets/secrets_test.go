package secrets_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/seal"
	"github.com/holdfast-run/holdfast/internal/secrets"
)

// shelf keeps records and environments in memory. If cut is above zero, the call with that number
// and all later ones fail, as if the server had died there.
type shelf struct {
	kept  []secrets.Record
	envs  []secrets.Environment
	calls int
	cut   int
}

var errCut = errors.New("cut off")

func (s *shelf) call() error {
	if s.calls++; s.cut > 0 && s.calls >= s.cut {
		return errCut
	}
	return nil
}

func (s *shelf) at(name holdfast.SecretName) int {
	return slices.IndexFunc(s.kept, func(r secrets.Record) bool { return r.Name == name })
}

func (s *shelf) Secrets(context.Context) ([]secrets.Record, error) {
	return slices.Clone(s.kept), s.call()
}

func (s *shelf) Secret(_ context.Context, name holdfast.SecretName) (secrets.Record, error) {
	if i := s.at(name); i >= 0 {
		return s.kept[i], nil
	}
	return secrets.Record{}, holdfast.Errorf(holdfast.KindNotFound, "shelf", "no %s", name)
}

func (s *shelf) PutSecret(_ context.Context, r secrets.Record) error {
	if i := s.at(r.Name); i >= 0 {
		r.CreatedAt = s.kept[i].CreatedAt
		s.kept[i] = r
		return nil
	}
	s.kept = append(s.kept, r)
	return nil
}

func (s *shelf) RemoveSecret(ctx context.Context, name holdfast.SecretName) error {
	if _, err := s.Secret(ctx, name); err != nil {
		return err
	}
	s.kept = slices.Delete(s.kept, s.at(name), s.at(name)+1)
	return nil
}

func (s *shelf) RewrapSecrets(_ context.Context, wrapped []secrets.Rewrapped) error {
	if err := s.call(); err != nil {
		return err
	}
	for _, w := range wrapped {
		s.kept[s.at(w.Name)] = w.Record
	}
	return nil
}

// Environments returns one at a time, so that a rotation takes several steps.
func (s *shelf) Environments(_ context.Context, after secrets.Environment) ([]secrets.Environment, error) {
	i, found := slices.BinarySearchFunc(s.envs, after, func(e, to secrets.Environment) int {
		return cmp.Or(cmp.Compare(e.Workspace, to.Workspace), cmp.Compare(e.Session, to.Session))
	})
	if found {
		i++
	}
	return slices.Clone(s.envs[i:min(i+1, len(s.envs))]), s.call()
}

func (s *shelf) RewrapEnvironments(_ context.Context, wrapped []secrets.Environment) error {
	if err := s.call(); err != nil {
		return err
	}
	for _, w := range wrapped {
		i := slices.IndexFunc(s.envs, func(e secrets.Environment) bool {
			return e.Session == w.Session && e.Workspace == w.Workspace && bytes.Equal(e.Sealed, w.Was)
		})
		s.envs[i].Sealed = w.Sealed
	}
	return nil
}

func vault(t *testing.T, s *shelf, path string) *secrets.Vault {
	t.Helper()
	ring, err := seal.OpenKeyring(path, nil, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return secrets.New(s, ring, time.Now)
}

func TestValuesComeInAndAreUsed(t *testing.T) {
	s, ctx := &shelf{}, t.Context()
	v := vault(t, s, filepath.Join(t.TempDir(), "keys"))
	if _, err := v.Set(ctx, "a", []byte("one")); err != nil {
		t.Fatal(err)
	}
	set, err := v.Set(ctx, "a", []byte("two"))
	if err != nil || set.Name != "a" || set.KeyID == "" {
		t.Errorf("%+v %v", set, err)
	}
	if value, err := v.Value(ctx, "a"); string(value) != "two" || err != nil {
		t.Errorf("%q %v", value, err)
	}
	// The envelope of one name does not open as another's.
	moved := s.kept[0]
	moved.Name = "b"
	s.kept = append(s.kept, moved)
	if _, err := v.Value(ctx, "b"); !holdfast.IsKind(err, holdfast.KindInternal) {
		t.Errorf("%v", err)
	}
	if _, err := v.Rotate(ctx); !holdfast.IsKind(err, holdfast.KindInternal) {
		t.Errorf("what cannot be opened lost its key: %v", err)
	}
	if err := v.Remove(ctx, "b"); err != nil {
		t.Error(err)
	}
	if err := v.Remove(ctx, "b"); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Error(err)
	}
	for _, value := range []string{"", strings.Repeat("x", secrets.MaxValue+1)} {
		if _, err := v.Set(ctx, "a", []byte(value)); err == nil {
			t.Errorf("%d bytes are a value", len(value))
		}
	}
	for _, name := range []string{"", "A", "1a", "a b", "a/b", "-a", strings.Repeat("a", 65), "sk-ant-API03-X"} {
		if _, err := holdfast.Parse[holdfast.SecretName](name); !holdfast.IsKind(err, holdfast.KindInvalid) || name != "" && len(name) > 3 && strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A rotation that is cut off at any step loses nothing, and the next one finishes it.
func TestARotationMayBeCutOff(t *testing.T) {
	finished := false
	for cut := 1; !finished; cut++ {
		s, ctx, path := &shelf{}, t.Context(), filepath.Join(t.TempDir(), "keys")
		v := vault(t, s, path)
		for _, name := range []holdfast.SecretName{"a", "b"} {
			if _, err := v.Set(ctx, name, []byte("value of "+name)); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []holdfast.SessionID{"1", "2"} {
			sealed, err := v.SealEnvironment(id, []byte("environment of "+id))
			if err != nil {
				t.Fatal(err)
			}
			s.envs = append(s.envs, secrets.Environment{Session: id, Sealed: sealed})
		}
		sealed, err := v.SealWorkspace("site", []byte("environment of site"))
		if err != nil {
			t.Fatal(err)
		}
		s.envs = append(s.envs, secrets.Environment{Workspace: "site", Sealed: sealed})
		id := s.kept[0].KeyID
		s.calls, s.cut = 0, cut
		_, err = v.Rotate(ctx)
		finished = err == nil
		s.cut = 0
		allOpen(t, s, path)
		v = vault(t, s, path)
		list, err := v.Rotate(ctx)
		if err != nil || len(list) != 2 || list[0].KeyID == id || list[0].KeyID != list[1].KeyID {
			t.Errorf("cut at %d: %+v %v", cut, list, err)
		}
		allOpen(t, s, path)
		if keys, err := os.ReadFile(path); err != nil || strings.Count(string(keys), "\n") != 1 {
			t.Errorf("cut at %d: %d root keys are left: %v", cut, strings.Count(string(keys), "\n"), err)
		}
		if cut > 50 {
			t.Fatal("the rotation never ends")
		}
	}
}

// allOpen checks that every value opens with the keys on disk.
func allOpen(t *testing.T, s *shelf, path string) {
	t.Helper()
	v := vault(t, s, path)
	for _, r := range s.kept {
		if value, err := v.Value(t.Context(), r.Name); string(value) != "value of "+string(r.Name) || err != nil {
			t.Errorf("%s is %q: %v", r.Name, value, err)
		}
	}
	for _, e := range s.envs {
		if e.Workspace != "" {
			if env, err := v.OpenWorkspace(e.Workspace, e.Sealed); string(env) != "environment of "+string(e.Workspace) || err != nil {
				t.Errorf("workspace %s has %q: %v", e.Workspace, env, err)
			}
			continue
		}
		if env, err := v.OpenEnvironment(e.Session, e.Sealed); string(env) != "environment of "+string(e.Session) || err != nil {
			t.Errorf("session %s has %q: %v", e.Session, env, err)
		}
	}
}

// An environment opens for its session or workspace only; one that does not open keeps its key.
func TestEnvironmentsAreBoundToTheirSession(t *testing.T) {
	s, path := &shelf{}, filepath.Join(t.TempDir(), "keys")
	v := vault(t, s, path)
	sealed, err := v.SealEnvironment("1", []byte("environment of 1"))
	if err != nil {
		t.Fatal(err)
	}
	if env, err := v.OpenEnvironment("2", sealed); !holdfast.IsKind(err, holdfast.KindInternal) || holdfast.HintOf(err) == "" {
		t.Errorf("another session reads %q: %v", env, err)
	}
	if env, err := v.OpenWorkspace("1", sealed); !holdfast.IsKind(err, holdfast.KindInternal) || holdfast.HintOf(err) == "" {
		t.Errorf("a workspace of the same name reads %q: %v", env, err)
	}
	s.envs = []secrets.Environment{{Session: "2", Sealed: sealed}}
	if _, err := v.Rotate(t.Context()); !holdfast.IsKind(err, holdfast.KindInternal) {
		t.Errorf("an environment that cannot be opened lost its key: %v", err)
	}
	s.envs[0].Session = "1"
	allOpen(t, s, path)
}

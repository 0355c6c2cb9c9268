package secrets_test

import (
	"context"
	"crypto/rand"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/seal"
	"github.com/holdfast-run/holdfast/internal/secrets"
)

// shelf keeps records in memory; broken fails what wraps anew.
type shelf struct {
	kept   []secrets.Record
	broken error
}

func (s *shelf) at(name holdfast.SecretName) int {
	return slices.IndexFunc(s.kept, func(r secrets.Record) bool { return r.Name == name })
}

func (s *shelf) Secrets(context.Context) ([]secrets.Record, error) { return slices.Clone(s.kept), nil }

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
	if s.broken != nil {
		return s.broken
	}
	for _, w := range wrapped {
		s.kept[s.at(w.Name)] = w.Record
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
		if _, err := holdfast.ParseSecretName(name); !holdfast.IsKind(err, holdfast.KindInvalid) || name != "" && len(name) > 3 && strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A rotation that is cut off is taken up by the next; nothing is lost between.
func TestARotationMayBeCutOff(t *testing.T) {
	s, ctx, path := &shelf{}, t.Context(), filepath.Join(t.TempDir(), "keys")
	v := vault(t, s, path)
	for _, name := range []holdfast.SecretName{"a", "b"} {
		if _, err := v.Set(ctx, name, []byte("value of "+name)); err != nil {
			t.Fatal(err)
		}
	}
	id := s.kept[0].KeyID
	s.broken = errors.New("full")
	if _, err := v.Rotate(ctx); err == nil {
		t.Fatal("it did not fail")
	}
	s.broken = nil
	v = vault(t, s, path)
	list, err := v.Rotate(ctx)
	if err != nil || len(list) != 2 || list[0].KeyID == id || list[0].KeyID != list[1].KeyID {
		t.Errorf("%+v %v", list, err)
	}
	v = vault(t, s, path)
	for _, name := range []holdfast.SecretName{"a", "b"} {
		if value, err := v.Value(ctx, name); string(value) != "value of "+string(name) || err != nil {
			t.Errorf("%q %v", value, err)
		}
	}
}

package sqlite

import (
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/secrets"
)

func record(name holdfast.SecretName, sealed string, at int64) secrets.Record {
	when := time.UnixMilli(at).UTC()
	return secrets.Record{Secret: holdfast.Secret{Name: name, KeyID: "k", CreatedAt: when, UpdatedAt: when}, Sealed: []byte(sealed)}
}

func TestSecretsAreKept(t *testing.T) {
	s, ctx := openNew(t, Config{}), t.Context()
	for _, r := range []secrets.Record{record("b", "1", 1000), record("a", "2", 2000), record("b", "3", 3000)} {
		if err := s.all.Secrets.PutSecret(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.all.Secrets.Secrets(ctx)
	if err != nil || len(list) != 2 || list[0].Name != "a" || string(list[1].Sealed) != "3" ||
		list[1].CreatedAt.UnixMilli() != 1000 || list[1].UpdatedAt.UnixMilli() != 3000 {
		t.Errorf("%+v %v", list, err)
	}
	wrapped := func(was string) []secrets.Rewrapped {
		a, b := record("a", "new a", 0), record("b", "new b", 0)
		return []secrets.Rewrapped{{Record: a, Was: []byte("2")}, {Record: b, Was: []byte(was)}}
	}
	// All or none.
	if err := s.all.Secrets.RewrapSecrets(ctx, wrapped("what was there before")); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Error(err)
	}
	if r, err := s.all.Secrets.Secret(ctx, "a"); err != nil || string(r.Sealed) != "2" {
		t.Errorf("%+v %v", r, err)
	}
	if err := s.all.Secrets.RewrapSecrets(ctx, wrapped("3")); err != nil {
		t.Error(err)
	}
	if r, err := s.all.Secrets.Secret(ctx, "b"); err != nil || string(r.Sealed) != "new b" || r.CreatedAt.UnixMilli() != 1000 {
		t.Errorf("%+v %v", r, err)
	}
	if err := s.all.Secrets.RemoveSecret(ctx, "a"); err != nil {
		t.Error(err)
	}
	if err := s.all.Secrets.RemoveSecret(ctx, "a"); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Error(err)
	}
	if _, err := s.all.Secrets.Secret(ctx, "a"); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Error(err)
	}
}

package storetest

import (
	"bytes"
	"reflect"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/keys"
)

func apiKey(id holdfast.KeyID, at int64) keys.Record {
	return keys.Record{
		Key: holdfast.Key{
			ID: id, Name: "a name", Scopes: []holdfast.Scope{holdfast.ScopeRead, holdfast.ScopeAdmin},
			MaxTrust: holdfast.Untrusted, CreatedAt: time.UnixMilli(at).UTC(),
		},
		Hash: bytes.Repeat([]byte{byte(at)}, 32),
	}
}

func (e *env) apiKeys() []keys.Record {
	e.Helper()
	list, err := e.Store.Keys(e.ctx)
	e.ok(err)
	return list
}

var apiKeyCases = []testCase{
	{"lists keys as they were put, oldest first, also after a restart", func(e *env) {
		equal(e, "keys", len(e.apiKeys()), 0)
		old, young := apiKey("00000000000000bb", 1000), apiKey("00000000000000aa", 2000)
		e.ok(e.Store.PutKey(e.ctx, young))
		e.ok(e.Store.PutKey(e.ctx, old))
		for range 2 {
			if got := e.apiKeys(); !reflect.DeepEqual(got, []keys.Record{old, young}) {
				e.Fatalf("keys %+v", got)
			}
			e.Store = e.Reopen(e.T)
		}
	}},
	{"refuses a second key of the same id and what is no key", func(e *env) {
		e.ok(e.Store.PutKey(e.ctx, apiKey("00000000000000aa", 1000)))
		e.isKind(e.Store.PutKey(e.ctx, apiKey("00000000000000aa", 2000)), holdfast.KindConflict, "00000000000000aa")
		e.isKind(e.Store.PutKey(e.ctx, apiKey("x", 1000)), holdfast.KindInvalid, `"x"`)
		bad := apiKey("00000000000000ab", 1000)
		bad.Name = "a\x00b"
		e.isKind(e.Store.PutKey(e.ctx, bad), holdfast.KindInvalid)
		equal(e, "keys", len(e.apiKeys()), 1)
		equal(e, "hash", e.apiKeys()[0].Hash[0], apiKey("", 1000).Hash[0])
	}},
	{"keeps the first revocation and the newest use", func(e *env) {
		k := apiKey("00000000000000aa", 1000)
		e.ok(e.Store.PutKey(e.ctx, k))
		for _, ms := range []int64{5000, 4000, 6000} {
			e.ok(e.Store.TouchKey(e.ctx, k.ID, time.UnixMilli(ms)))
			e.ok(e.Store.RevokeKey(e.ctx, k.ID, time.UnixMilli(ms+1)))
		}
		e.Store = e.Reopen(e.T)
		got := e.apiKeys()[0]
		equal(e, "revoked", got.RevokedAt.UnixMilli(), 5001)
		equal(e, "used", got.LastUsedAt.UnixMilli(), 6000)
		for _, err := range []error{
			e.Store.TouchKey(e.ctx, "00000000000000ff", time.UnixMilli(1)), e.Store.RevokeKey(e.ctx, "00000000000000ff", time.UnixMilli(1)),
		} {
			e.isKind(err, holdfast.KindNotFound, "00000000000000ff")
		}
	}},
	{"HZ3: a server whose epoch is over makes and revokes no key", func(e *env) {
		e.ok(e.Store.PutKey(e.ctx, apiKey("00000000000000aa", 1000)))
		e.Usurp(e.T)
		e.isKind(e.Store.RevokeKey(e.ctx, "00000000000000aa", time.UnixMilli(1)), holdfast.KindConflict)
		e.isKind(e.Store.PutKey(e.ctx, apiKey("00000000000000ab", 1000)), holdfast.KindConflict)
		got := e.apiKeys()
		if len(got) != 1 || got[0].RevokedAt != nil {
			e.Fatalf("keys %+v", got)
		}
	}},
}

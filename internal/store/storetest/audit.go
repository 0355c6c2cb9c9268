package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// chained is a record of the audit chain, decoded from its export.
type chained struct {
	N       int64              `json:"n"`
	Type    holdfast.EventType `json:"type"`
	Session holdfast.SessionID `json:"session_id"`
	Seq     int64              `json:"seq"`
	Turn    holdfast.TurnID    `json:"turn_id"`
	By      string             `json:"by"`
	Time    time.Time          `json:"time"`
	Data    json.RawMessage    `json:"data"`
}

// chain exports the whole audit chain, verifies it and returns its records.
func (e *env) chain() []chained {
	e.Helper()
	key, err := audit.NewKey(make([]byte, 32))
	e.ok(err)
	log := audit.NewLog(audit.Config{Store: e.Store, Key: key, Now: time.Now, Warn: func(err error) { e.Error(err) }})
	write, err := log.Export(e.ctx, 0)
	e.ok(err)
	var b bytes.Buffer
	e.ok(write(e.ctx, &b))
	if _, err := audit.Verify(bytes.NewReader(b.Bytes()), audit.Options{}); err != nil {
		e.Fatalf("the chain does not verify: %v\n%s", err, b.Bytes())
	}
	var out []chained
	for line := range bytes.Lines(b.Bytes()) {
		var r chained
		e.ok(json.Unmarshal(line, &r))
		if r.N > 0 {
			out = append(out, r)
		}
	}
	return out
}

// verdict returns a change with n events that allow tool calls, each followed by an event of a type
// that the audit chain does not record.
func verdict(id holdfast.SessionID, n int) journal.Change {
	c := journal.NewChange(id)
	for i := range n {
		c.Events = append(
			c.Events,
			journal.Draft{Type: holdfast.EventToolAllowed, Turn: "t", Data: holdfast.ToolDecision{ToolUseID: num(i), By: "mode"}},
			journal.Draft{Type: holdfast.EventToolStarted, Turn: "t"},
		)
	}
	return c
}

var auditCases = []testCase{
	{"records verdicts as they were committed, and nothing else", func(e *env) {
		equal(e, "records of an empty store", len(e.chain()), 0)
		a, b := e.newSession(), e.newSession()
		e.ok2(e.Store.Commit(journal.As(e.ctx, "key 1f"), encode(e.T, verdict(a, 2))))
		e.commit(verdict(b, 1))
		e.Store = e.Reopen(e.T)
		e.commit(verdict(a, 1))
		got := e.chain()
		equal(e, "records", len(got), 4)
		for i, want := range []chained{
			{Session: a, Seq: 2, By: "key 1f"}, {Session: a, Seq: 4, By: "key 1f"}, {Session: b, Seq: 2}, {Session: a, Seq: 6},
		} {
			r := got[i]
			ev := e.log(r.Session)[r.Seq-1]
			if r.N != int64(i)+1 || r.Session != want.Session || r.Seq != want.Seq || r.By != want.By || r.Turn != "t" ||
				r.Type != ev.Type || !r.Time.Equal(ev.Time) || string(r.Data) != string(ev.Data) {
				e.Fatalf("record %d is %+v, event %+v", i+1, r, ev)
			}
		}
	}},
	{"a refused change leaves no record", func(e *env) {
		id := e.newSession()
		for _, c := range []journal.Change{
			{Session: id, LastSeq: 99, Events: verdict(id, 1).Events},
			{Session: holdfast.SessionID(e.newID()), LastSeq: -1, Events: verdict(id, 1).Events},
		} {
			if _, err := e.try(c); err == nil {
				e.Fatal("no error")
			}
		}
		key := journal.Key{Scope: "turn:" + string(id), Value: "k", Hash: "h", Ref: "r"}
		for range 2 {
			c := verdict(id, 1)
			c.Key = &key
			e.commit(c)
		}
		equal(e, "records", len(e.chain()), 1)
	}},
	{"a record outlives its session", func(e *env) {
		id := e.newSession()
		e.commit(verdict(id, 1))
		e.move(id, holdfast.StatusEnded)
		e.ok(e.Store.DeleteSession(e.ctx, id))
		if got := e.chain(); len(got) != 1 || got[0].Session != id {
			e.Fatalf("records %+v", got)
		}
	}},
	{"a key that is made or revoked is a record, once", func(e *env) {
		e.ok(e.Store.PutKey(journal.As(e.ctx, "owner"), apiKey("00000000000000aa", 1000)))
		if err := e.Store.PutKey(e.ctx, apiKey("00000000000000aa", 1000)); err == nil {
			e.Fatal("no error")
		}
		e.ok(e.Store.TouchKey(e.ctx, "00000000000000aa", time.UnixMilli(1)))
		for range 2 {
			e.ok(e.Store.RevokeKey(e.ctx, "00000000000000aa", time.UnixMilli(1)))
		}
		got := e.chain()
		equal(e, "records", len(got), 2)
		equal(e, "made", got[0].Type, audit.KeyCreated)
		equal(e, "by", got[0].By, "owner")
		equal(e, "data", string(got[0].Data), `{"id":"00000000000000aa","name":"a name","scopes":["read","admin"],"max_trust":"untrusted"}`)
		equal(e, "gone", got[1].Type, audit.KeyRevoked)
		equal(e, "data", string(got[1].Data), `{"id":"00000000000000aa"}`)
	}},
	{"keeps the first head of a number, and takes no number twice", func(e *env) {
		e.commit(verdict(e.newSession(), 3))
		tip := e.Store.AuditTip()
		equal(e, "tip", tip.N, 3)
		at := time.UnixMilli(1_700_000_000_123).UTC()
		for i := range 2 {
			e.ok(e.Store.PutAuditHead(e.ctx, audit.Head{Link: tip, Time: at, Signature: []byte{byte(i)}}))
		}
		// A head whose number is above that of the last record: the records up to it were cut off.
		lost := audit.Link{N: 9, Hash: audit.Hash{7}}
		e.ok(e.Store.PutAuditHead(e.ctx, audit.Head{Link: lost, Time: at, Signature: []byte{9}}))
		last, head, err := e.Store.AuditLast(e.ctx)
		e.ok(err)
		equal(e, "last", last.Link, tip)
		equal(e, "newest head", head.Link, lost)
		heads, err := e.Store.AuditHeads(e.ctx, 0, 9, 10)
		e.ok(err)
		equal(e, "heads", len(heads), 2)
		equal(e, "signature", heads[0].Signature[0], 0)
		equal(e, "time", heads[0].Time, at)
		e.Store = e.Reopen(e.T)
		equal(e, "tip after a start", e.Store.AuditTip(), lost)
		e.commit(verdict(e.newSession(), 1))
		next, err := e.Store.AuditRecords(e.ctx, 3, 100, 10)
		e.ok(err)
		if len(next) != 1 || next[0].N != 10 || !bytes.HasPrefix(next[0].Body, fmt.Appendf(nil, `{"n":10,"prev":"%s"`, lost.Hash)) {
			e.Fatalf("next %+v", next)
		}
	}},
	{"HZ3: a server whose epoch is over adds no record", func(e *env) {
		id := e.newSession()
		e.commit(verdict(id, 1))
		e.Usurp(e.T)
		if _, err := e.try(verdict(id, 1)); err == nil {
			e.Fatal("no error")
		}
		equal(e, "tip", e.Store.AuditTip().N, 1)
		got, err := e.Store.AuditRecords(e.ctx, 0, 100, 10)
		e.ok(err)
		equal(e, "records", len(got), 1)
	}},
	{"one chain for all that is written at once", func(e *env) {
		const sessions, each = 8, 20
		var wg sync.WaitGroup
		for range sessions {
			id := e.newSession()
			wg.Go(func() {
				for range each {
					if _, err := e.try(verdict(id, 3)); err != nil {
						e.Error(err)
					}
				}
			})
		}
		wg.Wait()
		equal(e, "records", len(e.chain()), sessions*each*3)
	}},
}

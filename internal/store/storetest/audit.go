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

// chained is a record of the audit log, decoded from its export.
type chained struct {
	Chain   int64              `json:"chain"`
	N       int64              `json:"n"`
	Type    holdfast.EventType `json:"type"`
	Session holdfast.SessionID `json:"session_id"`
	Seq     int64              `json:"seq"`
	Turn    holdfast.TurnID    `json:"turn_id"`
	By      string             `json:"by"`
	Time    time.Time          `json:"time"`
	Data    json.RawMessage    `json:"data"`
}

// chain exports the whole audit log, verifies it and returns its records, without those that name
// the ends of other chains.
func (e *env) chain() (out []chained) {
	e.Helper()
	for _, r := range e.chains() {
		if r.Type != audit.ChainHeads {
			out = append(out, r)
		}
	}
	return out
}

// chains exports the whole audit log, verifies it and returns its records.
func (e *env) chains() (out []chained) {
	e.Helper()
	key, err := audit.NewKey(make([]byte, 32))
	e.ok(err)
	log := audit.NewLog(audit.Config{Store: e.Store, Key: key, Now: time.Now, Warn: func(err error) { e.Error(err) }})
	write, err := log.Export(e.ctx, "")
	e.ok(err)
	var b bytes.Buffer
	e.ok(write(e.ctx, &b))
	if _, err := audit.Verify(bytes.NewReader(b.Bytes()), audit.Options{}); err != nil {
		e.Fatalf("the log does not verify: %v\n%s", err, b.Bytes())
	}
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
// that the audit log does not record.
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
		e.ok2(e.Store.Commit(journal.As(e.ctx, "key 1f"), e.leased(verdict(a, 2))))
		e.commit(verdict(b, 1))
		first := e.Store.AuditTip().Chain
		e.Store = e.Reopen(e.T)
		e.commit(verdict(a, 1))
		second := e.Store.AuditTip().Chain
		got := e.chain()
		equal(e, "records", len(got), 4)
		for i, want := range []chained{
			{Chain: first, N: 2, Session: a, Seq: 2, By: "key 1f"},
			{Chain: first, N: 3, Session: a, Seq: 4, By: "key 1f"},
			{Chain: first, N: 4, Session: b, Seq: 2},
			{Chain: second, N: 2, Session: a, Seq: 6},
		} {
			r := got[i]
			ev := e.log(r.Session)[r.Seq-1]
			if r.Chain != want.Chain || r.N != want.N || r.Session != want.Session || r.Seq != want.Seq || r.By != want.By || r.Turn != "t" ||
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
	{"each start begins a chain that names the end of the one before", func(e *env) {
		e.commit(verdict(e.newSession(), 3))
		before := e.Store.AuditTip()
		equal(e, "records", before.N, 4)
		for range 2 {
			e.Store = e.Reopen(e.T)
			tip := e.Store.AuditTip()
			if tip.Chain <= before.Chain || tip.N != 1 {
				e.Fatalf("the chain begins with record %s after %s", tip, before)
			}
			all := e.chains()
			last := all[len(all)-1]
			equal(e, "type", last.Type, audit.ChainHeads)
			equal(e, "data", string(last.Data), fmt.Sprintf(`{"heads":[{"chain":%d,"n":%d,"hash":"%s"}]}`, before.Chain, before.N, before.Hash))
			before = tip
		}
		end, ok, err := e.Store.AuditEnd(e.ctx, before.Chain)
		e.ok(err)
		if !ok || end.Chain >= before.Chain || end.Last.Chain != end.Chain || end.Last.N != 1 {
			e.Fatalf("the end before chain %d is %+v", before.Chain, end)
		}
	}},
	{"the first chain names none", func(e *env) {
		all := e.chains()
		equal(e, "records", len(all), 1)
		equal(e, "place", e.Store.AuditTip().N, 1)
		equal(e, "data", string(all[0].Data), `{"heads":[]}`)
		_, ok, err := e.Store.AuditEnd(e.ctx, e.Store.AuditTip().Chain)
		e.ok(err)
		equal(e, "has an end before", ok, false)
	}},
	{"keeps the first head of a place, and the next chain names records that are lost", func(e *env) {
		e.commit(verdict(e.newSession(), 3))
		tip := e.Store.AuditTip()
		equal(e, "tip", tip.N, 4)
		at := time.UnixMilli(1_700_000_000_123).UTC()
		for i := range 2 {
			e.ok(e.Store.PutAuditHead(e.ctx, audit.Head{Link: tip, Time: at, Signature: []byte{byte(i)}}))
		}
		// A signed head whose number is above that of the last record, as if the records up to it had been cut off.
		lost := audit.Link{Place: audit.Place{Chain: tip.Chain, N: 9}, Hash: audit.Hash{7}}
		e.ok(e.Store.PutAuditHead(e.ctx, audit.Head{Link: lost, Time: at, Signature: []byte{9}}))
		end, _, err := e.Store.AuditEnd(e.ctx, tip.Chain+1)
		e.ok(err)
		equal(e, "last", end.Last.Link, tip)
		equal(e, "newest head", end.Head.Link, lost)
		heads, err := e.Store.AuditHeads(e.ctx, audit.Place{Chain: tip.Chain}, lost.Place, 10)
		e.ok(err)
		equal(e, "heads", len(heads), 2)
		equal(e, "signature", heads[0].Signature[0], 0)
		equal(e, "time", heads[0].Time, at)
		e.Store = e.Reopen(e.T)
		next, err := e.Store.AuditRecords(e.ctx, tip.Place, e.Store.AuditTip().Place, 10)
		e.ok(err)
		if len(next) != 1 || next[0].Link != e.Store.AuditTip() || !bytes.Contains(next[0].Body, []byte(lost.Hash.String())) {
			e.Fatalf("next %+v", next)
		}
	}},
	{"finds no record at a place that does not exist", func(e *env) {
		tip := e.Store.AuditTip().Place
		for _, p := range []audit.Place{{Chain: tip.Chain}, {Chain: tip.Chain, N: 2}, {Chain: tip.Chain + 1, N: 1}, {N: 1}, {Chain: 1 << 60, N: 1}, {Chain: tip.Chain, N: 1 << 62}} {
			got, err := e.Store.AuditRecords(e.ctx, audit.Place{Chain: p.Chain, N: p.N - 1}, p, 10)
			e.ok(err)
			if len(got) != 0 {
				e.Fatalf("at %s: %+v", p, got)
			}
		}
	}},
	{"HZ3: a server whose epoch is over adds no record", func(e *env) {
		id := e.newSession()
		e.commit(verdict(id, 1))
		e.Usurp(e.T)
		if _, err := e.try(verdict(id, 1)); err == nil {
			e.Fatal("no error")
		}
		tip := e.Store.AuditTip()
		equal(e, "tip", tip.N, 2)
		got, err := e.Store.AuditRecords(e.ctx, audit.Place{}, audit.Place{Chain: tip.Chain + 1}, 10)
		e.ok(err)
		equal(e, "records", len(got), 2)
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

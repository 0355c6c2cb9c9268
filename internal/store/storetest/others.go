package storetest

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

func cancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx, cancel
}

var fenceCases = []testCase{
	{"HZ3: raises the epoch with each opening", func(e *env) {
		last := e.Store.Epoch()
		for range 3 {
			e.Store = e.Reopen(e.T)
			if e.Store.Epoch() <= last {
				e.Fatalf("epoch %d after %d", e.Store.Epoch(), last)
			}
			last = e.Store.Epoch()
		}
	}},
	{"HZ3: a change needs the newest token of its scope", func(e *env) {
		id := e.newSession()
		old := e.token(id)
		equal(e, "token of the same lease", e.token(id), old)
		with := func(token journal.Token, id holdfast.SessionID) (journal.Committed, error) {
			c := journal.NewChange(id)
			c.Token, c.Events = token, events(1)
			return e.Store.Commit(e.ctx, encode(e.T, c))
		}
		refused := func(token journal.Token, id holdfast.SessionID) {
			e.Helper()
			before := e.snapshot(id)
			_, err := with(token, id)
			e.isKind(err, holdfast.KindConflict, "another server took over")
			equal(e, "session", e.snapshot(id), before)
		}
		refused(0, id)
		refused(old+1, id)
		e.ok2(with(old, id))
		e.Store = e.Reopen(e.T)
		newest := e.token(id)
		if newest <= old {
			e.Fatalf("token %d after %d", newest, old)
		}
		refused(old, id)
		refused(old, e.newSession())
		c := creation(holdfast.SessionID(e.newID()))
		c.Token = old
		_, err := e.Store.Commit(e.ctx, encode(e.T, c))
		e.isKind(err, holdfast.KindConflict)
		e.ok2(with(newest, id))
	}},
	{"HZ3: a server whose epoch is over writes nothing", func(e *env) {
		id := e.newSession()
		before := e.snapshot(id)
		e.Usurp(e.T)
		c := journal.NewChange(id)
		c.Events = events(1)
		e.refuse(c, holdfast.KindConflict, "another server")
		if holdfast.HintOf(e.Store.Healthy()) == "" {
			e.Fatalf("health %v has no hint", e.Store.Healthy())
		}
		_, err := e.try(creation(holdfast.SessionID(e.newID())))
		e.isKind(err, holdfast.KindConflict)
		e.isKind(e.Store.DeleteSession(e.ctx, id), holdfast.KindConflict)
		_, err = e.Store.PutAgentVersion(e.ctx, version("a", 'b'))
		e.isKind(err, holdfast.KindConflict)
		equal(e, "session", e.snapshot(id), before)
		e.Store = e.Reopen(e.T)
		e.commit(c)
	}},
}

var textCases = []testCase{
	{"keeps any text as it is", func(e *env) {
		for _, s := range []string{
			"", " ", "'; DROP TABLE sessions; --", `\"'` + "`", "日本語 🚀 \u202e", "a\r\n\tb", "\u0001\u007f\uFFFD", "%_?$1", strings.Repeat("é", 10_000),
		} {
			c := creation(holdfast.SessionID(e.newID()))
			c.Create.Title, c.Create.Model, c.Create.Tags, c.Create.Error = s, s, []string{s, s}, s
			c.Create.Env = map[string]string{"N" + s: "v"}
			c.Events = []journal.Draft{{Type: holdfast.EventType("t" + s), Turn: holdfast.TurnID(s), Data: s}}
			done := e.commit(c)
			got := e.row(c.Session)
			if got.Title != s || got.Model != s || got.Error != s || !reflect.DeepEqual(got.Tags, []string{s, s}) ||
				!reflect.DeepEqual(got, done.Row) {
				e.Fatalf("%q came back as %+v", s, got)
			}
			log := e.log(c.Session)
			var text string
			e.ok(log[0].Decode(&text))
			if text != s || log[0].Type != holdfast.EventType("t"+s) || log[0].Turn != holdfast.TurnID(s) {
				e.Fatalf("%q came back as %+v", s, log[0])
			}
		}
	}},
	{"refuses NUL and broken UTF-8, quoted", func(e *env) {
		id := e.newSession()
		for _, s := range []string{"a\x00b", "\xff", "ok\xc3"} {
			quoted := fmt.Sprintf("%q", s)
			for name, set := range map[string]func(*journal.Row){
				"title": func(r *journal.Row) { r.Title = s }, "model": func(r *journal.Row) { r.Model = s },
				"tags": func(r *journal.Row) { r.Tags = []string{"x", s} }, "agent": func(r *journal.Row) { r.Agent = holdfast.AgentName(s) },
				"runtime": func(r *journal.Row) { r.Runtime = s }, "env": func(r *journal.Row) { r.Env = map[string]string{s: ""} },
			} {
				c := creation(holdfast.SessionID(e.newID()))
				set(c.Create)
				_, err := e.try(c)
				if e.isKind(err, holdfast.KindInvalid, quoted); e.snapshot(c.Session) != "none" {
					e.Fatalf("%s left a session", name)
				}
			}
			for _, p := range []journal.RowPatch{{Title: &s}, {Model: &s}, {Tags: &[]string{s}}} {
				c := journal.NewChange(id)
				c.Set = &p
				e.refuse(c, holdfast.KindInvalid, quoted)
			}
			c := journal.NewChange(id)
			c.Events = []journal.Draft{{Type: holdfast.EventType(s)}}
			e.refuse(c, holdfast.KindInvalid, quoted)
			c = journal.NewChange(id)
			c.Key = &journal.Key{Scope: "s", Value: s, Hash: "h", Ref: "r"}
			e.refuse(c, holdfast.KindInvalid, quoted)
			c = journal.NewChange(id)
			c.Turns = []journal.TurnChange{{ID: holdfast.TurnID(s), To: holdfast.TurnQueued, Number: 1}}
			e.refuse(c, holdfast.KindInvalid, quoted)
		}
	}},
	{"cleans the error text, which may come out of a box", func(e *env) {
		id := e.newSession()
		bad := "exit\x00 \xff1"
		c := journal.NewChange(id)
		c.Set = &journal.RowPatch{Error: &bad}
		e.commit(c)
		equal(e, "error", e.row(id).Error, "exit\uFFFD \uFFFD1")
	}},
}

var deleteCases = []testCase{
	{"takes the session, its log, turns and keys", func(e *env) {
		id := holdfast.SessionID(e.newID())
		c := creation(id)
		c.Key = &journal.Key{Scope: "session.create", Value: "k", Hash: "h", Ref: string(id)}
		c.Events = events(100)
		e.commit(c)
		turn := e.insertTurn(id, 1, holdfast.TurnRunning)
		keyed := journal.NewChange(id)
		keyed.Key = &journal.Key{Scope: "turn:" + string(id), Value: "k", Hash: "h", Ref: string(turn)}
		e.commit(keyed)
		e.move(id, holdfast.StatusEnded)
		other := e.newSession()

		e.ok(e.Store.DeleteSession(e.ctx, id))
		for _, err := range []error{
			second(e.Store.Row(e.ctx, id)), second(e.Store.Head(e.ctx, id)), second(e.Store.Events(e.ctx, id, 0, 1)),
			second(e.Store.Turn(e.ctx, id, turn)), second(e.try(keyed)), e.Store.DeleteSession(e.ctx, id),
		} {
			e.isKind(err, holdfast.KindNotFound)
		}
		open, err := e.Store.OpenTurns(e.ctx, "")
		e.ok(err)
		equal(e, "open turns", len(open), 0)
		e.expectIDs("list", e.ids(journal.Query{}, nil), []holdfast.SessionID{other})

		// The deleted session's id and idempotency key can be used again, and its old log is not visible.
		c.Events = events(1)
		equal(e, "duplicate", e.commit(c).Duplicate, "")
		equal(e, "events", len(e.log(id)), 1)
		e.Store = e.Reopen(e.T)
		equal(e, "events", len(e.log(id)), 1)
		equal(e, "last turn", e.row(id).LastTurn, 0)
	}},
	{"is for ended sessions only", func(e *env) {
		for _, st := range holdfast.Words[holdfast.Status]() {
			c := creation(holdfast.SessionID(e.newID()))
			c.Create.Status = st
			e.commit(c)
			err := e.Store.DeleteSession(e.ctx, c.Session)
			if st == holdfast.StatusEnded {
				e.ok(err)
				continue
			}
			e.isKind(err, holdfast.KindConflict, string(st))
			if holdfast.HintOf(err) == "" {
				e.Fatal("no hint")
			}
		}
	}},
}

func second[T any](_ T, err error) error { return err }

func version(name holdfast.AgentName, digit byte) holdfast.AgentVersion {
	return holdfast.AgentVersion{
		Agent: name, ID: holdfast.VersionID("sha256:" + strings.Repeat(string(digit), 64)),
		Files: []holdfast.AgentFile{{Path: "CLAUDE.md", Size: 3, Mode: 0o644, SHA256: strings.Repeat("0", 64)}},
	}
}

var agentCases = []testCase{
	{"ASH1: each deployment raises the version, also of the same content", func(e *env) {
		for i, digit := range []byte("aab") {
			a, err := e.Store.PutAgentVersion(e.ctx, version("coder", digit))
			e.ok(err)
			equal(e, "version", a.Version, int64(i)+1)
			equal(e, "id", a.VersionID, version("", digit).ID)
			got, err := e.Store.Agent(e.ctx, "coder")
			e.ok(err)
			equal(e, "agent", got, a)
			equal(e, "runtime", got.Runtime, "")
		}
		vs, err := e.Store.AgentVersions(e.ctx, "coder")
		e.ok(err)
		if len(vs) != 3 || vs[0].Number != 3 || vs[2].Number != 1 || len(vs[0].Files) != 1 {
			e.Fatalf("versions %+v", vs)
		}
	}},
	{"finds versions by number and by content", func(e *env) {
		for _, digit := range []byte("aba") {
			_, err := e.Store.PutAgentVersion(e.ctx, version("coder", digit))
			e.ok(err)
		}
		for ref, want := range map[string]int64{"1": 1, "2": 2, "3": 3, string(version("", 'a').ID): 3, string(version("", 'b').ID): 2} {
			v, err := e.Store.AgentVersion(e.ctx, "coder", ref)
			e.ok(err)
			equal(e, ref, v.Number, want)
			equal(e, "file", v.Files[0], version("", 'a').Files[0])
		}
		for _, ref := range []string{"0", "4", "-1", "", "x", string(version("", 'c').ID), "99999999999999999999"} {
			_, err := e.Store.AgentVersion(e.ctx, "coder", ref)
			e.isKind(err, holdfast.KindNotFound, fmt.Sprintf("%q", ref))
		}
		_, err := e.Store.AgentVersion(e.ctx, "other", "1")
		e.isKind(err, holdfast.KindNotFound)
	}},
	{"lists by name", func(e *env) {
		for _, n := range []holdfast.AgentName{"b", "a", "c"} {
			_, err := e.Store.PutAgentVersion(e.ctx, version(n, 'a'))
			e.ok(err)
		}
		all, err := e.Store.Agents(e.ctx)
		e.ok(err)
		if len(all) != 3 || all[0].Name != "a" || all[2].Name != "c" {
			e.Fatalf("agents %+v", all)
		}
	}},
	{"keeps the versions of a deleted agent and counts on from them", func(e *env) {
		_, err := e.Store.PutAgentVersion(e.ctx, version("coder", 'a'))
		e.ok(err)
		e.ok(e.Store.DeleteAgent(e.ctx, "coder"))
		for _, err := range []error{
			second(e.Store.Agent(e.ctx, "coder")), second(e.Store.AgentVersions(e.ctx, "coder")), e.Store.DeleteAgent(e.ctx, "coder"),
		} {
			e.isKind(err, holdfast.KindNotFound, `"coder"`)
		}
		all, err := e.Store.Agents(e.ctx)
		e.ok(err)
		equal(e, "agents", len(all), 0)
		v, err := e.Store.AgentVersion(e.ctx, "coder", string(version("", 'a').ID))
		e.ok(err)
		equal(e, "pinned version", v.Number, 1)
		a, err := e.Store.PutAgentVersion(e.ctx, version("coder", 'b'))
		e.ok(err)
		equal(e, "next version", a.Version, 2)
	}},
	{"what an update sets wins over the versions' settings, until it is taken back or the agent deleted", func(e *env) {
		ptr := func(s string) *string { return &s }
		v := version("coder", 'a')
		v.Settings = holdfast.AgentSettings{Description: "reviews", Runtime: "acp:x", Model: "m1", Mode: holdfast.ModePlan}
		put, err := e.Store.PutAgentVersion(e.ctx, v)
		e.ok(err)
		check := func(description, model string, mode holdfast.Mode) {
			a, err := e.Store.Agent(e.ctx, "coder")
			e.ok(err)
			equal(e, "description", a.Description, description)
			equal(e, "model", a.Model, model)
			equal(e, "mode", a.Mode, mode)
		}
		equal(e, "runtime", put.Runtime, "acp:x")
		equal(e, "answered mode", put.Mode, holdfast.ModePlan)
		check("reviews", "m1", holdfast.ModePlan)
		vs, err := e.Store.AgentVersions(e.ctx, "coder")
		e.ok(err)
		equal(e, "settings of the version", vs[0].Settings, v.Settings)
		a, err := e.Store.UpdateAgent(e.ctx, "coder", holdfast.UpdateAgent{Model: ptr("m2"), Mode: ptr("default")})
		e.ok(err)
		equal(e, "answered model", a.Model, "m2")
		check("reviews", "m2", holdfast.ModeDefault)
		v = version("coder", 'b')
		v.Settings.Model = "m3"
		put, err = e.Store.PutAgentVersion(e.ctx, v)
		e.ok(err)
		equal(e, "model after a deployment", put.Model, "m2")
		check("", "m2", holdfast.ModeDefault)
		_, err = e.Store.UpdateAgent(e.ctx, "coder", holdfast.UpdateAgent{Model: ptr(""), Description: ptr("mine")})
		e.ok(err)
		check("mine", "m3", holdfast.ModeDefault)
		e.Store = e.Reopen(e.T)
		check("mine", "m3", holdfast.ModeDefault)
		e.ok(e.Store.DeleteAgent(e.ctx, "coder"))
		_, err = e.Store.UpdateAgent(e.ctx, "coder", holdfast.UpdateAgent{})
		e.isKind(err, holdfast.KindNotFound, `"coder"`)
		put, err = e.Store.PutAgentVersion(e.ctx, version("coder", 'a'))
		e.ok(err)
		equal(e, "mode of a new agent of that name", put.Mode, "")
		check("", "", "")
	}},
	{"refuses names and ids that are none", func(e *env) {
		v := version("coder", 'a')
		v.Agent = "Not A Name"
		_, err := e.Store.PutAgentVersion(e.ctx, v)
		e.isKind(err, holdfast.KindInvalid, `"Not A Name"`)
		v = version("coder", 'a')
		v.ID = "sha256:zz"
		_, err = e.Store.PutAgentVersion(e.ctx, v)
		e.isKind(err, holdfast.KindInvalid, `"sha256:zz"`)
		_, err = e.Store.Agent(e.ctx, "coder")
		e.isKind(err, holdfast.KindNotFound)
	}},
	{"survives a restart", func(e *env) {
		a, err := e.Store.PutAgentVersion(e.ctx, version("coder", 'a'))
		e.ok(err)
		e.Store = e.Reopen(e.T)
		got, err := e.Store.Agent(e.ctx, "coder")
		e.ok(err)
		equal(e, "agent", got, a)
	}},
}

var concurrentCases = []testCase{
	{"appends of many writers to one session are dense", func(e *env) {
		id := e.newSession()
		const writers, each = 20, 15
		var wg sync.WaitGroup
		seen := make([][]int64, writers)
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					c := journal.NewChange(id)
					c.Events = []journal.Draft{{Type: holdfast.EventNotice, Data: num(w) + "/" + num(i)}, {Type: holdfast.EventNotice}}
					done, err := e.try(c)
					if err != nil {
						e.Error(err)
						return
					}
					seen[w] = append(seen[w], done.Events[0].Seq)
				}
			})
		}
		wg.Wait()
		log := e.log(id)
		equal(e, "events", len(log), 1+2*writers*each)
		for w := range seen {
			for i, seq := range seen[w] {
				equal(e, "data", string(log[seq-1].Data), fmt.Sprintf(`"%d/%d"`, w, i))
				if i > 0 && seq <= seen[w][i-1] {
					e.Fatalf("writer %d: #%d after #%d", w, seq, seen[w][i-1])
				}
			}
		}
	}},
	{"exactly one of many wins a compare-and-set", func(e *env) {
		id := e.newSession()
		for round := range int64(5) {
			var wins atomic.Int32
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					c := journal.NewChange(id)
					c.LastSeq, c.Events = round+1, events(1)
					switch _, err := e.try(c); {
					case err == nil:
						wins.Add(1)
					case !holdfast.IsKind(err, holdfast.KindConflict):
						e.Error(err)
					}
				})
			}
			wg.Wait()
			equal(e, "winners", wins.Load(), 1)
		}
	}},
	{"exactly one of many uses a key", func(e *env) {
		var first, dups atomic.Int32
		var wg sync.WaitGroup
		for range 10 {
			id := holdfast.SessionID(e.newID())
			wg.Go(func() {
				c := creation(id)
				c.Key = &journal.Key{Scope: "session.create", Value: "k", Hash: "h", Ref: string(id)}
				done, err := e.try(c)
				switch {
				case err != nil:
					e.Error(err)
				case done.Duplicate != "":
					dups.Add(1)
				default:
					first.Add(1)
				}
			})
		}
		wg.Wait()
		equal(e, "first", first.Load(), 1)
		equal(e, "duplicates", dups.Load(), 9)
		equal(e, "sessions", len(e.ids(journal.Query{}, nil)), 1)
	}},
	{"a refusal answers its own change, not its neighbours", func(e *env) {
		good, bad := e.newSession(), e.newSession()
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				c := journal.NewChange(good)
				c.Events = events(1)
				if i%3 == 0 {
					c.Session, c.Revision = bad, 99
				}
				_, err := e.try(c)
				if want := i%3 == 0; want != holdfast.IsKind(err, holdfast.KindConflict) || !want && err != nil {
					e.Errorf("change %d was refused or accepted against its revision: %v", i, err)
				}
			})
		}
		wg.Wait()
		equal(e, "good", len(e.log(good)), 41)
		equal(e, "bad", len(e.log(bad)), 1)
	}},
	{"a cancelled commit is written wholly or not at all", func(e *env) {
		id := e.newSession()
		var wg sync.WaitGroup
		var told atomic.Int64
		for range 40 {
			ctx, cancel := context.WithCancel(e.ctx)
			wg.Go(func() {
				c := journal.NewChange(id)
				c.Events = events(3)
				if _, err := e.Store.Commit(ctx, e.leased(c)); err == nil {
					told.Add(3)
				} else if !holdfast.IsKind(err, holdfast.KindUnavailable) {
					e.Error(err)
				}
			})
			wg.Go(cancel)
		}
		wg.Wait()
		// An error of kind unavailable means here that the change was withdrawn before it was written.
		equal(e, "events", int64(len(e.log(id))), 1+told.Load())
	}},
	{"readers see whole changes only", func(e *env) {
		id := e.newSession()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, err := e.Store.Row(e.ctx, id)
				if err != nil {
					e.Error(err)
					return
				}
				// Each change adds one revision and two events.
				if r.LastSeq-1 != 2*(r.Revision-1) {
					e.Errorf("the row shows half a change: revision %d, but last event #%d", r.Revision, r.LastSeq)
					return
				}
			}
		})
		for range 100 {
			c := journal.NewChange(id)
			c.Events, c.Set = events(2), &journal.RowPatch{}
			e.commit(c)
		}
		close(stop)
		wg.Wait()
	}},
}

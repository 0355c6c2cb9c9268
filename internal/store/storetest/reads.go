package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

var readCases = []testCase{
	{"counts sessions by status and the open turns", func(e *env) {
		count := func(what, want string) {
			e.Helper()
			c, err := e.Store.Counts(e.ctx)
			e.ok(err)
			equal(e, what, fmt.Sprint(c.Sessions, c.Turns), want)
		}
		count("an empty store", "map[] map[queued:0 running:0]")
		a, b, c := e.newSession(), e.newSession(), e.newSession()
		e.move(b, holdfast.StatusPaused)
		e.insertTurn(a, 1, holdfast.TurnRunning)
		e.insertTurn(a, 2, holdfast.TurnQueued)
		e.insertTurn(c, 1, holdfast.TurnQueued)
		e.moveTurn(c, e.insertTurn(c, 2, holdfast.TurnQueued), holdfast.TurnQueued, holdfast.TurnInterrupted)
		count("three sessions", "map[active:2 paused:1] map[queued:2 running:1]")
		e.move(b, holdfast.StatusEnded)
		count("one ended", "map[active:2 ended:1] map[queued:2 running:1]")
		e.ok(e.Store.DeleteSession(e.ctx, b))
		count("one deleted", "map[active:2] map[queued:2 running:1]")
	}},
	{"knows no unknown session", func(e *env) {
		id := holdfast.SessionID(e.newID())
		_, err := e.Store.Row(e.ctx, id)
		e.isKind(err, holdfast.KindNotFound, string(id))
		_, err = e.Store.Head(e.ctx, id)
		e.isKind(err, holdfast.KindNotFound, string(id))
		_, err = e.Store.Events(e.ctx, id, 0, 1)
		e.isKind(err, holdfast.KindNotFound, string(id))
	}},
	{"gives an empty log the head 0", func(e *env) {
		c := creation(holdfast.SessionID(e.newID()))
		c.Events = nil
		e.commit(c)
		equal(e, "events", len(e.log(c.Session)), 0)
	}},
	{"pages events after a number", func(e *env) {
		id := e.newSession()
		c := journal.NewChange(id)
		c.Events = events(30)
		e.commit(c)
		other := journal.NewChange(e.newSession())
		other.Events = events(30)
		e.commit(other)
		for _, p := range []struct {
			after       int64
			limit, want int
		}{{0, 10, 10}, {5, 3, 3}, {28, 10, 3}, {31, 10, 0}, {1000, 10, 0}, {1 << 40, 10, 0}, {0, 0, 31}} {
			evs, err := e.Store.Events(e.ctx, id, p.after, p.limit)
			e.ok(err)
			equal(e, fmt.Sprintf("after %d limit %d", p.after, p.limit), len(evs), p.want)
			for i, ev := range evs {
				equal(e, "seq", ev.Seq, p.after+int64(i)+1)
			}
		}
		_, err := e.Store.Events(e.ctx, id, -1, 1)
		e.isKind(err, holdfast.KindInvalid, "-1")
	}},
	{"cuts a page of large events short, never empty", func(e *env) {
		id := e.newSession()
		for range 4 {
			c := journal.NewChange(id)
			c.Events = []journal.Draft{{Type: holdfast.EventNotice, Data: strings.Repeat("x", 6<<20)}}
			e.commit(c)
		}
		evs, err := e.Store.Events(e.ctx, id, 1, 1000)
		e.ok(err)
		if len(evs) == 0 || len(evs) > 2 {
			e.Fatalf("%d events of 6 MB in one page", len(evs))
		}
		equal(e, "all", len(e.log(id)), 5)
	}},
	{"lists the sessions that were starting", func(e *env) {
		a, b := e.newSession(), e.newSession()
		e.newSession()
		e.move(b, holdfast.StatusPaused, holdfast.StatusStarting)
		e.move(a, holdfast.StatusPaused, holdfast.StatusStarting)
		got, err := e.Store.Starting(e.ctx)
		e.ok(err)
		if !slices.Equal(got, []holdfast.SessionID{a, b}) {
			e.Fatalf("starting: %v", got)
		}
		e.move(a, holdfast.StatusActive)
		got, err = e.Store.Starting(e.ctx)
		e.ok(err)
		equal(e, "starting", len(got), 1)
	}},
	{"gives up when its caller does", func(e *env) {
		ctx, cancel := cancelled(e.ctx)
		defer cancel()
		id := e.newSession()
		_, err := e.Store.Row(ctx, id)
		e.isKind(err, holdfast.KindUnavailable)
		_, err = e.Store.Events(ctx, id, 0, 1)
		e.isKind(err, holdfast.KindUnavailable)
		equal(e, "health", e.Store.Healthy(), nil)
	}},
}

// ids returns the ids of the sessions on all pages of a query. between runs after each page.
func (e *env) ids(q journal.Query, between func()) []holdfast.SessionID {
	e.Helper()
	var out []holdfast.SessionID
	for {
		p, err := e.Store.Rows(e.ctx, q)
		e.ok(err)
		for _, r := range p.Rows {
			out = append(out, r.ID)
		}
		if p.Next == "" {
			return out
		}
		if len(p.Rows) == 0 {
			e.Fatal("an empty page with a next one")
		}
		q.Cursor = p.Next
		if between != nil {
			between()
		}
	}
}

func (e *env) expectIDs(what string, got, want []holdfast.SessionID) {
	e.Helper()
	if !slices.Equal(got, want) {
		e.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

var listCases = []testCase{
	{"is empty at first", func(e *env) {
		e.expectIDs("all", e.ids(journal.Query{}, nil), nil)
	}},
	{"goes newest first, in pages of any size", func(e *env) {
		var want []holdfast.SessionID
		for range 11 {
			want = append(want, e.newSession())
		}
		slices.Reverse(want)
		for _, limit := range []int{1, 2, 5, 10, 11, 12, 500} {
			e.expectIDs("limit "+num(limit), e.ids(journal.Query{Limit: limit}, nil), want)
		}
	}},
	{"shows rows as Row does", func(e *env) {
		id := e.newSession()
		c := journal.NewChange(id)
		c.Events = events(5)
		e.commit(c)
		p, err := e.Store.Rows(e.ctx, journal.Query{})
		e.ok(err)
		equal(e, "row", fmt.Sprintf("%+v", p.Rows[0]), fmt.Sprintf("%+v", e.row(id)))
	}},
	{"neither repeats nor hides a session when others come in between", func(e *env) {
		var want []holdfast.SessionID
		for range 9 {
			want = append(want, e.newSession())
		}
		slices.Reverse(want)
		got := e.ids(journal.Query{Limit: 2}, func() { e.newSession(); e.newSession() })
		e.expectIDs("with inserts", got, want)
	}},
	{"goes on past a session that was deleted in between", func(e *env) {
		var want []holdfast.SessionID
		for range 6 {
			want = append(want, e.newSession())
		}
		slices.Reverse(want)
		n := 0
		got := e.ids(journal.Query{Limit: 2}, func() {
			if n++; n == 1 {
				e.move(want[1], holdfast.StatusEnded)
				e.ok(e.Store.DeleteSession(e.ctx, want[1]))
			}
		})
		e.expectIDs("with a deletion", got, want)
	}},
	{"filters", func(e *env) {
		make1 := func(status holdfast.Status, agent holdfast.AgentName, title string, tags ...string) holdfast.SessionID {
			c := creation(holdfast.SessionID(e.newID()))
			c.Create.Status, c.Create.Agent, c.Create.Title, c.Create.Tags = status, agent, title, tags
			return e.commit(c).Row.ID
		}
		a := make1(holdfast.StatusActive, "alpha", "Größe und Ärger", "x", "y")
		b := make1(holdfast.StatusEnded, "alpha", "100% done_", "y")
		c := make1(holdfast.StatusActive, "beta", "", "xy", `"quoted"`)
		d := make1(holdfast.StatusActive, "beta", "größe")
		type ids = []holdfast.SessionID
		for name, f := range map[string]struct {
			q    journal.Query
			want ids
		}{
			"status":            {journal.Query{Status: holdfast.StatusActive}, ids{d, c, a}},
			"agent":             {journal.Query{Agent: "alpha"}, ids{b, a}},
			"tag":               {journal.Query{Tag: "y"}, ids{b, a}},
			"tag exact":         {journal.Query{Tag: "x"}, ids{a}},
			"tag case":          {journal.Query{Tag: "X"}, nil},
			"tag quoted":        {journal.Query{Tag: `"quoted"`}, ids{c}},
			"text":              {journal.Query{Text: "GRÖSSE"}, nil},
			"text folded":       {journal.Query{Text: "GRÖßE"}, ids{d, a}},
			"text percent":      {journal.Query{Text: "0%"}, ids{b}},
			"text underscore":   {journal.Query{Text: "e_"}, ids{b}},
			"text no wildcards": {journal.Query{Text: "%"}, ids{b}},
			"id":                {journal.Query{IDPart: string(a)}, ids{a}},
			"id upper case":     {journal.Query{IDPart: strings.ToUpper(string(c))}, ids{c}},
			"id beginning":      {journal.Query{IDPart: string(a)[:4]}, ids{d, c, b, a}},
			"id ending":         {journal.Query{IDPart: strings.ToUpper(string(b)[24:])}, ids{b}},
			"id middle":         {journal.Query{IDPart: string(b)[1:35]}, nil},
			"id wildcard":       {journal.Query{IDPart: "%"}, nil},
			"id longer":         {journal.Query{IDPart: "0" + string(a)}, nil},
			"title":             {journal.Query{Title: "100% DONE_"}, ids{b}},
			"title in part":     {journal.Query{Title: "100%"}, nil},
			"title begins":      {journal.Query{TitlePrefix: "GRÖß"}, ids{d, a}},
			"title is begun":    {journal.Query{TitlePrefix: "größe!"}, nil},
			"title wildcard":    {journal.Query{TitlePrefix: "%"}, nil},
			"all":               {journal.Query{Status: holdfast.StatusActive, Agent: "beta", Text: "g", IDPart: string(d)[:9]}, ids{d}},
			"none":              {journal.Query{Status: holdfast.StatusEnded, Agent: "beta"}, nil},
		} {
			e.expectIDs(name, e.ids(f.q, nil), f.want)
			f.q.Limit = 1
			e.expectIDs(name+" one by one", e.ids(f.q, nil), f.want)
		}
	}},
	{"keeps the trash apart", func(e *env) {
		a, b := e.say("", "plum"), e.say("", "plum")
		at := time.UnixMilli(1_900_000_000_123).UTC()
		c := journal.NewChange(a)
		c.Set = &journal.RowPatch{PurgeAt: &at}
		e.refuse(c, holdfast.KindConflict) // the session has not ended, so it cannot be in the trash
		c.Status = []holdfast.Status{holdfast.StatusEnded}
		row := e.commit(c).Row
		equal(e, "time", *row.PurgeAt, at)
		for range 2 {
			row, err := e.Store.Row(e.ctx, a)
			e.ok(err)
			equal(e, "stored time", *row.PurgeAt, at)
			e.expectIDs("in the trash", e.ids(journal.Query{Trash: true}, nil), []holdfast.SessionID{a})
			e.expectIDs("outside", e.ids(journal.Query{}, nil), []holdfast.SessionID{b})
			equal(e, "found outside", e.found("plum", a, b), "1:5 1:4 1:3 1:2")
			equal(e, "found inside", len(e.search(journal.Search{Text: "plum", Session: a}).Hits), 4)
			e.Store = e.Reopen(e.T)
		}
		c = journal.NewChange(a)
		c.Set = &journal.RowPatch{PurgeAt: &time.Time{}}
		if row := e.commit(c).Row; row.PurgeAt != nil || row.Status != holdfast.StatusEnded {
			e.Fatalf("out of the trash: %+v", row.Session)
		}
		e.expectIDs("all", e.ids(journal.Query{}, nil), []holdfast.SessionID{b, a})
		equal(e, "found", len(strings.Fields(e.found("plum", a, b))), 8)
	}},
	{"follows changes of what it filters by", func(e *env) {
		id := e.newSession()
		title, tags := "Ünder", []string{"new"}
		c := journal.NewChange(id)
		c.Set, c.Status = &journal.RowPatch{Title: &title, Tags: &tags}, []holdfast.Status{holdfast.StatusPaused}
		e.commit(c)
		for name, q := range map[string]journal.Query{
			"text": {Text: "ünd"}, "tag": {Tag: "new"}, "status": {Status: holdfast.StatusPaused},
		} {
			e.expectIDs(name, e.ids(q, nil), []holdfast.SessionID{id})
		}
		for name, q := range map[string]journal.Query{
			"text": {Text: "a title"}, "tag": {Tag: "one"}, "status": {Status: holdfast.StatusActive},
		} {
			e.expectIDs("old "+name, e.ids(q, nil), nil)
		}
	}},
	{"refuses what is no cursor, no limit, no status", func(e *env) {
		for range 3 {
			e.newSession()
		}
		p, err := e.Store.Rows(e.ctx, journal.Query{Limit: 1})
		e.ok(err)
		for _, bad := range []string{"x", "1", "-", "czA", "cy0x", p.Next + "=", p.Next + " ", "s1", "\x00", "%"} {
			_, err := e.Store.Rows(e.ctx, journal.Query{Cursor: bad})
			e.isKind(err, holdfast.KindInvalid, fmt.Sprintf("%q", bad))
		}
		for _, limit := range []int{-1, 501} {
			_, err := e.Store.Rows(e.ctx, journal.Query{Limit: limit})
			e.isKind(err, holdfast.KindInvalid, num(limit))
		}
		_, err = e.Store.Rows(e.ctx, journal.Query{Status: "asleep"})
		e.isKind(err, holdfast.KindInvalid, `"asleep"`)
	}},
	{"gives 50 without a limit", func(e *env) {
		for range 52 {
			e.newSession()
		}
		p, err := e.Store.Rows(e.ctx, journal.Query{})
		e.ok(err)
		equal(e, "rows", len(p.Rows), 50)
	}},
}

package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// say creates a session with a title and a conversation in which word occurs.
func (e *env) say(title, word string) holdfast.SessionID {
	e.Helper()
	id := holdfast.SessionID(e.newID())
	c := creation(id)
	c.Create.Title = title
	c.Events = []journal.Draft{
		{Type: holdfast.EventSessionCreated, Data: holdfast.SessionCreated{Title: title}},
		{Type: holdfast.EventMessageUser, Turn: "t", Data: holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "look for the " + word + ", please"}}}},
		{Type: holdfast.EventToolRequested, Turn: "t", Data: holdfast.ToolRequested{Name: "Bash", Input: json.RawMessage(`{"command":"grep ` + word + `"}`)}},
		{Type: holdfast.EventToolFinished, Turn: "t", Data: holdfast.ToolFinished{Content: "\x1b[31m red\x07 " + word + "\nsecond line"}},
		{Type: holdfast.EventMessageAssistant, Turn: "t", Data: holdfast.AssistantMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "the " + word}, {Type: holdfast.PartText, Text: " is there"}}}},
		{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: "x", Text: "a notice about the " + word}},
	}
	e.commit(c)
	return id
}

func (e *env) search(q journal.Search) holdfast.SearchPage {
	e.Helper()
	for {
		page, err := e.Store.Search(e.ctx, q)
		e.ok(err)
		if page.Pending == 0 {
			return page
		}
	}
}

// found returns the hits of a query as text, each as "index in sessions:sequence number".
func (e *env) found(q string, sessions ...holdfast.SessionID) string {
	e.Helper()
	var out []string
	for _, h := range e.search(journal.Search{Text: q}).Hits {
		out = append(out, fmt.Sprintf("%d:%d", slices.Index(sessions, h.Session), h.Seq))
	}
	return strings.Join(out, " ")
}

var searchCases = []testCase{
	{"finds titles and conversations, newest first", func(e *env) {
		a, b := e.say("about Äpfel", "apple"), e.say("pears", "pear")
		c := e.say("more of apple", "plum")
		for q, want := range map[string]string{
			"apple":            "2:0 0:5 0:4 0:3 0:2",
			"APPLE there":      "0:5",
			"apfel":            "0:0",
			`"the pear"`:       "1:5 1:2",
			`"pear the"`:       "",
			"pea*":             "1:5 1:4 1:3 1:2 1:0",
			"pea":              "",
			"grep":             "2:3 1:3 0:3",
			"apple plum":       "",
			"notice":           "",
			"look AND for":     "",
			"apple NOT plum":   "",
			"text:apple OR -x": "",
		} {
			equal(e, q, e.found(q, a, b, c), want)
		}
		hits := e.search(journal.Search{Text: "red", Session: a}).Hits
		equal(e, "hits in one session", len(hits), 1)
		h := hits[0]
		equal(e, "snippet", h.Snippet, "[31m red apple second line")
		equal(e, "role", h.Role, holdfast.RoleResult)
		equal(e, "title", h.Title, "about Äpfel")
		equal(e, "turn", h.Turn, "t")
		_, err := e.Store.Search(e.ctx, journal.Search{Text: "x", Session: holdfast.SessionID(e.newID())})
		e.isKind(err, holdfast.KindNotFound)
	}},
	{"cuts a snippet around the match", func(e *env) {
		id := e.say("", strings.Repeat("ä ", 500)+"needle"+strings.Repeat(" z", 500))
		h := e.search(journal.Search{Text: `"NEEDLE"`, Session: id}).Hits
		if len(h) == 0 || !strings.Contains(h[0].Snippet, "ä needle z") || len([]rune(h[0].Snippet)) > 170 {
			e.Fatalf("%+v", h)
		}
	}},
	{"finds by the newest title only", func(e *env) {
		id := e.say("before", "x")
		equal(e, "the first title", e.found("before", id), "0:0")
		title := "after"
		c := journal.NewChange(id)
		c.Set = &journal.RowPatch{Title: &title}
		c.Events = []journal.Draft{{Type: holdfast.EventSessionUpdated, Data: holdfast.SessionUpdated{SessionChange: holdfast.SessionChange{Title: &title}}}}
		e.commit(c)
		equal(e, "the old title", e.found("before", id), "")
		equal(e, "the new title", e.found("after", id), "0:0")
	}},
	{"finds after a restart what was not indexed before it", func(e *env) {
		var ids []holdfast.SessionID
		for range 5 {
			ids = append(ids, e.say("", "orchid"))
		}
		e.Store = e.Reopen(e.T)
		equal(e, "hits", len(strings.Fields(e.found("orchid", ids...))), 20)
		e.Store = e.Reopen(e.T)
		equal(e, "hits, none twice", len(strings.Fields(e.found("orchid", ids...))), 20)
	}},
	{"forgets what was deleted", func(e *env) {
		gone, kept := e.say("secret", "secret"), e.say("", "secret")
		equal(e, "before", len(strings.Fields(e.found("secret"))), 9)
		e.move(gone, holdfast.StatusEnded)
		e.ok(e.Store.DeleteSession(e.ctx, gone))
		equal(e, "after", e.found("secret", gone, kept), "1:5 1:4 1:3 1:2")
		e.Store = e.Reopen(e.T)
		equal(e, "after a restart", e.found("secret", gone, kept), "1:5 1:4 1:3 1:2")
		page, err := e.Store.Rows(e.ctx, journal.Query{Words: "secret"})
		e.ok(err)
		equal(e, "sessions", len(page.Rows), 1)
	}},
	{"pages by an opaque cursor, stable under new sessions", func(e *env) {
		var ids []holdfast.SessionID
		for range 7 {
			ids = append(ids, e.say("", "fig"))
		}
		seen := map[string]bool{}
		q := journal.Search{Text: "fig", Limit: 5}
		for first := true; first || q.Cursor != ""; first = false {
			page := e.search(q)
			for _, h := range page.Hits {
				key := fmt.Sprint(h.Session, h.Seq)
				if seen[key] || !slices.Contains(ids, h.Session) {
					e.Fatalf("%s comes twice, or late", key)
				}
				seen[key] = true
			}
			e.say("", "fig")
			q.Cursor = page.Next
		}
		equal(e, "hits", len(seen), 28)
		for _, c := range []string{"x", "czE", strings.Repeat("A", 40)} {
			_, err := e.Store.Search(e.ctx, journal.Search{Text: "fig", Cursor: c})
			e.isKind(err, holdfast.KindInvalid, c)
		}
	}},
	{"filters a list of sessions by words", func(e *env) {
		a, b := e.say("kiwi", "x"), e.say("", "kiwi")
		e.say("", "lime")
		e.move(a, holdfast.StatusPaused)
		page, err := e.Store.Rows(e.ctx, journal.Query{Words: "kiwi", Limit: 1})
		e.ok(err)
		equal(e, "first", page.Rows[0].ID, b)
		page, err = e.Store.Rows(e.ctx, journal.Query{Words: "kiwi", Limit: 1, Cursor: page.Next})
		e.ok(err)
		equal(e, "second", page.Rows[0].ID, a)
		equal(e, "next", page.Next, "")
		page, err = e.Store.Rows(e.ctx, journal.Query{Words: "kiwi", Status: holdfast.StatusPaused})
		e.ok(err)
		equal(e, "paused", len(page.Rows), 1)
		_, err = e.Store.Rows(e.ctx, journal.Query{Words: "?!"})
		e.isKind(err, holdfast.KindInvalid)
	}},
	{"takes any text for a query", func(e *env) {
		id := e.say("a title", "x")
		check := func(q string) {
			_, err := e.Store.Search(e.ctx, journal.Search{Text: q, Session: id})
			if err != nil && !holdfast.IsKind(err, holdfast.KindInvalid) {
				e.Fatalf("%q: %v", q, err)
			}
		}
		for _, q := range []string{
			"", " ", `"`, `""`, `"""`, `a"b`, `a"b"c`, "*", "a**", "-a", "a-b", "^a", "a^", "text:a", "{text}:a", "a:b", "NEAR(a b, 5)", "NEAR", "AND", "a OR", "NOT a",
			"(a", "a)", "a + b", "'; DROP TABLE search; --", "\x00", "a\x00b", "\xff", "日本", "\u202e", strings.Repeat("a ", 30), strings.Repeat("a", 2000), "--", "%", "search", "rank", "a'b",
		} {
			check(q)
		}
		rapid.Check(e.T, func(t *rapid.T) {
			check(rapid.OneOf(rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune(`ab "*:^-+(){}',`)))).Draw(t, "query"))
		})
		equal(e, "what is there", e.found("title", id), "0:0")
	}},
}

package main

import (
	"strings"

	"github.com/holdfast-run/holdfast"
)

type sessionSearchCmd struct {
	Words   []string `arg:"" help:"Words that must all occur; \"a phrase\"; begin*."`
	Session string   `short:"s" placeholder:"ID" help:"Only in this session."`
	Limit   int      `short:"n" default:"20" help:"How many at most, 1-200."`
	Cursor  string   `placeholder:"CURSOR" help:"Go on where a search ended: its next."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*sessionSearchCmd) Help() string {
	return "Examples:\n  holdfast session search deploy fail*\n  holdfast session search '\"connection refused\"'"
}

// Run searches titles and conversations, and prints the hits.
func (s *sessionSearchCmd) Run(e *env) error {
	words := strings.Join(s.Words, " ")
	if strings.TrimSpace(words) == "" {
		return holdfast.Errorf(holdfast.KindInvalid, "session search", "no words to search for are given").WithHint("holdfast session search WORDS, or holdfast session list")
	}
	c, err := e.client()
	if err != nil {
		return err
	}
	req := holdfast.SearchRequest{Query: words, Limit: s.Limit, Cursor: s.Cursor}
	if s.Session != "" {
		_, id, err := e.onSession(s.Session)
		if err != nil {
			return err
		}
		req.Session = string(id)
	}
	page, err := c.Search(e.ctx, req)
	if err != nil {
		return err
	}
	if e.json {
		return e.print(page)
	}
	var rows [][]string
	for _, h := range page.Hits {
		role := string(h.Role)
		if h.Seq == 0 {
			role = "title"
		}
		rows = append(rows, []string{shortID(h.Session), when(h.Time), role, cut(line(h.Snippet), 80)})
	}
	if err := e.table([]string{"ID", "TIME", "ROLE", "TEXT"}, rows); err != nil {
		return err
	}
	if page.Next != "" {
		e.note("there are more: --limit shows up to 200, more words fewer, --cursor %s goes on", page.Next)
	}
	if page.Pending > 0 {
		e.note("the newest entries of %s are not searchable yet", count(page.Pending, "session", "sessions"))
	}
	return nil
}

package search

import (
	"context"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

const (
	// Patience is the longest time that a search waits until entries just committed are indexed.
	Patience = 250 * time.Millisecond
	// searchBytes and searchTerms are the most bytes and the most words or phrases of a query.
	searchBytes, searchTerms = 1000, 20
	// snippetBefore is the largest number of characters of a snippet before the match, snippetAll the largest
	// number of characters of the whole snippet.
	snippetBefore, snippetAll = 40, 160
)

// Search returns a page of the log entries and session titles that match the words of q,
// those of the newest session first.
func (x *Index) Search(ctx context.Context, q journal.Search) (holdfast.SearchPage, error) {
	match, terms, err := parseQuery(q.Text)
	if err != nil {
		return holdfast.SearchPage{}, err
	}
	low, high := int64(0), int64(journal.MaxSeq)<<31
	if q.Session != "" {
		n, err := x.log.Number(ctx, q.Session)
		if err != nil {
			return holdfast.SearchPage{}, err
		}
		low, high = n<<32, n<<32|journal.MaxSeq+1
	}
	if q.Cursor != "" {
		n, err := db.DecodeCursor('h', q.Cursor)
		if err != nil {
			return holdfast.SearchPage{}, err
		}
		high = min(high, n)
	}
	limit := db.Limit(q.Limit, 20, 200)
	x.Settle(ctx, Patience)
	page := holdfast.SearchPage{Hits: []holdfast.SearchHit{}, Pending: x.Pending()}
	rows, err := x.find.QueryContext(ctx, match, low, high, q.Session != "", limit+1)
	var last int64
	err = db.Each(rows, err, func(sc db.Scanner) error {
		if len(page.Hits) == limit { // the query asks for one row more than a page has, to see whether there is a next page
			page.Next = db.EncodeCursor('h', last)
			return nil
		}
		hit, err := x.scanHit(sc, terms, &last)
		page.Hits = append(page.Hits, hit)
		return err
	})
	if err != nil {
		return page, db.Failure("store.search", err)
	}
	return page, nil
}

// Match turns the words that a person typed into the argument of an FTS5 MATCH.
func Match(words string) (string, error) {
	match, _, err := parseQuery(words)
	return match, err
}

// scanHit turns a row of the query x.find into a hit, and stores the row's rowid in id.
func (x *Index) scanHit(sc db.Scanner, terms []string, id *int64) (holdfast.SearchHit, error) {
	var h holdfast.SearchHit
	var created int64
	var typ, turn, agent *string
	var at, sum *int64
	var data []byte
	if err := sc.Scan(id, &h.Session, &h.Title, &created, &typ, &turn, &at, &data, &sum, &agent); err != nil {
		return h, err
	}
	if h.Seq = *id & journal.MaxSeq; h.Seq == 0 || typ == nil {
		h.Time, h.Snippet = db.FromMS(created), snippet(h.Title, terms)
		return h, nil
	}
	e := holdfast.Event{
		Session: h.Session, Seq: h.Seq, Type: holdfast.EventType(*typ), Turn: holdfast.TurnID(deref(turn)),
		Agent: holdfast.ChildID(deref(agent)), Data: data, Time: db.FromMS(deref(at)),
	}
	if !x.log.Intact(*id, deref(at), &e, deref(sum)) {
		h.Time, h.Snippet = e.Time, "this entry is damaged"
		return h, nil
	}
	text, _, err := words(e)
	if err != nil {
		return h, err
	}
	entry, err := conversation.Entry(e)
	h.Turn, h.Role, h.Time, h.Snippet = e.Turn, entry.Role, e.Time, snippet(text, terms)
	return h, err
}

// parseQuery turns the text that a person typed into a valid FTS5 query: each word or
// phrase becomes a quoted string, whatever characters it has. terms are the same words and
// phrases in lower case, for the snippet.
func parseQuery(q string) (match string, terms []string, err error) {
	bad := func(why string) (string, []string, error) {
		return "", nil, holdfast.Errorf(holdfast.KindInvalid, "search", "search query %s is not valid: it %s", holdfast.Quote(q), why).
			WithHint(`search for words, "a phrase" or begin*`)
	}
	if len(q) > searchBytes {
		return bad("is too long")
	}
	if journal.CheckText("query", q) != nil {
		return bad("is not text")
	}
	var parts []string
	word := false
	for rest := strings.TrimSpace(q); rest != ""; rest = strings.TrimSpace(rest) {
		var term, star string
		if phrase, ok := strings.CutPrefix(rest, `"`); ok {
			term, rest, _ = strings.Cut(phrase, `"`)
		} else {
			end := strings.IndexFunc(rest, func(r rune) bool { return unicode.IsSpace(r) || r == '"' })
			if end < 0 {
				end = len(rest)
			}
			term, rest = rest[:end], rest[end:]
			if begin, ok := strings.CutSuffix(term, "*"); ok {
				term, star = begin, "*"
			}
		}
		if !strings.ContainsFunc(term, wordRune) {
			continue // punctuation is not indexed
		}
		if word = true; len(parts) == searchTerms {
			return bad("has too many words")
		}
		parts = append(parts, `"`+strings.ReplaceAll(term, `"`, `""`)+`"`+star)
		terms = append(terms, strings.Map(unicode.ToLower, strings.TrimFunc(term, func(r rune) bool { return !wordRune(r) })))
	}
	if !word {
		return bad("has no word")
	}
	return strings.Join(parts, " "), terms, nil
}

func wordRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.Co, r)
}

// snippet returns one line of the text, around the first place where one of the terms occurs. It replaces
// control characters by blanks: text that a box or a model wrote must not move a terminal's cursor.
func snippet(text string, terms []string) string {
	low := strings.Map(unicode.ToLower, text)
	at := -1
	for _, term := range terms {
		if i := strings.Index(low, term); i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	skip := 0
	if at > 0 {
		// Changing a text to lower case can change its number of bytes, but not its number of characters.
		skip = max(0, utf8.RuneCountInString(low[:at])-snippetBefore)
	}
	var b strings.Builder
	n := 0
	for _, r := range text {
		if n++; n <= skip {
			continue
		}
		if n > skip+snippetAll {
			break
		}
		if !unicode.IsGraphic(r) || unicode.IsSpace(r) {
			r = ' '
		}
		b.WriteRune(r)
	}
	line := strings.Join(strings.Fields(b.String()), " ")
	if skip > 0 {
		line = "… " + line
	}
	if n > skip+snippetAll {
		line += " …"
	}
	return line
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

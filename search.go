package holdfast

import "time"

// SearchRequest holds the parameters of GET /v1/search, the full-text search in titles and conversations.
type SearchRequest struct {
	// Query is a list of terms that must all occur: words, "phrases in quotes", and beginnings
	// of words, as in begin*. Case and accents are ignored.
	Query string
	// Session limits the search to one session.
	Session string
	Cursor  string
	// Limit is the page size, 1-200; 0 means 20.
	Limit int
}

// SearchPage is one page of hits: the newest session's first, and within a session the
// newest hit first. Next is the cursor of the following page, empty on the last page.
type SearchPage struct {
	Hits []SearchHit `json:"hits"`
	Next string      `json:"next,omitempty"`
	// Pending counts the sessions whose newest entries are not searchable yet.
	Pending int `json:"pending,omitempty"`
}

// SearchHit is a piece of a conversation, or a session's title, that matches.
type SearchHit struct {
	Session SessionID `json:"session_id"`
	Title   string    `json:"title"`
	// Seq is the number of the event that matches; 0 if the title matches.
	Seq  int64  `json:"seq,omitempty"`
	Turn TurnID `json:"turn_id,omitempty"`
	Role Role   `json:"role,omitempty"`
	// Snippet is one line around the first match, without control characters.
	Snippet string    `json:"snippet"`
	Time    time.Time `json:"time"`
}

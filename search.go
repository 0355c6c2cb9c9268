package holdfast

import "time"

// SearchRequest asks for what was said in sessions: GET /v1/search.
type SearchRequest struct {
	// Query are words that must all occur, "phrases in quotes", and begin* of a
	// word; in any case, with or without accents.
	Query string
	// Session limits the search to one session.
	Session string
	Cursor  string
	// Limit is the page size, 1-200; 0 is 20.
	Limit int
}

// SearchPage is one page of hits: those of the newest sessions first, and within
// a session the newest. Next is the cursor of the page after it.
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
	// Seq is the event that matches; 0 when it is the title.
	Seq  int64  `json:"seq,omitempty"`
	Turn TurnID `json:"turn_id,omitempty"`
	Role Role   `json:"role,omitempty"`
	// Snippet is one line around the first match, without control characters.
	Snippet string    `json:"snippet"`
	Time    time.Time `json:"time"`
}

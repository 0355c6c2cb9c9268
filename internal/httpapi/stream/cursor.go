package stream

import (
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// parseCursor parses a sequence number in the form of an SSE id: decimal digits without sign,
// space or leading zero. The empty string is 0, the beginning of the log. where names the
// parameter or header in errors.
func parseCursor(where, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, holdfast.Errorf(holdfast.KindInvalid, "events", "%s %s is not the sequence number of an event", where, holdfast.Quote(s)).
			WithHint("pass the id of the last event received, or 0 for the whole log")
	}
	return n, nil
}

// Cursor returns the sequence number after which a reader wants to continue. If both are set, the
// header Last-Event-ID wins over the query: a browser that reconnects repeats its first URL, so
// that the header is newer.
func Cursor(lastEventID, after string) (int64, error) {
	fromQuery, err := parseCursor("after", after)
	if err != nil {
		return 0, err
	}
	if lastEventID == "" {
		return fromQuery, nil
	}
	return parseCursor("Last-Event-ID", lastEventID)
}

// Types parses a filter of event types, separated by commas. An empty filter selects all
// types. An unknown type is refused, since a stream of it would stay silent for ever.
func Types(s string) ([]holdfast.EventType, error) {
	if s == "" {
		return nil, nil
	}
	var out []holdfast.EventType
	known := holdfast.Words[holdfast.EventType]()
	for word := range strings.SplitSeq(s, ",") {
		t := holdfast.EventType(strings.TrimSpace(word))
		if !slices.Contains(known, t) {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "events", "%s is not an event type", holdfast.Quote(string(t))).
				WithHint("use types such as turn.completed or message.assistant, separated by commas")
		}
		out = append(out, t)
	}
	return out, nil
}

// Package obs sets up the server's log and counts its metrics.
//
// cmd, app, the engine and the guard of httpapi import it; it imports the vocabulary. Invariant (I-22): the log shows
// neither the value of an attribute that is named like a secret nor a Holdfast token in the text of an attribute.
package obs

import (
	"context"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Redacted is the text that replaces a secret in the log.
const Redacted = "***"

// NewLogger returns the server's logger, which writes to w. format is text, json or journal, level
// is debug, info, warn or error; other values are invalid.
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "log", "%s is not a log level", holdfast.Quote(level)).
			WithHint("use the log level debug, info, warn or error")
	}
	opt := &slog.HandlerOptions{Level: least, ReplaceAttr: redact}
	switch format {
	case "text":
		return slog.New(named{slog.NewTextHandler(w, opt)}), nil
	case "json":
		return slog.New(named{slog.NewJSONHandler(w, opt)}), nil
	case "journal":
		return slog.New(named{newJournal(w, opt)}), nil
	}
	return nil, holdfast.Errorf(holdfast.KindInvalid, "log", "%s is not a log format", holdfast.Quote(format)).
		WithHint("use the log format text, json or journal")
}

// named is a log handler that adds the id of the request in the context to each line.
type named struct{ slog.Handler }

// Handle implements slog.Handler.
func (n named) Handle(ctx context.Context, r slog.Record) error {
	if id := RequestIDOf(ctx); id != "" {
		r.AddAttrs(slog.String("request_id", id))
	}
	return n.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (n named) WithAttrs(attrs []slog.Attr) slog.Handler { return named{n.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (n named) WithGroup(name string) slog.Handler { return named{n.Handler.WithGroup(name)} }

// secretWords are parts of attribute names that mark secrets. "token" is not one of them, because it
// would hide token counts.
var secretWords = []string{"secret", "password", "passwd", "authorization", "cookie", "api_key", "apikey", "credential"}

var tokens = regexp.MustCompile(`hfk?_[A-Za-z0-9_-]{20,}|(?i:bearer) +[A-Za-z0-9._~+/=-]{8,}`)

func redact(_ []string, a slog.Attr) slog.Attr {
	name := strings.ToLower(strings.ReplaceAll(a.Key, "-", "_"))
	if name == "token" || strings.HasSuffix(name, "_token") ||
		slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(name, w) }) {
		return slog.String(a.Key, Redacted)
	}
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString:
		if s := v.String(); tokens.MatchString(s) {
			return slog.String(a.Key, tokens.ReplaceAllString(s, Redacted))
		}
	case slog.KindAny:
		if err, ok := v.Any().(error); ok && tokens.MatchString(err.Error()) {
			return slog.String(a.Key, tokens.ReplaceAllString(err.Error(), Redacted))
		}
	}
	return a
}

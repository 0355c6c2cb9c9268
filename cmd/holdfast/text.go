package main

import (
	"encoding/json"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/plain"
	"github.com/holdfast-run/holdfast/internal/shellword"
)

// Short names for the functions of package plain that make text readable and safe for a terminal.

func line(s string) string { return plain.OneLine(s) }

// word returns a text that the user typed as a word of a command to paste.
func word(s string) string { return shellword.Quote(s) }

func prose(s string) string { return plain.Prose(s) }

func compact(data json.RawMessage) string { return plain.Compact(data) }

func cut(s string, n int) string { return plain.Cut(s, n) }

func count(n int, one, many string) string { return plain.Count(n, one, many) }

func when(t time.Time) string { return plain.When(t) }

func short(id string) string { return plain.Short(id) }

func shortID(id holdfast.SessionID) string { return plain.ShortID(id) }

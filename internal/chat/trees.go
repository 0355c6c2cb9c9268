package chat

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

const (
	// treeLimit is the longest time that a copy, a diff, a rewind or a fork may take.
	treeLimit = 10 * time.Minute
	// maxDiff is the most lines of a diff that are shown, maxDiffBytes the most bytes that are kept.
	maxDiff      = 1000
	maxDiffBytes = 4 << 20
)

// diff shows what changed in the session's files since it started, since a checkpoint, or between two.
func (t *Talk) diff(arg string) []Effect {
	id, compare := t.Session.ID, t.Compare
	return t.call(treeLimit, func(ctx context.Context, c *client.Client) Input {
		var text beginning
		var notes string
		of, command, err := compare(ctx, c, id, strings.Fields(arg))
		if err == nil {
			notes, err = c.DiffCheckpoints(ctx, id, of, &text)
		}
		return func(*Talk) []Effect {
			if err != nil {
				return []Effect{trouble(err)}
			}
			return []Effect{diffLines(text.String(), notes, command)}
		}
	})
}

// diffLines returns the first lines of a diff, and, if it was cut, the command that prints all of it.
func diffLines(text, notes, command string) Show {
	var out Show
	more := 0
	for l := range strings.Lines(text) {
		if len(out) == maxDiff {
			more++
			continue
		}
		out = append(out, diffLine(plain.OneLine(strings.TrimRight(l, "\n"))))
	}
	for l := range strings.Lines(notes) {
		out = append(out, say("! %s", strings.TrimSpace(l))...)
	}
	switch {
	case more > 0 || len(text) == maxDiffBytes:
		out = append(out, say("that is the beginning; all of it: %s", command)...)
	case text == "":
		out = append(out, say("nothing changed")...)
	}
	return out
}

// diffLine returns a line of a patch. The kind of the result stands for the sign of a change,
// which is removed.
func diffLine(l string) plain.Line {
	switch {
	case strings.HasPrefix(l, "+++ "), strings.HasPrefix(l, "--- "):
		return plain.Line{Kind: plain.Note, Text: l}
	case strings.HasPrefix(l, "+"):
		return plain.Line{Kind: plain.Added, Text: l[1:]}
	case strings.HasPrefix(l, "-"):
		return plain.Line{Kind: plain.Removed, Text: l[1:]}
	case strings.HasPrefix(l, " "):
		return plain.Line{Kind: plain.Context, Text: l[1:]}
	}
	return plain.Line{Kind: plain.Note, Text: l}
}

// beginning is a writer that keeps the first maxDiffBytes bytes.
type beginning struct{ strings.Builder }

func (b *beginning) Write(p []byte) (int, error) {
	b.Builder.Write(p[:min(len(p), maxDiffBytes-b.Len())])
	return len(p), nil
}

// copy copies files between the local disk and the session.
func (t *Talk) copy(arg string) []Effect {
	paths := strings.Fields(arg)
	if len(paths) != 2 {
		return []Effect{say("/cp SRC DST copies; the session's path has a colon before it: /cp :report.md . or /cp data.csv :in/")}
	}
	id, do := t.Session.ID, t.Copy
	return t.call(treeLimit, func(ctx context.Context, _ *client.Client) Input {
		lines, err := do(ctx, id, paths[0], paths[1])
		return func(*Talk) []Effect {
			if err != nil {
				return []Effect{trouble(err)}
			}
			var out Show
			for _, l := range lines {
				out = append(out, say("%s", l)...)
			}
			return []Effect{out}
		}
	})
}
